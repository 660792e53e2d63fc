package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/checks"
)

// What Open refuses. Bundles are far below: they have some hundred entries, and logs shrink to a twentieth.
const (
	maxEntries  = 10_000
	maxUnpacked = 1 << 30
	maxName     = 255 // bytes of a path
	maxWindow   = 8 << 20
	maxRatio    = 1000 // of unpacked bytes to compressed ones, once fairBytes are unpacked
	fairBytes   = 64 << 20
	maxManifest = 8 << 20
	maxProblems = 20
)

// A Bundle is an archive that was read: checked and unpacked into an unlinked temporary file.
type Bundle struct {
	Manifest Manifest
	// Intact is set when the archive has a manifest and all of its files are as that has them.
	Intact bool

	tmp   *os.File
	files map[string]span // by path
}

// A span is where a file is in the temporary file.
type span struct{ offset, bytes int64 }

// refusal is why an archive is not read at all.
type refusal string

func (r refusal) Error() string { return string(r) }

// Open reads an archive and checks it against its manifest. One without a manifest, cut off, is read as far as it goes,
// and Manifest.Problems has why. Paths that leave the archive, links, devices, files twice, too many files, and too
// many bytes are errors. Only the temporary file is written.
func Open(ctx context.Context, r io.Reader) (*Bundle, error) {
	return open(ctx, r, maxEntries, maxUnpacked)
}

func open(ctx context.Context, r io.Reader, mostEntries int, mostBytes int64) (*Bundle, error) {
	tmp, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("unpacking into %s: %w", os.TempDir(), err)
	}
	b := &Bundle{tmp: tmp, files: map[string]span{}}
	found, cut, err := b.unpack(ctx, r, mostEntries, mostBytes)
	switch {
	case err == nil && len(found) == 0 && cut != nil:
		err = fmt.Errorf("it is cut off or damaged before its first file ends: %w", cut)
	case err == nil && len(found) == 0:
		err = refusal("it holds no file")
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	b.check(found, cut)
	return b, nil
}

// scratch returns a file without a name, which is gone with the process.
func scratch() (*os.File, error) {
	f, err := os.CreateTemp("", "kdiag-*") // readable by its owner only
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

// A plain reader counts the unpacked bytes, and ends where they are too many.
type plain struct {
	ctx    context.Context
	packed *counter
	from   io.Reader
	bytes  int64
	most   int64
}

type counter struct {
	from  io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
}

func (p *plain) Read(buf []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.from.Read(buf)
	p.bytes += int64(n)
	switch {
	case p.bytes > p.most:
		return 0, tooManyBytes(p.most)
	case p.bytes > fairBytes && p.bytes > maxRatio*p.packed.bytes:
		return 0, refusal(fmt.Sprintf("it unpacks to more than %d times its size", maxRatio))
	}
	return n, err
}

func tooManyBytes(most int64) error {
	return refusal(fmt.Sprintf("it unpacks to more than %d MiB", most>>20))
}

// decompress recognises how an archive is compressed.
func decompress(packed *bufio.Reader) (io.Reader, func(), error) {
	magic, err := packed.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		d, err := gzip.NewReader(packed)
		return d, func() {}, err
	case err != nil && !errors.Is(err, io.EOF):
		return nil, nil, err
	}
	return nil, nil, refusal("it is neither a .tar.zst nor a .tgz")
}

// unpack copies the files into tmp and describes them. Cut tells why it ended early, if it did; what was read until
// then is kept.
func (b *Bundle) unpack(ctx context.Context, r io.Reader, most int, mostBytes int64) (found []File, cut, _ error) {
	packed := &counter{from: r}
	from, done, err := decompress(bufio.NewReader(packed))
	if err != nil {
		return nil, nil, err
	}
	defer done()
	entries := tar.NewReader(&plain{ctx: ctx, packed: packed, from: from, most: mostBytes})
	end := int64(0)
	for n := 0; ; n++ {
		head, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return found, nil, nil
		case err != nil:
			cut, err = broken(ctx, err)
			return found, cut, err
		case n == most:
			return nil, nil, refusal(fmt.Sprintf("it has more than %d entries", most))
		}
		name, err := checkEntry(head)
		switch _, twice := b.files[name]; {
		case err != nil:
			return nil, nil, err
		case head.Typeflag == tar.TypeDir:
			continue
		case twice:
			return nil, nil, refusal(fmt.Sprintf("%q is in it twice", name))
		case head.Size > mostBytes-end: // a sparse entry has more bytes than were read for it
			return nil, nil, tooManyBytes(mostBytes)
		}
		sum := sha256.New()
		size, err := io.CopyN(io.MultiWriter(b.tmp, sum), entries, head.Size)
		if size > 0 || err == nil {
			b.files[name] = span{end, size}
			found = append(found, File{
				Path: name, Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil)), CollectedAt: head.ModTime.UTC(),
			})
		}
		end += size
		if err != nil {
			cut, err = broken(ctx, err)
			return found, cut, err
		}
	}
}

// broken tells an archive that ends early, or is damaged, from one that is refused and from a full disk.
func broken(ctx context.Context, err error) (cut, _ error) {
	_, refused := errors.AsType[refusal](err)
	file, _ := errors.AsType[*fs.PathError](err)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case refused:
		return nil, err
	case file != nil && file.Op == "write":
		return nil, fmt.Errorf("unpacking into %s: %w", os.TempDir(), err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, refusal(fmt.Sprintf("it needs more than %d MiB of memory to unpack", maxWindow>>20))
	case errors.Is(err, tar.ErrFieldTooLong):
		return nil, refusal("a header in it is too large")
	}
	return err, nil
}

// checkEntry returns the path of an entry that may be in an archive.
func checkEntry(h *tar.Header) (string, error) {
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		name = cmp.Or(strings.TrimSuffix(name, "/"), ".")
	}
	switch unprintable := func(r rune) bool { return !unicode.IsPrint(r) }; {
	case len(name) > maxName:
		return "", refusal(fmt.Sprintf("a path in it is longer than %d bytes", maxName))
	case !fs.ValidPath(name), strings.ContainsFunc(name, unprintable):
		return "", refusal(fmt.Sprintf("%q is not a path of a file below it", h.Name))
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return "", refusal(fmt.Sprintf("%q is neither a file nor a folder", name))
	}
	return name, nil
}

// check compares the files with the manifest; without a manifest, it makes one of them.
func (b *Bundle) check(found []File, cut error) {
	m := &b.Manifest
	found = slices.DeleteFunc(found, func(f File) bool { return f.Path == ManifestName })
	var problems []string
	err := b.readManifest()
	if err != nil {
		problems = []string{err.Error()}
		head := checks.Header{APIVersion: checks.APIVersion, Kind: KindManifest, Status: checks.Unknown}
		*m = Manifest{Header: head, Files: found}
	}
	if cut != nil {
		problems = []string{"the archive is cut off or damaged: " + cut.Error() + "; read as far as it goes"}
	}
	delete(b.files, ManifestName)
	here, differs := map[string]File{}, map[string]bool{}
	for _, f := range found {
		here[f.Path], differs[f.Path] = f, true
	}
	for _, want := range m.Files {
		f, ok := here[want.Path]
		differs[want.Path] = !ok || f.Bytes != want.Bytes || f.SHA256 != want.SHA256
	}
	for _, path := range slices.Sorted(maps.Keys(differs)) {
		if differs[path] {
			problems = append(problems, path+" is not as it was packed")
		}
	}
	b.Intact = len(problems) == 0
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("%d more files are not as they were packed", more))
	}
	m.Problems = append(append([]string{}, m.Problems...), problems...) // [] in JSON where there are none
	m.Files, m.NotCollected = append([]File{}, m.Files...), append([]Missing{}, m.NotCollected...)
}

var errNoManifest = errors.New("the archive has no " + ManifestName + ": it was not written to its end")

// readManifest reads the manifest, if there is one.
func (b *Bundle) readManifest() error {
	f, err := b.File(ManifestName)
	if err != nil {
		return errNoManifest
	}
	return decodeManifest(f, &b.Manifest)
}

func decodeManifest(f io.Reader, m *Manifest) error {
	err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(m)
	if err == nil && (m.Kind != KindManifest || m.APIVersion != checks.APIVersion) {
		err = fmt.Errorf("it is a %.40q of %.40q", m.Kind, m.APIVersion)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ManifestName, err)
	}
	return nil
}

// ReadManifest reads the manifest of an archive, and keeps nothing else of it.
func ReadManifest(ctx context.Context, r io.Reader) (*Manifest, error) {
	packed := &counter{from: r}
	from, done, err := decompress(bufio.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer done()
	entries := tar.NewReader(&plain{ctx: ctx, packed: packed, from: from, most: maxUnpacked})
	for range maxEntries {
		head, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errNoManifest
		case err != nil:
			return nil, err
		case head.Name == ManifestName:
			m := &Manifest{}
			return m, decodeManifest(entries, m)
		}
	}
	return nil, refusal(fmt.Sprintf("it has more than %d entries", maxEntries))
}

// File returns a file of the archive; fs.ErrNotExist if there is none.
func (b *Bundle) File(path string) (io.Reader, error) {
	f, ok := b.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return io.NewSectionReader(b.tmp, f.offset, f.bytes), nil
}

// Names returns the paths of the files below a folder, sorted; of all files for an empty one. The manifest is not among
// them.
func (b *Bundle) Names(folder string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		if strings.HasPrefix(name, folder) {
			names = append(names, name)
		}
	}
	return names
}

// Close frees the temporary file.
func (b *Bundle) Close() error { return b.tmp.Close() }
