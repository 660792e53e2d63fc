package collect

import (
	"bytes"
	"sync"
)

// maxLog bounds a Log: a line for each call, of some hundred bytes.
const maxLog = 16 << 20

// A Log holds kdiag's own log of a run. Goroutines that were left behind may still write to it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds a line.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < maxLog {
		l.text.Write(p)
	}
	return len(p), nil
}

// Read returns lines once.
func (l *Log) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Read(p)
}
