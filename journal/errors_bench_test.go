package journal_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// BenchmarkRecent reads the last minutes of a text log of 16 MiB, of which each tenth record is an error.
func BenchmarkRecent(b *testing.B) {
	root := b.TempDir()
	name := filepath.Join(root, "var/log/kubelet.log")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	w, now := bufio.NewWriter(f), time.Now()
	const records = 75_000
	for i := range records {
		at := now.Add(time.Duration(i-records) * 10 * time.Millisecond).Format("0102 15:04:05.000000")
		line := `I%s   42 kubelet.go:2709] "SyncLoop (PLEG): event for pod" pod="default/web-%d" ` +
			`event={"Type":"ContainerStarted","Data":"1ccb9ba24b618b24b6a0ef6c36b48e5f2695ae6c5b6850339b76ab0045e1eb89"}` + "\n"
		if i%10 == 0 {
			line = `E%s   42 pod_workers.go:1338] "Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for ` +
				`\"web5-node1_default(8905d8d4507dfa7209d17139b39dfbf3)\" with CreatePodSandboxError: \"rpc error: no\"" ` +
				`pod="default/web-%d"` + "\n"
		}
		fmt.Fprintf(w, line, at, i)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	info, _ := f.Stat()
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Recent(b.Context(), root, now.Add(-15*time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
}
