package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

const unhealthyLine = `E1121 00:52:12.490297   30256 kubelet.go:2661] "Skipping pod synchronization" err="` +
	`PLEG is not healthy: pleg was last seen active 3m3.949212651s ago; threshold is 3m0s"` + "\n"

const startLine = `I1121 00:41:09.113452    1042 server.go:527] "Attempting to start" x="y"` + "\n"

// put writes a file into a new folder.
func put(t testing.TB, name, text string) string {
	t.Helper()
	dir := testkit.NewTree(t)
	dir.Write(name, text)
	return dir.Path(name)
}

// readText reads a text with some options.
func readText(t testing.TB, text string, opts Options) *Report {
	t.Helper()
	opts.Now, opts.Local, opts.Inputs = now, time.UTC, []Input{{Kind: Stream, Reader: strings.NewReader(text)}}
	r, err := Read(t.Context(), opts)
	must(t, err)
	return r
}

func TestReadRefuses(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	for _, tt := range []struct {
		name  string
		input Input
		want  error
	}{
		{"missing", Input{Path: "/nonexistent/kubelet.log"}, fs.ErrNotExist},
		{"missing root", Input{Kind: Root, Path: "/nonexistent"}, fs.ErrNotExist},
		{"empty file", Input{Path: put(t, "a.log", "")}, ErrEmpty},
		{"binary", Input{Path: put(t, "a.log", strings.Repeat("\x00\x01\x02\x7fELF\x00\x00", 999))}, ErrNotLog},
		{"UTF-16", Input{Path: put(t, "a.log", "\xff\xfe"+strings.ReplaceAll(startLine, "", "\x00"))}, nil},
		{"a program", Input{Path: "/proc/self/exe"}, ErrNotLog}, // it has the texts of all signatures
		{"a note with one record", Input{Path: put(t, "a.log", strings.Repeat("a note\n", 9)+startLine)}, ErrNotLog},
		{"glob", Input{Kind: Glob, Path: "/nonexistent/*.log"}, ErrNoMatch},
		{"directory without logs", Input{Path: t.TempDir()}, ErrNoLogs},
		{"root without logs", Input{Kind: Root, Path: t.TempDir()}, ErrNoJournal},
		{"a pipe that nobody writes to", Input{Path: pipe}, nil},
	} {
		r, err := Read(t.Context(), Options{Inputs: []Input{tt.input}, Now: now})
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if r == nil || len(r.Sources) != 1 || r.Sources[0].Problem == "" {
			t.Errorf("%s: the report must name the source and its problem", tt.name)
		}
	}
}

// TestReadRoot reads the text logs of a node that has no journal, and RKE2's own.
func TestReadRoot(t *testing.T) {
	messages := filepath.Dir(put(t, "var/log/messages", unhealthyLine))
	must(t, os.WriteFile(filepath.Join(messages, "apt.log"), []byte(unhealthyLine), 0o600))
	for _, root := range []string{
		strings.TrimSuffix(messages, "var/log"), strings.TrimSuffix(put(t, ownLog, unhealthyLine), ownLog),
	} {
		if r, err := Recent(t.Context(), root, time.Time{}); err != nil || lines(r) != 1 {
			t.Errorf("%d lines, want that of one file; %v", lines(r), err)
		}
	}
}

// TestReadJournalRange reads the files of the time asked for, and names a unit that never logged.
func TestReadJournalRange(t *testing.T) {
	name := smallJournal(t)
	flap := time.Date(2023, 7, 3, 12, 2, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		opts     Options
		episodes int
		note     string
		want     error
	}{
		{"one flap", Options{Since: flap, Until: flap.Add(time.Minute)}, 1, "", nil},
		{"a year later", Options{Since: flap.AddDate(1, 0, 0)}, 0, "nothing that was read", nil},
		{"by unit", Options{Units: []string{"kubelet"}}, 3, "", nil},
		{"by a unit that did not log", Options{Units: []string{"crio"}}, 0, "no record of interest is of the units", nil},
		{"the last boot", Options{Boot: "0"}, 3, "", nil},
		{"a boot that is not there", Options{Boot: "-7"}, 0, "", ErrNoBoot},
	} {
		tt.opts.Now, tt.opts.Inputs = now, []Input{{Path: name}}
		r, err := Read(t.Context(), tt.opts)
		if !errors.Is(err, tt.want) || len(r.Episodes) != tt.episodes ||
			!strings.Contains(strings.Join(r.Notes, "\n"), tt.note) {
			t.Errorf("%s: %d episodes, want %d; %v; notes %q", tt.name, len(r.Episodes), tt.episodes, err, r.Notes)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(unhealthyLine))
	f.Add([]byte("Jul 03 19:59:01 n1 kubelet[1]: " + unhealthyLine + "Jan 01 00:00:00 n2 kubelet[2]: " + unhealthyLine))
	f.Add([]byte(`10.0.0.1: {"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"Skipping pod` +
		` synchronization","err":"PLEG is not healthy: pleg has yet to be successful"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		opts := Options{Now: now, Local: time.UTC, Inputs: []Input{{Kind: Stream, Reader: bytes.NewReader(b)}}}
		reading := newReader(&opts, discover(opts.Inputs))
		reading.run(t.Context())
		r := reading.report()
		n := 0
		for _, e := range r.Episodes {
			n += e.Lines
			if e.Start != nil && e.End == nil || e.Causes == nil || e.Lines == 0 {
				t.Errorf("%+v", e)
			}
		}
		if int64(n) != lines(r) {
			t.Errorf("%d records in episodes, %d counted", n, lines(r))
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// TestReadRangeExactly checks that counts, and the record that stands for them, are of the range that was asked for,
// also where records follow each other closely across its ends.
func TestReadRangeExactly(t *testing.T) {
	kills, relists := "", ""
	for n := range 10 {
		kills += fmt.Sprintf("2026-11-21T00:5%d:00+00:00 n1 kernel: Memory cgroup out of memory: "+
			"Killed process %d (java)\n", n, 100+n)
	}
	for n := range 8 {
		relists += fmt.Sprintf("E1121 00:52:0%d.000000 1 generic.go:312] \"GenericPLEG: Unable to retrieve pods\" "+
			"err=\"try %d\"\n", n, n)
	}
	since, until := time.Date(2026, 11, 21, 0, 52, 3, 0, time.UTC), time.Date(2026, 11, 21, 0, 55, 30, 0, time.UTC)
	for _, tt := range []struct {
		name, text, example string
		count               int64
	}{
		{"with years", kills, "Killed process 103", 3},
		{"without", relists, "try 3", 5},
	} {
		r := readText(t, tt.text, Options{Since: since, Until: until})
		if len(r.Signatures) != 1 || r.Signatures[0].Count != tt.count ||
			!strings.Contains(r.Signatures[0].Example, tt.example) {
			t.Errorf("%s: %+v, want %d like %q", tt.name, r.Signatures, tt.count, tt.example)
		}
	}
}

// TestMemoryKills checks that kills are counted by the control group and by whose limit it was, and that kdiag's own
// children are not reported as hung.
func TestMemoryKills(t *testing.T) {
	const pod = "/kubepods/burstable/pod1/0a"
	var text strings.Builder
	for i, where := range []string{"MEMCG,oom_memcg=" + pod, "MEMCG,oom_memcg=" + pod, "NONE,global_oom"} {
		fmt.Fprintf(&text, "Nov 21 00:52:%02d n1 kernel: oom-kill:constraint=CONSTRAINT_%s,task_memcg=%s,task=java,"+
			"pid=%d,uid=0\n", i, where, pod, 30123+i)
	}
	text.WriteString("Nov 21 00:52:12 n1 kernel: INFO: task kdiag-m0a1b2c3d:99 blocked for more than 122 seconds.\n")
	r := readText(t, text.String(), Options{})
	for i := range r.MemoryKills {
		r.MemoryKills[i].First, r.MemoryKills[i].Last = nil, nil
	}
	want := []MemoryKill{{Cgroup: pod, Limit: pod, Task: "java", Count: 2}, {Cgroup: pod, Task: "java", Count: 1}}
	if diff := cmp.Diff(want, r.MemoryKills); diff != "" || len(r.Signatures) != 1 {
		t.Errorf("%s\n%+v", diff, r.Signatures)
	}
}
