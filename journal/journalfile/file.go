package journalfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// A File is one open journal file. It may be used by one goroutine at a time; different files by different ones.
type File struct {
	path   string
	fd     *os.File
	img    *image
	mapped bool
	empty  bool  // no header: nothing was ever written, or all of it was lost
	size   int64 // of the file when it was opened or last refreshed
	unpack unpacker
}

// Open opens the journal file at path. It never blocks: a FIFO, a device or a directory is ErrNotJournal. A file
// without a single byte but zeros opens as an empty one.
func Open(path string) (*File, error) {
	fd, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, fd: fd}
	if err := f.mapFile(); err != nil {
		_ = fd.Close() // the first error says more
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return f, nil
}

// openRegular opens a regular file for reading, without leaving a trace on it where that is allowed.
func openRegular(path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	n, err := unix.Open(path, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // only the owner and root may leave the access time alone
		n, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	fd := os.NewFile(uintptr(n), path)
	info, err := fd.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("opening %s: %w: it is no regular file", path, ErrNotJournal)
	}
	if err != nil {
		_ = fd.Close() // the first error says more
		return nil, err
	}
	return fd, nil
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
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) { // file systems that cannot share pages
		b, err = unix.Mmap(int(f.fd.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_PRIVATE)
	}
	if err != nil {
		return fmt.Errorf("mapping: %w", err)
	}
	old := f.img
	if off, faulted := protect(b, func() { err = f.load(b) }); faulted {
		err = fmt.Errorf("reading offset %d: %w", off, ErrFault)
	}
	if err != nil {
		_ = unix.Munmap(b) // a map that exists can be removed
		return err
	}
	if f.mapped && old != nil {
		_ = unix.Munmap(old.b[:cap(old.b)])
	}
	f.mapped = true
	return nil
}

// load takes b as the content of the file.
func (f *File) load(b []byte) error {
	h, err := parseHeader(b)
	if errors.Is(err, ErrNotJournal) && allZero(b) {
		f.empty, f.img = true, newImage(b, header{})
		return nil
	}
	if err != nil {
		return err
	}
	f.empty, f.img = false, newImage(b, h)
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if [8]byte(b) != [8]byte{} {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Close releases the map. Entries that were handed out are invalid from then on.
func (f *File) Close() error {
	if f.fd == nil {
		return nil
	}
	if f.mapped {
		_ = unix.Munmap(f.img.b[:cap(f.img.b)])
		f.mapped = false
	}
	f.img = newImage(nil, header{})
	f.empty = true
	fd := f.fd
	f.fd = nil
	return fd.Close()
}

// Refresh reads the header anew and maps what was added to the file. It reports whether there are more entries than
// before.
func (f *File) Refresh() (bool, error) {
	if f.fd == nil {
		return false, fs.ErrClosed
	}
	info, err := f.fd.Stat()
	if err != nil {
		return false, err
	}
	before := f.img.head.entries
	if info.Size() != f.size || !f.mapped {
		err = f.mapFile()
	} else if off, faulted := f.protect(func() { err = f.load(f.img.b) }); faulted {
		err = fmt.Errorf("at offset %d: %w", off, ErrFault)
	}
	if err != nil {
		return false, fmt.Errorf("reading %s again: %w", f.path, err)
	}
	return f.img.head.entries != before, nil
}
