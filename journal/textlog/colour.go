package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// controls matches the control sequences of a terminal.
var controls = lazyregexp.New(`\x1b(?:[\[\]][^@-~\x07\n]*[@-~\x07\n]?|[^\[\]]?)`)

// stripColour returns b without control sequences: b itself if it has none.
func stripColour(b []byte) []byte {
	if bytes.IndexByte(b, 0x1b) < 0 {
		return b
	}
	return controls.ReplaceAll(b, nil)
}
