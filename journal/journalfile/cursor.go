package journalfile

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Cursor names one entry in whatever file it stands, in the way of journalctl's --show-cursor.
type Cursor struct {
	SeqnumID  ID
	Seqnum    uint64
	Boot      ID
	Monotonic uint64
	Realtime  uint64
	XORHash   uint64 // of the hashes of its fields
}

// Cursor returns the name of the entry.
func (e *Entry) Cursor() Cursor {
	return Cursor{
		SeqnumID: e.SeqnumID, Seqnum: e.Seqnum, Boot: e.Boot,
		Monotonic: e.Monotonic, Realtime: e.Realtime, XORHash: e.xor,
	}
}

// String is the form that journalctl writes and reads.
func (c Cursor) String() string {
	return fmt.Sprintf("s=%x;i=%x;b=%x;m=%x;t=%x;x=%x", c.SeqnumID[:], c.Seqnum, c.Boot[:], c.Monotonic, c.Realtime, c.XORHash)
}

// ParseCursor reads the form that String writes.
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	for part := range strings.SplitSeq(s, ";") {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "s":
			err = parseID(&c.SeqnumID, value)
		case "b":
			err = parseID(&c.Boot, value)
		case "i":
			c.Seqnum, err = strconv.ParseUint(value, 16, 64)
		case "m":
			c.Monotonic, err = strconv.ParseUint(value, 16, 64)
		case "t":
			c.Realtime, err = strconv.ParseUint(value, 16, 64)
		case "x":
			c.XORHash, err = strconv.ParseUint(value, 16, 64)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return Cursor{}, fmt.Errorf("parsing cursor %q: %w", s, err)
		}
	}
	return c, nil
}

func parseID(id *ID, s string) error {
	if len(s) != 32 {
		return errors.New("an id has 32 hexadecimal digits")
	}
	_, err := hex.Decode(id[:], []byte(s))
	return err
}

// Compare orders entries of any files as journalctl does: by sequence number where these count together, else by the clock
// of the boot where that is the same, else by the time of day.
func (c Cursor) Compare(d Cursor) int {
	if c.SeqnumID == d.SeqnumID {
		if n := cmp.Compare(c.Seqnum, d.Seqnum); n != 0 {
			return n
		}
	}
	if c.Boot == d.Boot {
		if n := cmp.Compare(c.Monotonic, d.Monotonic); n != 0 {
			return n
		}
	}
	return cmp.Or(cmp.Compare(c.Realtime, d.Realtime), cmp.Compare(c.XORHash, d.XORHash), bytes.Compare(c.Boot[:], d.Boot[:]))
}
