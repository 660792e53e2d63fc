package journalfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the journal files in a directory and in the directories directly below it: journald keeps one for each
// machine id, and one more for each namespace. The order is by the time of the first entry. It returns what it found
// also if a directory could not be read, with the error.
func Find(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	var problems []error
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if isJournalName(name) {
			names = append(names, name)
			continue
		}
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			continue // Stat follows links: /var/log/journal/<id> may be one
		}
		below, err := os.ReadDir(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, b := range below {
			if isJournalName(b.Name()) {
				names = append(names, filepath.Join(name, b.Name()))
			}
		}
	}
	return byTime(names), errors.Join(problems...)
}

// isJournalName reports whether a file is called like a journal. journald adds the tilde to files that were not closed
// cleanly.
func isJournalName(name string) bool {
	return strings.HasSuffix(name, ".journal") || strings.HasSuffix(name, ".journal~")
}

// byTime sorts by the time of the first entry, then by name. Files without one come last.
func byTime(names []string) []string {
	type dated struct {
		name string
		head uint64
	}
	list := make([]dated, 0, len(names))
	for _, n := range names {
		list = append(list, dated{n, headTime(n)})
	}
	slices.SortFunc(list, func(a, b dated) int {
		return cmp.Or(cmp.Compare(a.head, b.head), cmp.Compare(a.name, b.name))
	})
	out := make([]string, 0, len(list))
	for _, d := range list {
		out = append(out, d.name)
	}
	return out
}

// headTime reads the time of the first entry from the header of a file, without mapping it.
func headTime(name string) uint64 {
	const never = 1<<64 - 1
	fd, err := openRegular(name)
	if err != nil {
		return never
	}
	defer fd.Close()
	b := make([]byte, 272)
	n, err := fd.ReadAt(b, 0)
	if n < headerMin || err != nil && errors.Is(err, fs.ErrClosed) {
		return never
	}
	h, err := parseHeader(b[:n])
	if err != nil || h.headRealtime == 0 {
		return never
	}
	return h.headRealtime
}
