package recorder

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/crictl/safefile"
)

const (
	// Segments have numbers and are read in their order, whatever the clock does.
	segmentsDir    = "records"
	segmentName    = "%08d.zst"
	segmentPattern = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].zst"
	// A record is a skippable frame of zstd, with a checksum and the length of the next frame, and a frame of zstd with
	// a line of JSON. zstdcat reads segments too.
	marker    = "\x5b\x2a\x4d\x18\x08\x00\x00\x00" // magic and size of the skippable frame, as zstd has them
	headBytes = len(marker) + 8
	// tailWait is how long Read waits for the end of the newest segment: an agent may be writing it.
	tailWait = 20 * time.Millisecond
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// frame returns a line of JSON as two frames.
func frame(pack *zstd.Encoder, line []byte) []byte {
	f := pack.EncodeAll(line, []byte(marker+"\x00\x00\x00\x00\x00\x00\x00\x00"))
	head := f[len(marker):]
	binary.LittleEndian.PutUint32(head[4:], uint32(len(head)-8))
	binary.LittleEndian.PutUint32(head, checksum(head[4:]))
	return f
}

// payload returns the second frame of the record at the beginning of text; nil if there is none, or a damaged one.
func payload(text []byte) []byte {
	if len(text) < headBytes || string(text[:len(marker)]) != marker {
		return nil
	}
	head := text[len(marker):]
	end := 8 + uint64(binary.LittleEndian.Uint32(head[4:]))
	if end > uint64(len(head)) || binary.LittleEndian.Uint32(head) != checksum(head[4:end]) {
		return nil
	}
	return head[8:end]
}

// A Damage is a part of a segment that cannot be read.
type Damage struct {
	File     string
	From, To time.Time // of the records around it; zero where there is none
	Bytes    int64
	Err      error // of a file that cannot be opened or read; nil for bytes that are no records
}

// Read calls each with the records of a folder, in the order in which they were written: after a jump of the clock
// their times are not in order. It takes no lock and writes nothing, so that an agent may be at work, and the disk be
// mounted read-only. Links that leave the folder are not followed, and only regular files are opened.
//
// The error is of the folder, or the cause of the end of ctx. Where the disk may hang, call it under crictl/deadline.
func Read(ctx context.Context, dir string, each func(Record)) ([]Damage, error) {
	root, err := os.OpenRoot(dir + "/.") // the dot keeps a FIFO from blocking
	if err != nil {
		return nil, err
	}
	defer root.Close() // was only read
	entries, err := fs.ReadDir(root.FS(), segmentsDir)
	if err != nil {
		return nil, err
	}
	// The error would be of an option.
	unpack, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxRecord), zstd.WithDecoderMaxWindow(maxRecord))
	defer unpack.Close()
	r := reader{root: root, unpack: unpack, each: each}
	names := segments(entries)
	for i, name := range names {
		if ctx.Err() != nil {
			return r.damaged, context.Cause(ctx)
		}
		r.segment(path.Join(segmentsDir, name), i == len(names)-1)
	}
	return r.damaged, nil
}

// A reader reads the segments of a folder, one after the other.
type reader struct {
	root    *os.Root
	unpack  *zstd.Decoder
	each    func(Record)
	damaged []Damage
	last    time.Time // of the previous record
}

// segment reads one segment. Of the newest it waits for the end of a record that an agent is writing.
func (r *reader) segment(name string, newest bool) {
	text, err := r.load(name)
	if errors.Is(err, fs.ErrNotExist) { // an agent has dropped it
		return
	}
	bad := Damage{File: name}
	for pos := 0; pos < len(text); {
		if rec, size := r.decode(text[pos:]); size > 0 {
			r.damage(bad, rec.At)
			r.last, bad.Bytes = rec.At, 0
			pos += size
			r.each(rec)
			continue
		}
		skip := 1 + bytes.Index(text[pos+1:], []byte(marker))
		if skip == 0 && newest {
			newest = false
			time.Sleep(tailWait)
			text, err = r.load(name)
			continue
		}
		if skip == 0 {
			skip = len(text) - pos
		}
		bad.Bytes += int64(skip)
		pos += skip
	}
	bad.Err = err
	r.damage(bad, time.Time{})
}

// load reads a segment. With an error of the disk it returns the bytes before it.
func (r *reader) load(name string) ([]byte, error) {
	f, err := safefile.Regular(r.root.OpenFile(name, safefile.Flags, 0))
	if err != nil {
		return nil, err
	}
	return safefile.ReadAll(f, maxSegment)
}

// decode returns the record at the beginning of text, and its length; 0 if there is none.
func (r *reader) decode(text []byte) (rec Record, size int) {
	frame := payload(text)
	line, err := r.unpack.DecodeAll(frame, nil)
	if err != nil || json.Unmarshal(line, &rec) != nil || rec.Kind == "" {
		return rec, 0
	}
	return rec, headBytes + len(frame)
}

// damage reports a damage, if there is one. Next is the time of the record behind it, if there is one.
func (r *reader) damage(d Damage, next time.Time) {
	d.From = r.last
	if d.Bytes > 0 || d.Err != nil {
		r.damaged = append(r.damaged, d)
	}
	for i := len(r.damaged) - 1; i >= 0 && r.damaged[i].To.IsZero(); i-- {
		r.damaged[i].To = next
	}
}

// segments returns the names of the segments among the sorted entries of a folder.
func segments(entries []fs.DirEntry) (names []string) {
	for _, e := range entries {
		if match, _ := path.Match(segmentPattern, e.Name()); match {
			names = append(names, e.Name())
		}
	}
	return names
}
