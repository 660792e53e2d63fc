package journal

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

// exportAll returns what Export hands over, by log.
func exportAll(t *testing.T, root string, since time.Time, most int64) (logs map[string]string, err error) {
	t.Helper()
	logs = map[string]string{}
	err = Export(t.Context(), root, since, most, func(log, _ string, data []byte) { logs[log] += string(data) })
	delete(logs, ExportKmsg) // which not every user may read
	return logs, err
}

// TestExport reads a real journal and what Export makes of it: both hold the same signatures.
func TestExport(t *testing.T) {
	file := smallJournal(t)
	tree := testkit.NewTree(t)
	root := tree.Root
	must(t, os.Rename(file, tree.Path("var/log/journal/0123456789abcdef0123456789abcdef/system.journal")))
	want, err := Read(t.Context(), Options{Inputs: []Input{{Kind: Root, Path: root}}})
	must(t, err)
	logs, err := exportAll(t, root, time.Time{}, 1<<20)
	if err != nil && !strings.Contains(err.Error(), kmsgName) {
		t.Fatal(err)
	}
	var inputs []Input
	for name, text := range logs {
		if strings.Contains(text, "_CMDLINE=") || !strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s holds a command line, or does not end with an empty line", name)
		}
		inputs = append(inputs, Input{Kind: Stream, Path: name, Reader: strings.NewReader(text)})
	}
	got, err := Read(t.Context(), Options{Inputs: inputs})
	must(t, err)
	of := func(r *Report) string { return testkit.JSON(t, []any{r.Signatures, r.Episodes}, " ") }
	if diff := cmp.Diff(of(want), of(got)); diff != "" || len(got.Signatures) == 0 {
		t.Errorf("signatures and episodes (-journal +export):\n%s", diff)
	}
	late, _ := exportAll(t, root, want.To.Add(-time.Minute), 1<<20)
	if n := len(late[ExportKubelet]); n == 0 || n >= len(logs[ExportKubelet]) {
		t.Errorf("the last minute has %d of %d bytes", n, len(logs[ExportKubelet]))
	}
}

// TestExportText copies the end of text logs from a whole line on, and neither older nor compressed ones.
func TestExportText(t *testing.T) {
	root, now := testkit.NewTree(t), time.Now()
	root.Write("var/log/syslog", strings.Repeat("Nov 22 10:00:00 n kubelet[1]: a\n", 3),
		"var/log/kubelet.log", "I1122 b\nI1122 no line feed", "var/log/messages", "old\n",
		"var/log/auth.log", "secret\n", "var/log/syslog.1.gz", "\x1f\x8b\x08\x00packed")
	old := now.Add(-2 * time.Hour)
	must(t, os.Chtimes(root.Path("var/log/messages"), old, old))
	got, err := exportAll(t, root.Root, now.Add(-time.Hour), 40)
	want := map[string]string{
		"syslog.log": "Nov 22 10:00:00 n kubelet[1]: a\n", "kubelet.log": "I1122 b\nI1122 no line feed",
	}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(fmt.Sprint(err), "syslog.1.gz: compressed") {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
