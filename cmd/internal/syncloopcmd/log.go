package syncloopcmd

import (
	"bytes"
	"slices"
	"sync"
)

const keptLines = 200 // of the log

// logLines is a writer that keeps the newest lines. It is safe for use by several goroutines; each write is one line or
// more, as klog's are.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.lines = append(l.lines, string(line))
	}
	l.lines = slices.Clone(l.lines[max(0, len(l.lines)-keptLines):])
	return len(b), nil
}

// newest returns the newest lines, oldest first.
func (l *logLines) newest() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
