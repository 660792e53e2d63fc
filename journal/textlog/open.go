package textlog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// zstdWindow is how much a zstd stream may ask to keep in memory.
const zstdWindow = 128 << 20

// errUTF16 is the error for text as PowerShell writes it.
var errUTF16 = errors.New("it is UTF-16 text; iconv -f UTF-16 -t UTF-8 converts it")

// plain marks a reader that must not be unpacked.
type plain struct{ io.Reader }

// Unpack returns the text in r, and how it was compressed: gzip, xz, zstd, bzip2, or empty. Errors of the returned
// reader name the compression; a panic of an unpacker becomes one. Close ends the goroutine that unpacks, after a read
// of r that is in progress; it does not close r.
func Unpack(r io.Reader) (io.ReadCloser, string, error) {
	if p, ok := r.(plain); ok {
		return io.NopCloser(p.Reader), "", nil
	}
	br := bufio.NewReaderSize(r, 256<<10)
	head, err := br.Peek(6)
	if err != nil && err != io.EOF {
		return nil, "", err
	}
	var packed io.ReadCloser
	compression := ""
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		compression = "gzip"
		packed, err = gzip.NewReader(br)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		compression = "xz"
		var x *xz.Reader
		// The dictionary is as large as the file asks for; a larger DictCap would be allocated for every file.
		if x, err = (xz.ReaderConfig{DictCap: lzma.MinDictCap}).NewReader(br); err == nil {
			packed = io.NopCloser(x)
		}
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || skippable(head):
		compression = "zstd"
		var z *zstd.Decoder
		z, err = zstd.NewReader(br,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderLowmem(true))
		if err == nil {
			packed = z.IOReadCloser()
		}
	case bytes.HasPrefix(head, []byte("BZh")) && len(head) > 3 && head[3] >= '1' && head[3] <= '9':
		compression = "bzip2"
		packed = io.NopCloser(bzip2.NewReader(br))
	default:
		if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
			return nil, "", errUTF16
		}
		if bytes.HasPrefix(head, []byte("\ufeff")) { // a byte order mark
			_, _ = br.Discard(len("\ufeff")) // was peeked at
		}
		return io.NopCloser(br), "", nil
	}
	if err != nil {
		return nil, compression, fmt.Errorf("reading %s header: %w", compression, err)
	}
	return unpackAhead(packed, compression), compression, nil
}

// skippable reports whether a zstd stream begins with a frame that carries no data.
func skippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}

// guarded reads from an unpacker, which may panic on hostile input, and names it in errors.
type guarded struct {
	r    io.Reader
	name string
}

func (g *guarded) Read(p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, fmt.Errorf("damaged %s data: %v", g.name, v)
		}
	}()
	n, err = g.r.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("damaged %s data: %w", g.name, err)
	}
	return n, err
}

// ahead is how many bytes are unpacked while earlier ones are searched.
const ahead = 256 << 10

// An aheadReader reads what a goroutine unpacks.
type aheadReader struct {
	*io.PipeReader
	done   sync.WaitGroup
	packed io.Closer
}

// unpackAhead unpacks in a goroutine, so that unpacking and searching run at the same time.
func unpackAhead(packed io.ReadCloser, name string) *aheadReader {
	r, w := io.Pipe()
	a := &aheadReader{PipeReader: r, packed: packed}
	a.done.Go(func() {
		b := bufio.NewWriterSize(w, ahead)
		_, err := b.ReadFrom(&guarded{packed, name})
		if flushed := b.Flush(); err == nil {
			err = flushed
		}
		_ = w.CloseWithError(err) // never fails
	})
	return a
}

// Close ends the goroutine. It waits for a read of the stream below that is in progress.
func (a *aheadReader) Close() error {
	_ = a.PipeReader.Close() // never fails
	a.done.Wait()
	return a.packed.Close()
}
