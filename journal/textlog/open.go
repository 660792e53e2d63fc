package textlog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// zstdWindow is how much a zstd stream may ask to keep in memory.
const zstdWindow = 128 << 20

// plain marks a reader that must not be unpacked.
type plain struct{ io.Reader }

// unpack returns the text in r, and how it was compressed: gzip, xz, zstd, bzip2, or empty.
func unpack(r io.Reader) (io.ReadCloser, string, error) {
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
		return io.NopCloser(decodeUTF16(br)), "", nil
	}
	if err != nil {
		return nil, compression, fmt.Errorf("reading %s header: %w", compression, err)
	}
	a := readAhead(&guarded{packed, compression}, packed)
	return struct {
		io.Reader
		io.Closer
	}{decodeUTF16(bufio.NewReaderSize(a, 4<<10)), a}, compression, nil
}

// decodeUTF16 returns the text of br in UTF-8, without a byte order mark. Redirections on Windows write UTF-16.
func decodeUTF16(br *bufio.Reader) io.Reader {
	head, _ := br.Peek(3)
	for _, mark := range [...]string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(head, []byte(mark)) {
			return transform.NewReader(br, unicode.BOMOverride(transform.Nop))
		}
	}
	return br
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

// aheadBlock and aheadBlocks bound what is unpacked ahead of the search, so that both run at the same time. Unpackers
// return a few kB at a time; with full blocks the goroutines wake each other rarely.
const (
	aheadBlock  = 1 << 20
	aheadBlocks = 3
)

// An ahead reads in a goroutine until it is closed.
type ahead struct {
	full  chan block // has room for all blocks, so sending never waits
	empty chan []byte
	done  sync.WaitGroup
	under io.Closer
	cur   block
	rest  []byte // of cur
}

// A block is the result of one read.
type block struct {
	buf []byte
	err error
}

func readAhead(r io.Reader, under io.Closer) *ahead {
	a := &ahead{full: make(chan block, aheadBlocks), empty: make(chan []byte, aheadBlocks), under: under}
	for range aheadBlocks {
		a.empty <- nil // allocated when it is needed: a small log needs only one
	}
	a.done.Go(func() {
		defer close(a.full)
		for buf := range a.empty {
			if buf == nil {
				buf = make([]byte, aheadBlock)
			}
			n, err := io.ReadFull(r, buf[:aheadBlock])
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			a.full <- block{buf[:n], err}
			if err != nil {
				return
			}
		}
	})
	return a
}

func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if a.cur.buf != nil {
			a.empty <- a.cur.buf
		}
		var ok bool
		if a.cur, ok = <-a.full; !ok {
			return 0, io.ErrClosedPipe
		}
		a.rest = a.cur.buf
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the goroutine. It waits for a read of the stream below that is in progress.
func (a *ahead) Close() error {
	close(a.empty)
	a.done.Wait()
	return a.under.Close()
}
