package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestKernelRecords tries testdata/kernel_records.txtar, which describes itself: each pattern that others look for has
// a signature, and kdiag journal says what it means for the node.
func TestKernelRecords(t *testing.T) {
	file, err := txtar.ParseFile("testdata/kernel_records.txtar")
	must(t, err)
	supports := map[string][]string{}
	for _, s := range signature.Catalogue() {
		supports[s.Code] = s.Implies
	}
	for _, row := range file.Files {
		var code, cause, how string
		lines := strings.Split(string(row.Data), "\n")
		sender, record, _ := strings.Cut(lines[2], ": ")
		_, err := fmt.Sscan(lines[1], &code, &cause, &how)
		if err != nil || !regexp.MustCompile(lines[0]).MatchString(lines[2]) {
			t.Errorf("%s: %v, or the record is not one of the pattern", row.Name, err)
		}
		r := readLog(t, fmt.Sprintf("every 3 1 10800@%s %s", sender, record))
		got := slices.ContainsFunc(r.Signatures, func(s journal.Count) bool { return s.Code == code || code == "-" })
		all, named := supports[code], len(r.Findings) > 0
		if got != (code != "-") || slices.Contains(all, cause) != (cause != "-") || cause == "-" && len(all) > 0 ||
			named != (how == "named") || named && r.Findings[0].Cause != strings.TrimPrefix(cause, "-") {
			t.Errorf("%s: signatures %+v, of which %s supports %v; findings %+v", row.Name, r.Signatures, code, all, r.Findings)
		}
	}
}
