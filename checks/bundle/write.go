package bundle

import (
	"archive/tar"
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
	"syscall"
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
	// Texts are compressed in chunks, each twice as long as the one before, up to mostChunk. Those at the end that do
	// not fit are left out.
	firstChunk   = 64 << 10
	mostChunk    = 1 << 20
	manifestRest = 8 << 10 // kept for the manifest without its lists
	endBytes     = 64      // the end of tar, compressed
)

// Why a file is not whole, or is not there.
const (
	tooLarge = "the archive reached its largest size"
	noSpace  = "the disk of the archive is full"
)

// A Writer writes an archive while its files are collected, one after the other. Each is compressed in memory, and
// written only where it fits: what was written can be read whatever becomes of the rest.
type Writer struct {
	opts     Options
	out      io.Writer
	written  int64
	most     int64  // bytes that the archive may have
	reserve  int64  // of these, for the manifest
	full     string // why nothing more fits
	compress compressor
	names    map[string]bool
	m        Manifest
	err      error // of out: nothing more can be written
}

type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// NewWriter begins an archive in w. Where w can be truncated, as a file can, a full disk cuts the archive behind what
// fits, and the manifest has why.
func NewWriter(w io.Writer, opts Options) (*Writer, error) {
	b := &Writer{
		opts: opts, out: w, most: cmp.Or(opts.MaxBytes, math.MaxInt64), reserve: manifestRest, full: tooLarge,
		names: map[string]bool{ManifestName: true},
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

// Add adds a file. src is read to its end, redacted and written; what no longer fits is left out, and the manifest has
// why. An error of src cuts the file. The error is of the destination: nothing more can be written.
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
	own := int64(len(path)+len(entry.Source)) + 256 // in the manifest
	f := &file{b: b, sum: sha256.New(), reserve: b.reserve + own}
	redactions, err := b.opts.Redactor.Copy(f, src, format)
	if err == nil || len(f.ends) > 0 || len(f.buf) > 0 { // of what could not be read, nothing is kept
		f.flush()
	}
	entry.Redactions = redactions
	whole := len(f.ends)
	for n := whole; n > 0 && b.err == nil && (n == whole || format != redact.JSON); n-- {
		if !b.put(path, f, n) {
			continue
		}
		end := f.ends[n-1]
		entry.Bytes, entry.SHA256 = end.bytes, hex.EncodeToString(end.sum)
		switch {
		case n < whole:
			entry.Cut = b.full
		case err != nil:
			entry.Cut = b.redacted(err.Error())
		}
		b.names[path] = true
		b.m.Files = append(b.m.Files, entry)
		b.reserve += own + int64(len(entry.Cut))
		return nil
	}
	switch {
	case b.err != nil:
		b.Lacks(path, b.err.Error())
	case whole == 0 && err != nil && !f.over:
		b.Lacks(path, err.Error())
	default:
		b.Lacks(path, b.full)
	}
	return b.err
}

// A file is one that is being added, in chunks.
type file struct {
	b       *Writer
	reserve int64 // bytes that are left after it
	buf     []byte
	packed  bytes.Buffer
	bytes   int64
	sum     hash.Hash
	ends    []end
	over    bool // there is no room for more
}

// An end is where a file can end: behind each chunk.
type end struct {
	packed int
	bytes  int64
	sum    []byte
}

var errOver = errors.New("there is no room for more")

// Write takes redacted text of a file.
func (f *file) Write(p []byte) (n int, _ error) {
	for len(p) > 0 && !f.over {
		chunk := min(firstChunk<<min(len(f.ends), 8), mostChunk)
		part := p[:min(len(p), chunk-len(f.buf))]
		f.buf = append(f.buf, part...)
		p, n = p[len(part):], n+len(part)
		if len(f.buf) == chunk {
			f.flush()
		}
	}
	if f.over {
		return n, errOver
	}
	return n, nil
}

// flush compresses a chunk.
func (f *file) flush() {
	f.b.pack(&f.packed, f.buf)
	_, _ = f.sum.Write(f.buf)
	f.bytes += int64(len(f.buf))
	f.buf = f.buf[:0]
	f.ends = append(f.ends, end{f.packed.Len(), f.bytes, f.sum.Sum(nil)})
	f.over = f.b.written+int64(f.packed.Len())+f.reserve > f.b.most
}

// pack compresses a text by itself: archives may have any number of such frames.
func (b *Writer) pack(to *bytes.Buffer, text []byte) {
	b.compress.Reset(to)
	_, _ = b.compress.Write(text) // into memory
	_ = b.compress.Close()
}

// put writes an entry of the first n chunks of a file, where it fits. On a full disk it takes back what was written of
// it, if it can, and lowers the size that the archive may have.
func (b *Writer) put(path string, f *file, n int) bool {
	end := f.ends[n-1]
	var plain, head, rest bytes.Buffer
	if err := tar.NewWriter(&plain).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path, Size: end.bytes, Mode: 0o600, ModTime: b.opts.Now(),
	}); err != nil {
		b.err = fmt.Errorf("packing %s: %w", path, err)
		return false
	}
	b.pack(&head, plain.Bytes())
	b.pack(&rest, make([]byte, -end.bytes&511)) // tar has blocks of 512 bytes
	size := int64(head.Len() + end.packed + rest.Len() + endBytes)
	if b.written+size+f.reserve > b.most {
		return false
	}
	return b.write(head.Bytes(), f.packed.Bytes()[:end.packed], rest.Bytes())
}

func (b *Writer) write(parts ...[]byte) bool {
	var n int64
	for _, p := range parts {
		some, err := b.out.Write(p)
		if n += int64(some); err != nil {
			b.takeBack(n, err)
			return false
		}
	}
	b.written += n
	return true
}

// takeBack removes n bytes that were written of what a full disk cut.
func (b *Writer) takeBack(n int64, err error) {
	f, ok := b.out.(interface {
		io.Seeker
		Truncate(size int64) error
	})
	if ok && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && f.Truncate(b.written) == nil {
		if _, seekErr := f.Seek(b.written, io.SeekStart); seekErr == nil {
			b.most, b.full = b.written+n, noSpace
			return
		}
	}
	b.err = fmt.Errorf("writing the archive: %w", err)
}

// Bytes is how much was written, compressed.
func (b *Writer) Bytes() int64 { return b.written }

// Lacks notes what could not be collected.
func (b *Writer) Lacks(what, why string) {
	b.m.NotCollected = append(b.m.NotCollected, Missing{b.redacted(what), b.redacted(why)})
	b.reserve += int64(len(what)+len(why)) + 32
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
	if err = cmp.Or(err, errJSON); err != nil {
		return &b.m, fmt.Errorf("writing the manifest: %w", err)
	}
	f := &file{b: b, sum: sha256.New()}
	_, _ = f.Write(append(text, '\n')) // what does not fit is not put
	f.flush()
	if f.over || !b.put(ManifestName, f, len(f.ends)) {
		return &b.m, cmp.Or(b.err, errors.New("no space left for the manifest"))
	}
	var end bytes.Buffer
	b.pack(&end, make([]byte, 1024))
	b.write(end.Bytes()) // without it, all files can still be read
	return &b.m, b.err
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
