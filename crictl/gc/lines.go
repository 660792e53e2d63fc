package gc

import (
	"bufio"
	"errors"
	"io"
)

// A lineReader reads whole lines of a bounded length and knows where the last of them ended. A longer line is returned
// cut; a last line without its end is not returned.
type lineReader struct {
	r     *bufio.Reader
	line  []byte
	whole int64 // bytes up to the end of the last whole line
}

func newLines(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, maxAuditLine)}
}

// next returns the next line without its end. It is valid until the next call.
func (l *lineReader) next() (line []byte, ok bool, err error) {
	l.line = l.line[:0]
	var size int64
	for {
		piece, err := l.r.ReadSlice('\n')
		size += int64(len(piece))
		if room := maxAuditLine - len(l.line); room > 0 {
			l.line = append(l.line, piece[:min(room, len(piece))]...)
		}
		switch {
		case err == nil:
			l.whole += size
			return l.line, true, nil
		case errors.Is(err, io.EOF):
			return nil, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}
