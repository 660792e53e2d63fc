package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/safefile"
)

// DefaultName returns the name of an archive of a host: kdiag-node-7-20261123T031200Z.tar.zst.
func DefaultName(host string, at time.Time, format string) string {
	host = strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, host), "-.")
	if host == "" {
		host = "node"
	}
	ending := ".tar.zst"
	if format == Tgz {
		ending = ".tgz"
	}
	return "kdiag-" + host[:min(len(host), 64)] + "-" + at.UTC().Format("20060102T150405Z") + ending
}

// Create creates a file that only its owner may read. What is there is left alone, a symbolic link too, wherever it
// leads.
func Create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already", path)
	}
	return f, err
}

// OpenFile opens an archive for Open: a regular file, not through a symbolic link.
func OpenFile(path string) (*os.File, error) {
	f, err := safefile.Open(path, unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%s is a symbolic link", path)
	case errors.Is(err, safefile.ErrNotRegular):
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return f, err
}
