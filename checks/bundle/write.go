package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/redact"
)

// The formats of an archive.
const (
	Zst = "zst"
	Tgz = "tgz"
)

// Options select how an archive is written.
type Options struct {
	Format   string // Zst, also where empty, or Tgz
	MaxBytes int64  // of the compressed archive, manifest included; 0 for no limit
	Redactor *redact.Redactor
	Redact   redact.Level // of Redactor, for the manifest
	Now      func() time.Time
}

// Sizes of a Writer.
const (
	leastChunk   = 64 << 10
	mostChunk    = 1 << 20
	manifestRest = 8 << 10 // kept for the manifest without its lists
	frameBytes   = 1 << 10 // for the header and the end of an entry of tar, compressed
)

// tooLarge says why a file is cut or missing.
const tooLarge = "the archive reached its largest size"

var errTooLarge = errors.New(tooLarge)

// A Writer writes an archive, one file after the other. It compresses each file in memory and writes what fits, so that
// the archive is whole after each file. An archive that is cut off can be read up to the cut.
type Writer struct {
	opts     Options
	out      io.Writer
	written  int64
	left     int64 // bytes for more files, without the manifest
	compress compressor
	chunk    int // bytes of text that are compressed together: a text is cut at the end of a chunk
	names    map[string]bool
	m        Manifest
	err      error // of out: nothing more can be written
}

type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// NewWriter begins an archive in w.
func NewWriter(w io.Writer, opts Options) (*Writer, error) {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, math.MaxInt64)
	b := &Writer{
		opts: opts, out: w, left: opts.MaxBytes - manifestRest, names: map[string]bool{ManifestName: true},
		chunk: int(min(max(opts.MaxBytes/8, leastChunk), mostChunk)),
		m:     Manifest{Redact: opts.Redact, Files: []File{}, NotCollected: []Missing{}},
	}
	switch opts.Format {
	case Zst, "":
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(mostChunk),
			zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, err
		}
		b.compress = enc
	case Tgz:
		b.compress = gzip.NewWriter(nil)
	default:
		return nil, fmt.Errorf("format %q is neither %s nor %s", opts.Format, Zst, Tgz)
	}
	return b, nil
}

// Add adds a file. It reads src to its end, and writes it redacted. A text that does not fit is cut, a document left
// out; the manifest says so. An error of src cuts the file. The error is of the destination: nothing more can be
// written.
func (b *Writer) Add(path, source string, format redact.Format, src io.Reader) error {
	if b.err != nil {
		return b.err
	}
	path = safePath(path)
	switch {
	case !fs.ValidPath(path) || path == ".":
		b.Lacks(path, "its name does not fit into the archive")
		return nil
	case b.names[path]:
		b.Lacks(path, "the archive has a file of this name already")
		return nil
	}
	entry := File{Path: path, Source: b.redacted(source), CollectedAt: b.opts.Now().UTC()}
	inManifest := int64(len(path)+len(entry.Source)) + 256
	f := &file{b: b, sum: sha256.New(), room: b.left - inManifest - frameBytes}
	chunks := bufio.NewWriterSize(f, b.chunk)
	redactions, err := b.opts.Redactor.Copy(chunks, src, format)
	err = cmp.Or(err, chunks.Flush())
	if err != nil && (f.bytes == 0 || errors.Is(err, errTooLarge) && format == redact.JSON) {
		b.Lacks(path, err.Error())
		return nil
	}
	entry.Bytes, entry.SHA256, entry.Redactions = f.bytes, hex.EncodeToString(f.sum.Sum(nil)), redactions
	if err != nil {
		entry.Cut = b.redacted(err.Error())
	}
	if err := b.put(path, f); err != nil {
		b.Lacks(path, err.Error())
		return err
	}
	b.names[path] = true
	b.m.Files = append(b.m.Files, entry)
	b.left -= inManifest + int64(len(entry.Cut))
	return nil
}

// A file is the compressed text of one that is being added.
type file struct {
	b      *Writer
	room   int64 // bytes for packed
	packed bytes.Buffer
	bytes  int64
	sum    hash.Hash
}

// Write adds a chunk, unless it does not fit.
func (f *file) Write(chunk []byte) (int, error) {
	before := f.packed.Len()
	f.b.pack(&f.packed, chunk)
	if int64(f.packed.Len()) > f.room {
		f.packed.Truncate(before)
		return 0, errTooLarge
	}
	f.bytes += int64(len(chunk))
	return f.sum.Write(chunk)
}

// pack appends text as a frame of its own: an archive may have any number of them.
func (b *Writer) pack(to *bytes.Buffer, text []byte) {
	b.compress.Reset(to)
	_, _ = b.compress.Write(text) // into memory
	_ = b.compress.Close()
}

// put writes an entry of tar.
func (b *Writer) put(path string, f *file) error {
	var header, head, end bytes.Buffer
	err := tar.NewWriter(&header).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path, Size: f.bytes, Mode: 0o600, ModTime: b.opts.Now(),
	})
	if err != nil {
		b.err = fmt.Errorf("packing %s: %w", path, err)
		return b.err
	}
	b.pack(&head, header.Bytes())
	b.pack(&end, make([]byte, -f.bytes&511)) // tar has blocks of 512 bytes
	return cmp.Or(b.write(head.Bytes()), b.write(f.packed.Bytes()), b.write(end.Bytes()))
}

// write writes to the destination, unless that has failed.
func (b *Writer) write(packed []byte) error {
	if b.err != nil {
		return b.err
	}
	n, err := b.out.Write(packed)
	b.written += int64(n)
	b.left -= int64(n)
	if err != nil {
		b.err = fmt.Errorf("writing the archive: %w", err)
	}
	return b.err
}

// Bytes returns how much was written, compressed.
func (b *Writer) Bytes() int64 { return b.written }

// Lacks lists something in the manifest as not collected.
func (b *Writer) Lacks(what, why string) {
	b.m.NotCollected = append(b.m.NotCollected, Missing{b.redacted(what), b.redacted(why)})
	b.left -= int64(len(what)+len(why)) + 32
}

// redacted removes secrets from a text of the manifest.
func (b *Writer) redacted(s string) string {
	s, _ = b.opts.Redactor.String(s)
	return s
}

// Close writes the manifest with the header and ends the archive. The manifest is returned with an error too.
func (b *Writer) Close(h checks.Header) (*Manifest, error) {
	h.Kind, h.APIVersion = KindManifest, checks.APIVersion
	if h.Problems == nil {
		h.Problems = []string{}
	}
	err := b.redactHeader(&h)
	b.m.Header = h
	if b.err != nil {
		return &b.m, b.err
	}
	text, errJSON := json.MarshalIndent(&b.m, "", "  ")
	f := &file{b: b, sum: sha256.New(), room: b.opts.MaxBytes - b.written - frameBytes}
	_, errFull := f.Write(append(text, '\n'))
	if err = cmp.Or(err, errJSON, errFull); err != nil {
		return &b.m, fmt.Errorf("writing the manifest: %w", err)
	}
	var end bytes.Buffer
	b.pack(&end, make([]byte, 1024))
	return &b.m, cmp.Or(b.put(ManifestName, f), b.write(end.Bytes()))
}

// redactHeader removes secrets from a header. As JSON, the field of the host is known to hold a name.
func (b *Writer) redactHeader(h *checks.Header) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if _, err := b.opts.Redactor.Copy(&out, bytes.NewReader(text), redact.JSON); err != nil {
		return err
	}
	*h = checks.Header{}
	return json.Unmarshal(out.Bytes(), h)
}

// safePath returns a path of printable ASCII, which every tar reads: file names of a host may be anything.
func safePath(path string) string {
	path = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '\\' {
			return '_'
		}
		return r
	}, path)
	return path[:min(len(path), maxName)]
}
