// Package safefile opens files in whose place somebody else may have put a FIFO, a device or a folder.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is the error of a path that leads to something else. It reads as the rest of a sentence that names the
// path.
var ErrNotRegular = errors.New("is not a regular file")

// Flags opens a file for reading without waiting for the writer of a FIFO, and never as the terminal of this process.
const Flags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// Open opens a regular file for reading. Flags are further ones, such as O_NOFOLLOW.
func Open(path string, flags int) (*os.File, error) {
	return Regular(os.OpenFile(path, Flags|flags, 0))
}

// Regular returns a file that was opened with Flags, if it is a regular one. Else it closes it.
func Regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		_ = f.Close() // was only opened
		return nil, err
	}
	return f, nil
}

// ReadAll reads and closes a file of at most so many bytes. With an error of the disk it returns the bytes before it.
func ReadAll(f *os.File, most int64) ([]byte, error) {
	defer f.Close() // was only read
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("is larger than %d bytes", most)
	}
	return data, err
}
