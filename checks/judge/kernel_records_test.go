package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/journal/signature"
)

// TestKernelRecords tries testdata/kernel_records.txtar, which describes itself: each pattern that others look for has
// a signature, and kdiag journal says what it means for the node.
func TestKernelRecords(t *testing.T) {
	file, err := txtar.ParseFile("testdata/kernel_records.txtar")
	if err != nil {
		t.Fatal(err)
	}
	supports := map[string][]string{}
	for _, s := range signature.Catalogue() {
		supports[s.Code] = s.Implies
	}
	for _, row := range file.Files {
		t.Run(row.Name, func(t *testing.T) {
			var code, cause, how string
			lines := strings.Split(string(row.Data), "\n")
			sender, record, _ := strings.Cut(lines[2], ": ")
			if _, err := fmt.Sscan(lines[1], &code, &cause, &how); err != nil ||
				!regexp.MustCompile(lines[0]).MatchString(lines[2]) {
				t.Fatalf("%v, or the record is not one of the pattern", err)
			}
			var log strings.Builder
			for i := range 3 {
				fmt.Fprintf(&log, "%d@%s %s\n", 10800+i, sender, record)
			}
			r := readLog(t, log.String())
			var got []string
			for _, s := range r.Signatures {
				got = append(got, s.Code)
			}
			if code != "-" && !slices.Contains(got, code) || code == "-" && len(got) > 0 {
				t.Errorf("signatures %v", got)
			}
			if all := supports[code]; cause != "-" && !slices.Contains(all, cause) || cause == "-" && len(all) > 0 {
				t.Errorf("%s supports %v", code, all)
			}
			named := len(r.Findings) > 0
			if named != (how == "named") || named && r.Findings[0].Cause != strings.TrimPrefix(cause, "-") {
				t.Errorf("%s: findings %+v", r.Verdict, r.Findings)
			}
		})
	}
}
