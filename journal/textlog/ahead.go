package textlog

import (
	"errors"
	"io"
	"sync"
)

// aheadBlock and aheadBlocks bound what is unpacked ahead of the search, so that both run at once. Unpackers give a few
// kB at a time; blocks that are filled first make waking the other side rare.
const (
	aheadBlock  = 1 << 20
	aheadBlocks = 3
)

// An ahead reads in a goroutine of its own until it is closed.
type ahead struct {
	full  chan block
	empty chan []byte
	quit  chan struct{}
	done  sync.WaitGroup
	once  sync.Once
	under io.Closer

	rest []byte
	cur  block
}

// A block is what one turn has read.
type block struct {
	buf []byte
	n   int
	err error
}

func readAhead(r io.Reader, under io.Closer) *ahead {
	a := &ahead{full: make(chan block, aheadBlocks), empty: make(chan []byte, aheadBlocks), quit: make(chan struct{}), under: under}
	a.done.Go(func() { a.run(r) })
	return a
}

func (a *ahead) run(r io.Reader) {
	defer close(a.full)
	for made := 0; ; {
		var b block
		select {
		case b.buf = <-a.empty:
		default:
			if made < aheadBlocks { // a small log needs but one
				b.buf, made = make([]byte, aheadBlock), made+1
				break
			}
			select {
			case b.buf = <-a.empty:
			case <-a.quit:
				return
			}
		}
		b.fill(r)
		select {
		case a.full <- b:
		case <-a.quit:
			return
		}
		if b.err != nil {
			return
		}
	}
}

// fill reads until the block is full or the stream ends.
func (b *block) fill(r io.Reader) {
	for idle := 0; b.n < len(b.buf) && b.err == nil; {
		n, err := r.Read(b.buf[b.n:])
		b.n, b.err = b.n+n, err
		if n > 0 {
			idle = 0
		} else if idle++; idle == 100 && err == nil {
			b.err = io.ErrNoProgress
		}
	}
}

func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if a.cur.buf != nil {
			a.empty <- a.cur.buf
			a.cur.buf = nil
		}
		b, ok := <-a.full
		if !ok {
			return 0, errors.New("reading a closed stream")
		}
		a.cur, a.rest = b, b.buf[:b.n]
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the goroutine. It waits for a read of the stream below that is under way.
func (a *ahead) Close() error {
	a.once.Do(func() { close(a.quit) })
	a.done.Wait()
	return a.under.Close()
}
