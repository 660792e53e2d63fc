package journalfile

import (
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// protect runs fn and survives a fault in the map: another process cut the file, or the disk could not deliver a
// page. It returns the offset of the byte that could not be read. Any other panic goes its way.
//
// The setting is per goroutine, so every way into the map comes through here; what a caller does with the bytes of an
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

// shrink takes off the image what the file no longer has after a fault at off, and returns what is lost. If the file is
// still as long as that, one page could not be read.
func (f *File) shrink(off uint64) Range {
	had := len(f.img.b)
	if info, err := f.fd.Stat(); err == nil && uint64(info.Size()) <= off {
		n := min(int(info.Size()), had)
		f.img.b = f.img.b[:n]
		return Range{Offset: int64(n), Bytes: int64(had - n), Why: whyShrunk}
	}
	page := uint64(os.Getpagesize())
	return Range{Offset: int64(off &^ (page - 1)), Bytes: int64(page), Why: whyFault}
}

// releaseStep is how much of a file a search leaves mapped behind it, so that a large file does not count as memory
// of the process in full. The pages stay in the page cache.
const releaseStep = 16 << 20

// release gives back the mapped pages between from and to. They come back by themselves when they are read again.
func (f *File) release(from, to uint64) {
	page := uint64(os.Getpagesize())
	from, to = (from+page-1)&^(page-1), min(to, f.img.size())&^(page-1)
	if f.mapped && from < to {
		_ = unix.Madvise(f.img.b[from:to], unix.MADV_DONTNEED) // advice
	}
}
