package syncloopcmd

import (
	"bytes"
	"strings"
)

// A key is what somebody wants of the view.
type key int

const (
	keyQuit key = iota
	keyPause
	keyUp
	keyDown
	keyPageUp
	keyPageDown
)

// parseKeys takes the keys out of what a terminal sent. It returns the bytes at the end that may become a key with those
// that come next: the arrows are sequences, and a slow line splits them. What it does not know it skips.
func parseKeys(b []byte) (keys []key, rest []byte) {
	sequences := []struct {
		bytes string
		key   key
	}{
		{"\x1b[A", keyUp},
		{"\x1bOA", keyUp},
		{"\x1b[B", keyDown},
		{"\x1bOB", keyDown},
		{"\x1b[5~", keyPageUp},
		{"\x1b[6~", keyPageDown},
		{"k", keyUp},
		{"j", keyDown},
		{"q", keyQuit},
		{"Q", keyQuit},
		{"p", keyPause},
		{"P", keyPause},
		{" ", keyPause},
	}
next:
	for len(b) > 0 {
		for _, s := range sequences {
			if after, ok := bytes.CutPrefix(b, []byte(s.bytes)); ok {
				keys, b = append(keys, s.key), after
				continue next
			}
			if strings.HasPrefix(s.bytes, string(b)) {
				return keys, b
			}
		}
		b = b[1:]
	}
	return keys, nil
}
