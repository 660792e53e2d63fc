package textlog

import (
	"bufio"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// decodeUTF16 returns the text of br in UTF-8, without a byte order mark.
func decodeUTF16(br *bufio.Reader) io.Reader {
	head, _ := br.Peek(3)
	switch {
	case len(head) >= 3 && string(head) == "\xef\xbb\xbf":
		_, _ = br.Discard(3)
	case len(head) >= 2 && string(head[:2]) == "\xff\xfe":
		_, _ = br.Discard(2)
		return &utf16Reader{br: br, low: 0, high: 1}
	case len(head) >= 2 && string(head[:2]) == "\xfe\xff":
		_, _ = br.Discard(2)
		return &utf16Reader{br: br, low: 1, high: 0}
	}
	return br
}

// utf16Reader turns UTF-16, as Windows' redirections write it, into UTF-8.
type utf16Reader struct {
	br        *bufio.Reader
	low, high int // place of the lower and the higher byte
	err       error
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	n := 0
	for n+utf8.UTFMax <= len(p) && u.err == nil {
		r := rune(u.unit())
		if u.err != nil {
			break
		}
		if utf16.IsSurrogate(r) {
			if next, err := u.br.Peek(2); err == nil {
				low := rune(next[u.low]) | rune(next[u.high])<<8
				if joined := utf16.DecodeRune(r, low); joined != utf8.RuneError {
					_, _ = u.br.Discard(2)
					r = joined
				}
			}
		}
		n += len(utf8.AppendRune(p[n:n], r))
	}
	if n == 0 {
		if u.err == nil {
			return 0, io.ErrShortBuffer
		}
		return 0, u.err
	}
	return n, nil
}

// unit reads two bytes.
func (u *utf16Reader) unit() uint16 {
	var b [2]byte
	_, u.err = io.ReadFull(u.br, b[:])
	return uint16(b[u.low]) | uint16(b[u.high])<<8
}
