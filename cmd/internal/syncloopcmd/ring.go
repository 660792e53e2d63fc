package syncloopcmd

import (
	"bytes"
	"slices"
	"sync"
)

// What a ring keeps: as many lines as a tall terminal has, and of each what a wide one shows.
const (
	ringLines = 200
	ringLine  = 1000 // bytes
)

// A ring is a writer that remembers its newest lines, for the bottom of the view. It is safe for use by several goroutines.
type ring struct {
	mu    sync.Mutex
	lines []string
	begun []byte // of a line whose end is still to come
}

func (r *ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := b
	for {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		r.begun = append(r.begun, line[:min(len(line), max(ringLine-len(r.begun), 0))]...)
		if !ended {
			break
		}
		r.lines, r.begun, rest = append(r.lines, string(r.begun)), r.begun[:0], after
	}
	if len(r.lines) > 2*ringLines {
		r.lines = slices.Clone(r.lines[len(r.lines)-ringLines:])
	}
	return len(b), nil
}

// newest returns the newest whole lines, oldest first.
func (r *ring) newest() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines[max(0, len(r.lines)-ringLines):])
}
