package textlog

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// maxFiles bounds the log files of one directory.
const maxFiles = 100_000

// A logFile is a file that may be a log, with its place among the files of its log.
type logFile struct {
	path  string
	group string // the name without the additions of rotation: files of one log have it in common
	date  string // that rotation put into the name; empty sorts last
	turn  int    // number that rotation has given: higher is older; -1 for the live file
}

// Files returns the log files below a directory, the files of one log from the oldest to the live one by the date or
// the number that rotation put into the name. Logs follow each other by name. A symbolic link that leads to a regular
// file is read once, under the name of its target if that is below the directory. FIFOs, devices and sockets are never
// opened. Files whose names show that they are not logs (journal files, databases, archives, programs) are left out.
func Files(dir string) ([]string, error) {
	var found []logFile
	var seen []os.FileInfo
	links := []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return fmt.Errorf("reading %s: %w", dir, err)
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir
		case err != nil || len(found) >= maxFiles || d.IsDir() || noLog.MatchString(strings.ToLower(path)):
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			links = append(links, path)
		case d.Type().IsRegular():
			if st, err := d.Info(); err == nil {
				found, seen = append(found, newLogFile(path)), append(seen, st)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, path := range links {
		st, err := os.Stat(path)
		same := func(o os.FileInfo) bool { return os.SameFile(o, st) }
		if err != nil || !st.Mode().IsRegular() || slices.ContainsFunc(seen, same) {
			continue
		}
		found, seen = append(found, newLogFile(path)), append(seen, st)
	}
	slices.SortFunc(found, func(a, b logFile) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.date, b.date), cmp.Compare(b.turn, a.turn),
			strings.Compare(a.path, b.path))
	})
	var paths []string
	for _, f := range found {
		paths = append(paths, f.path)
	}
	return paths, nil
}

// noLog matches the names of files that are not logs.
var noLog = lazyregexp.New(`/(?:\.[^/]*|sa/[^/]*|[bw]tmp[^/]*|(?:last|fail|tally)log|readme(?:\.md)?|index\.tsv)$` +
	`|\.(?:journal~?|db|sqlite3?|tar(?:\.\w+)?|tgz|zip|deb|rpm|so|exe|dll|png|jpg|pem|key|crt|ya?ml|go|html|swp|lock` +
	`|pid|sock|metrics)$`)

// Names that rotation makes, without the packer's suffix: syslog-20261120, 0.log.20261120-101112 or klog's
// kubelet.host.user.log.INFO.20261121-120000.123, and kubelet.log.2 or kubelet.2.log.
var (
	datedName  = lazyregexp.New(`^(.*)[.-](\d{8}(?:[-T_]?\d{6})?)(?:[.-]\d+)?$`)
	turnedName = lazyregexp.New(`^(.*)\.(\d{1,4})(\.log)?$`)
	packedName = lazyregexp.New(`\.(?:gz|xz|zstd?|bz2)$`)
)

func newLogFile(path string) logFile {
	f := logFile{path: path, date: "live", turn: -1}
	f.group = packedName.ReplaceAllString(path, "")
	if m := datedName.FindStringSubmatch(f.group); m != nil {
		f.group, f.date = m[1], m[2]
	} else if m := turnedName.FindStringSubmatch(f.group); m != nil {
		_, _ = fmt.Sscan(m[2], &f.turn) // digits
		f.group = m[1] + m[3]
	}
	return f
}
