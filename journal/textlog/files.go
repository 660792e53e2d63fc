package textlog

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxFiles bounds the log files of one directory.
const maxFiles = 100_000

// A logFile is a file that may be a log, with what orders it in time.
type logFile struct {
	path  string
	group string    // the name without what rotation adds: files of one log have it in common
	when  time.Time // by its first stamp if that has a year and a zone, else by a date in its name
	turn  int       // number that rotation has given: higher is older; -1 for the live file
}

// Files returns the log files below a directory, those of one log in the order of time: by the first stamp in them
// where both have one with year and zone, else by the date that rotation put into the name, else by the number
// of the rotation. Logs follow each other by name. A symbolic link that leads to a regular file
// is read once, under the name of its target if that is below the directory. FIFOs, devices and sockets are never
// opened. Files whose names show that they are not logs (journal files, databases, archives, programs) are left out,
// and so are the files of klog for WARNING and above beside one for INFO, which has all their lines.
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
		case err != nil || len(found) >= maxFiles || !plausible(path, d):
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
	groups := map[string][]logFile{}
	for _, f := range withoutCopies(found) {
		groups[f.group] = append(groups[f.group], f)
	}
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		for _, f := range sortLogs(groups[name]) {
			paths = append(paths, f.path)
		}
	}
	return paths, nil
}

// withoutCopies leaves out klog's files of higher severities where there is one for INFO, which has all their lines.
func withoutCopies(found []logFile) []logFile {
	all := map[string]bool{}
	for _, f := range found {
		if log, ok := strings.CutSuffix(f.group, ".log.INFO"); ok {
			all[log] = true
		}
	}
	return slices.DeleteFunc(found, func(f logFile) bool {
		for _, severity := range [...]string{".log.WARNING", ".log.ERROR", ".log.FATAL"} {
			if log, ok := strings.CutSuffix(f.group, severity); ok && all[log] {
				return true
			}
		}
		return false
	})
}

// sortLogs puts the files of one log in order. One rule is used for all of them, so that the order is one.
func sortLogs(files []logFile) []logFile {
	dated := !slices.ContainsFunc(files, func(f logFile) bool { return f.when.IsZero() && f.turn >= 0 })
	slices.SortStableFunc(files, func(a, b logFile) int {
		when := 0
		if dated && !a.when.IsZero() && !b.when.IsZero() { // the live file may have no date
			when = a.when.Compare(b.when)
		}
		return cmp.Or(when, cmp.Compare(b.turn, a.turn), strings.Compare(a.path, b.path))
	})
	return files
}

// plausible reports whether a file may be a log by its name.
func plausible(path string, d fs.DirEntry) bool {
	name := strings.ToLower(d.Name())
	if d.IsDir() || strings.HasPrefix(name, ".") {
		return false
	}
	for _, end := range [...]string{
		".journal", ".journal~", ".db", ".sqlite", ".sqlite3", ".tar", ".tgz", ".zip", ".deb", ".rpm", ".so", ".exe",
		".dll", ".png", ".jpg",
		".pem", ".key", ".crt", ".yaml", ".yml", ".go", ".html", ".swp", ".lock", ".pid", ".sock", ".tar.gz", ".tar.xz",
		".tar.zst", ".tar.bz2", ".metrics",
	} {
		if strings.HasSuffix(name, end) {
			return false
		}
	}
	switch name {
	case "wtmp", "btmp", "lastlog", "faillog", "tallylog", "readme", "readme.md", "index.tsv":
		return false
	}
	sysstat := filepath.Base(filepath.Dir(path)) == "sa"
	return !strings.HasPrefix(name, "wtmp-") && !strings.HasPrefix(name, "btmp-") && !sysstat
}

// Names that rotation makes, without the packer's suffix.
var (
	datedName  = regexp.MustCompile(`^(.*)[.-](\d{8})(?:[-T_]?(\d{6}))?(?:[.-](\d+))?$`)
	turnedName = regexp.MustCompile(`^(.*)\.(\d{1,4})(\.log)?$`)
)

// rotation takes a name such as kubelet.log.2.gz, syslog-20261120, 0.log.20261120-101112 or klog's
// kubelet.host.user.log.INFO.20261121-120000.123 apart.
func rotation(name string) (group string, turn int, when time.Time) {
	for _, end := range [...]string{".gz", ".xz", ".zst", ".zstd", ".bz2"} {
		name = strings.TrimSuffix(name, end)
	}
	if m := datedName.FindStringSubmatch(name); m != nil {
		when, err := time.Parse("20060102150405", m[2]+(m[3] + "000000")[:6])
		if err == nil {
			return m[1], 1, when
		}
	}
	if m := turnedName.FindStringSubmatch(name); m != nil {
		_, _ = fmt.Sscan(m[2], &turn)
		return m[1] + m[3], turn + 1, time.Time{}
	}
	return name, -1, time.Time{}
}

func newLogFile(path string) logFile {
	f := logFile{path: path}
	group, turn, when := rotation(filepath.Base(path))
	f.group, f.turn, f.when = filepath.Join(filepath.Dir(path), group), turn, when
	if first := firstInstant(path); !first.IsZero() {
		f.when = first
	}
	return f
}

// firstInstant returns the first time with year and zone near the beginning of a file.
func firstInstant(path string) time.Time {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	r, _, err := unpack(f)
	if err != nil {
		return time.Time{}
	}
	defer r.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(r, head)
	for line := range bytes.SplitSeq(head[:n], []byte("\n")) {
		p := &peeling{Record: &Record{}}
		p.peel(line)
		for _, s := range [...]klog.Stamp{p.Outer, p.Inner} {
			if t, ok := s.Instant(); ok {
				return t
			}
		}
	}
	return time.Time{}
}
