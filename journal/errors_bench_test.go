package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// BenchmarkRecent reads the last minutes of a text log of 16 MiB, of which each tenth record is an error.
func BenchmarkRecent(b *testing.B) {
	const records = 75_000
	const failed = `"Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for ` +
		`\"web5-node1_default(8905d8d4507dfa7209d17139b39dfbf3)\" with CreatePodSandboxError: \"rpc error: no\""`
	const works = `"SyncLoop (PLEG): event for pod" event={"Type":"ContainerStarted","Data":` +
		`"1ccb9ba24b618b24b6a0ef6c36b48e5f2695ae6c5b6850339b76ab0045e1eb89"}`
	now := time.Now()
	var log strings.Builder
	for i := range records {
		level, text := "I", works
		if i%10 == 0 {
			level, text = "E", failed
		}
		at := now.Add(time.Duration(i-records) * 10 * time.Millisecond).Format("0102 15:04:05.000000")
		fmt.Fprintf(&log, "%s%s   42 kubelet.go:2709] %s pod=\"default/web-%d\"\n", level, at, text, i)
	}
	root := b.TempDir()
	name := filepath.Join(root, "var/log/kubelet.log")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(log.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Recent(b.Context(), root, now.Add(-15*time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
}
