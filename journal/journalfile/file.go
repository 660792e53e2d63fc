package journalfile

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/safefile"
)

// A File is one open journal file. It may be used by one goroutine at a time; different files by different ones.
type File struct {
	path   string
	fd     *os.File
	img    *image
	mapped bool
	empty  bool  // no header: nothing was ever written, or all of it was lost
	size   int64 // of the file when it was opened
	unpack unpacker
}

// Open opens the journal file at path. It never blocks: a FIFO, a device or a directory is safefile.ErrNotRegular. A
// file without a single byte but zeros opens as an empty one.
func Open(path string) (*File, error) {
	fd, err := safefile.Open(path, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	f := &File{path: path, fd: fd}
	if err := f.mapFile(); err != nil {
		_ = fd.Close() // the first error counts
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return f, nil
}

// mapFile maps the file in its present size and reads the header.
func (f *File) mapFile() error {
	info, err := f.fd.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	if f.size == 0 {
		f.empty, f.img = true, newImage(nil, header{})
		return nil
	}
	if f.size > math.MaxInt {
		return fmt.Errorf("%d bytes are too many to map", f.size)
	}
	b, err := unix.Mmap(int(f.fd.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping: %w", err)
	}
	if off, faulted := protect(b, func() { err = f.load(b) }); faulted {
		err = fmt.Errorf("reading offset %d: %w", off, ErrFault)
	}
	if err != nil {
		_ = unix.Munmap(b) // a map that exists can be removed
		return err
	}
	f.mapped = true
	return nil
}

// load takes b as the content of the file.
func (f *File) load(b []byte) error {
	h, err := parseHeader(b)
	if errors.Is(err, ErrNotJournal) && zeros(b) {
		f.empty, f.img = true, newImage(b, header{})
		return nil
	}
	if err != nil {
		return err
	}
	f.img = newImage(b, h)
	return nil
}

// FileID returns the 16 bytes that identify the file under any name; empty for an empty file.
func (f *File) FileID() string { return f.img.head.fileID }

// Close releases the map. Entries that were handed out are invalid from then on.
func (f *File) Close() error {
	if f.mapped {
		_ = unix.Munmap(f.img.b[:cap(f.img.b)])
	}
	f.mapped, f.empty, f.img = false, true, newImage(nil, header{})
	return f.fd.Close()
}

// protect runs fn and survives a fault in the map: another process cut the file, or the disk could not deliver a
// page. It returns the offset of the byte that could not be read. Any other panic goes its way.
//
// The setting is per goroutine, so every way into the map comes through here; a caller's work on the bytes of an
// entry inside its callback is covered too.
func (f *File) protect(fn func()) (off uint64, faulted bool) {
	if !f.mapped {
		fn()
		return 0, false
	}
	return protect(f.img.b, fn)
}

func protect(b []byte, fn func()) (off uint64, faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr }) // runtime.Error of a memory fault; see debug.SetPanicOnFault
		if !ok {
			panic(r)
		}
		base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		if fault.Addr() < base || fault.Addr()-base >= uintptr(cap(b)) {
			panic(r)
		}
		off, faulted = uint64(fault.Addr()-base), true
	}()
	fn()
	return 0, false
}

// releaseStep is how much of a file a search leaves mapped behind it, so that a large file does not count as memory
// of the process in full. The pages stay in the page cache.
const releaseStep = 8 << 20

// release gives back the mapped pages between from and to. They come back by themselves when they are read again.
func (f *File) release(from, to uint64) {
	page := uint64(os.Getpagesize())
	from, to = (from+page-1)&^(page-1), min(to, f.img.size())&^(page-1)
	if f.mapped && from < to {
		_ = unix.Madvise(f.img.b[from:to], unix.MADV_DONTNEED) // advice
	}
}
