package textlog

import (
	"errors"
	"io"
	"sync"
)

// aheadBlock and aheadBlocks bound what is unpacked ahead of the search, so that both run at once.
const (
	aheadBlock  = 256 << 10
	aheadBlocks = 4
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
	for range aheadBlocks {
		a.empty <- make([]byte, aheadBlock)
	}
	a.done.Go(func() { a.run(r) })
	return a
}

func (a *ahead) run(r io.Reader) {
	defer close(a.full)
	for {
		var b block
		select {
		case b.buf = <-a.empty:
		case <-a.quit:
			return
		}
		for tries := 0; b.n == 0 && b.err == nil; tries++ {
			if b.n, b.err = r.Read(b.buf); tries == 100 {
				b.err = io.ErrNoProgress
			}
		}
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

func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if a.cur.buf != nil {
			a.empty <- a.cur.buf
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
