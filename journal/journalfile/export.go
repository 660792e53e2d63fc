package journalfile

import (
	"bytes"
	"encoding/binary"
	"io"
	"strconv"
	"unicode/utf8"
)

// WriteExport writes the entry in the Journal Export Format, byte for byte as journalctl of systemd 252 does: cursor, times
// and boot first, then all fields in the order of the file, those with unprintable bytes with their length. It returns how
// many fields could not be read and are left out.
func WriteExport(w io.Writer, e *Entry) (missing int, err error) {
	b := make([]byte, 0, 2048)
	b = append(b, "__CURSOR="...)
	b = append(b, e.Cursor().String()...)
	b = append(b, "\n__REALTIME_TIMESTAMP="...)
	b = strconv.AppendUint(b, e.Realtime, 10)
	b = append(b, "\n__MONOTONIC_TIMESTAMP="...)
	b = strconv.AppendUint(b, e.Monotonic, 10)
	b = append(b, "\n_BOOT_ID="...)
	for _, c := range e.Boot {
		const digits = "0123456789abcdef"
		b = append(b, digits[c>>4], digits[c&15])
	}
	b = append(b, '\n')
	for field := range e.Fields() {
		if !bytes.HasPrefix(field, []byte("_BOOT_ID=")) { // it stands above
			b = appendField(b, field)
		}
	}
	_, err = w.Write(append(b, '\n'))
	return e.Missing(), err
}

func appendField(b, field []byte) []byte {
	if printable(field) {
		return append(append(b, field...), '\n')
	}
	name, value, _ := bytes.Cut(field, []byte("="))
	b = append(append(b, name...), '\n')
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	return append(append(b, value...), '\n')
}

// printable reports whether systemd calls a field printable: valid UTF-8 without control characters except the tab, and
// without the code points that Unicode keeps for no character.
func printable(b []byte) bool {
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\t' || c == 0x7F {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 || r <= 0x9F || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE {
			return false
		}
		i += n
	}
	return true
}
