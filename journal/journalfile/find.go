package journalfile

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Find returns the journal files in a directory and in the directories directly below it: journald keeps one for each
// machine id, and one more for each namespace. The files that were written to last come last. It returns them also
// if a directory could not be read, with the error.
func Find(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	changed := map[string]time.Time{}
	var names []string
	var problems []error
	add := func(name string) {
		// journald adds the tilde to files that were not closed cleanly.
		if info, err := os.Stat(name); err == nil && strings.HasSuffix(strings.TrimSuffix(name, "~"), ".journal") {
			names, changed[name] = append(names, name), info.ModTime()
		}
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			add(name)
			continue // Stat follows links: /var/log/journal/<id> may be one
		}
		below, err := os.ReadDir(name)
		problems = append(problems, err)
		for _, b := range below {
			add(filepath.Join(name, b.Name()))
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(changed[a].Compare(changed[b]), cmp.Compare(a, b)) })
	return names, errors.Join(problems...)
}
