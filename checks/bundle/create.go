package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// DefaultName returns the name of an archive of a host: kdiag-node-7-20261123T031200Z.tar.zst.
func DefaultName(host string, at time.Time, format string) string {
	host = cmp.Or(strings.Trim(Plain(host), "-."), "node")
	ending := map[string]string{Tgz: ".tgz"}[format]
	return "kdiag-" + host[:min(len(host), 64)] + "-" + at.UTC().Format("20060102T150405Z") + cmp.Or(ending, ".tar.zst")
}

var special = lazyregexp.New(`[^A-Za-z0-9.-]`)

// Plain returns a name with a dash for each character but letters, digits, dots and dashes, which mean the same in file
// names and in each part of a URL.
func Plain(name string) string { return special.ReplaceAllString(name, "-") }

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
