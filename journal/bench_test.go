package journal_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
)

// BenchmarkJournal holds reading a journal with all signatures against journalctl's ways to one of them, on the journal
// files below $KDIAG_JOURNAL, with the program $KDIAG as a whole process and within this one.
func BenchmarkJournal(b *testing.B) {
	dir := os.Getenv("KDIAG_JOURNAL")
	if dir == "" {
		b.Skip("KDIAG_JOURNAL names no directory of journal files")
	}
	b.Run("journalctl -o cat | grep -c", func(b *testing.B) {
		process(b, "sh", "-c", `journalctl -D "$0" -u kubelet.service -o cat | grep -c "PLEG is not healthy"`, dir)
	})
	b.Run("journalctl --grep", func(b *testing.B) {
		process(b, "journalctl", "-D", dir, "-u", "kubelet", "--grep", "PLEG is not healthy", "-o", "cat")
	})
	b.Run("kdiag journal", func(b *testing.B) {
		if os.Getenv("KDIAG") == "" {
			b.Skip("KDIAG names no program")
		}
		process(b, os.Getenv("KDIAG"), "journal", "--directory", dir, "-o", "json")
	})
	b.Run("in process", func(b *testing.B) {
		for b.Loop() {
			r, err := journal.Read(b.Context(), journal.Options{Inputs: []journal.Input{{Path: dir}}})
			testkit.Must(b, err)
			b.ReportMetric(float64(r.Lines), "records")
		}
	})
}

// process times a command as a whole, with its processor time and the memory that is its own.
func process(b *testing.B, name string, args ...string) {
	b.Helper()
	var cpu time.Duration
	var rss int64
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), name, args...)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 { // kdiag's 1 is an answer
			b.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
		if out.Len() == 0 {
			b.Fatal("no output")
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			rss = max(rss, int64(u.Maxrss)) // 32 bits where a word has them
		}
	}
	b.ReportMetric(cpu.Seconds()*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(rss)/1024, "peak-MiB")
}
