package journalfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of a file as a whole.
var (
	// ErrNotJournal means that the file is something else, or cut off within its header.
	ErrNotJournal = errors.New("not a journal file")
	// ErrUnknownFormat means that a newer systemd wrote the file with features that this package does not know.
	ErrUnknownFormat = errors.New("journal file of an unknown format")
	// ErrFault means that the mapped file could not be read any more: it was cut while it was read, or its disk failed.
	ErrFault = errors.New("file shrank or failed while it was read")
)

// Incompatible flags of journal-def.h: a reader that does not know one of them cannot read the file.
const (
	flagXZ      = 1
	flagLZ4     = 2
	flagKeyed   = 4
	flagZSTD    = 8
	flagCompact = 16
	flagsKnown  = flagXZ | flagLZ4 | flagKeyed | flagZSTD | flagCompact
)

// online is the state of a file that is being written, or was not closed cleanly: a machine that lost power leaves its
// files so.
const online = 1

// An ID is one of the 128-bit ids of systemd.
type ID = [16]byte

// header holds the fields of a file's header. Times are microseconds since 1970, UTC.
type header struct {
	incompatible uint32 // flags
	state        byte
	fileID       string
	entries      uint64
	headRealtime uint64
	tailRealtime uint64
	size         uint64 // of header and arena, as the header states them
	headerSize   uint64
	tailObject   uint64
	entryArray   uint64
}

const (
	// headerMin is the size of the header of the oldest files, header_size of systemd 183.
	headerMin = 208
	// headerMax bounds a header_size that is believed. The longest of systemd 258 is 272.
	headerMax = 64 << 10
)

// parseHeader reads the header at the beginning of b.
func parseHeader(b []byte) (header, error) {
	if len(b) < 8 || string(b[:8]) != "LPKSHHRH" {
		return header{}, ErrNotJournal
	}
	if len(b) < headerMin {
		return header{}, fmt.Errorf("%w: cut off after %d bytes, within its header", ErrNotJournal, len(b))
	}
	le := binary.LittleEndian
	h := header{
		incompatible: le.Uint32(b[12:]),
		state:        b[16],
		fileID:       string(b[24:40]),
		headerSize:   le.Uint64(b[88:]),
		tailObject:   le.Uint64(b[136:]),
		entries:      le.Uint64(b[152:]),
		entryArray:   le.Uint64(b[176:]),
		headRealtime: le.Uint64(b[184:]),
		tailRealtime: le.Uint64(b[192:]),
	}
	if unknown := h.incompatible &^ flagsKnown; unknown != 0 {
		return header{}, fmt.Errorf("%w: incompatible flags %#x", ErrUnknownFormat, unknown)
	}
	if h.headerSize < headerMin || h.headerSize > headerMax {
		return header{}, fmt.Errorf("%w: its header claims a size of %d bytes", ErrNotJournal, h.headerSize)
	}
	if arena := le.Uint64(b[96:]); arena < 1<<62 {
		h.size = h.headerSize + arena
	}
	return h, nil
}

// latest bounds the times that are believed: the year 2255, in microseconds.
const latest = 1 << 53

// spans reports whether the head and tail times can be believed as the bounds of all entries.
func (h header) spans() bool {
	return h.entries > 0 && h.headRealtime > 0 && h.headRealtime <= h.tailRealtime && h.tailRealtime < latest
}
