package stacks

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
)

var update = flag.Bool("update", false, "write the reports of the dumps anew")

// read reads the only dump in a file of testdata/dumps.
func read(tb testing.TB, name string) *Dump {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "dumps", name))
	must(tb, err)
	return parse(tb, name, string(b))
}

// parse reads the only dump in a text.
func parse(tb testing.TB, name, text string) *Dump {
	tb.Helper()
	dumps := readAll(tb, name, text)
	if len(dumps) != 1 {
		tb.Fatalf("%d dumps in:\n%.1000s", len(dumps), text)
	}
	return dumps[0]
}

// oneGoroutine writes a goroutine with functions that are separated by spaces, all with the same first argument.
func oneGoroutine(state, frames string) string {
	text := "goroutine 1 [" + state + "]:\n"
	for _, f := range strings.Fields(frames) {
		text += f + "(0xc000001000)\n\ta.go:1 +0x1\n"
	}
	return text
}

// TestAnalyse compares what each dump shows with its report. The dumps without one are of daemons that have nothing: no
// holder and no picture, and of what is not set aside only what works, requests that are being served and what they
// wait for at this moment. All but crio-* and kubelet-* were written by daemons with the fault: 1.6 is containerd
// 1.6.20, 2.4 a beta of 2.4, docker is 20.10.24.
func TestAnalyse(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "dumps"))
	must(t, err)
	healthy, shown := 0, map[string]bool{}
	for _, f := range files {
		r := Analyse(read(t, f.Name()))
		for _, k := range r.Known {
			shown[k.Pattern] = true
		}
		report := strings.TrimSuffix(strings.TrimSuffix(f.Name(), ".zst"), ".txt") + ".json"
		if _, err := os.Stat(filepath.Join("testdata", "reports", report)); err == nil {
			golden(t, report, r)
			continue
		}
		healthy++
		if len(r.Holders) > 0 || len(r.Known) > 0 {
			t.Errorf("%s: holders %v, known %v; want none", f.Name(), r.Holders, r.Known)
		}
		for _, w := range r.Waits {
			works := len(w.Calls) > 0 || strings.Contains(strings.Join(w.Stack, " "), "GarbageCollect")
			if !works || !strings.HasPrefix(f.Name(), "busy-") || strings.HasPrefix(f.Name(), "busy-shim") {
				t.Errorf("%s: %d wait for %s in %q; want them set aside", f.Name(), w.Count, w.On, w.Stack)
			}
		}
	}
	if len(files) != 34 || healthy != 11 {
		t.Errorf("%d dumps, %d of healthy daemons; want 34, 11", len(files), healthy)
	}
	for _, p := range Pictures() {
		if !shown[p.ID] || p.Title == "" || p.Means == "" || len(p.Links) == 0 || len(p.Causes) == 0 {
			t.Errorf("no dump shows %s, or it lacks a title, a meaning, a link or a cause", p.ID)
		}
	}
}

func golden(t *testing.T, name string, r *checks.StacksReport) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	must(t, enc.Encode(r))
	file := filepath.Join("testdata", "reports", name)
	if *update {
		must(t, os.WriteFile(file, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// mutexes writes a dump of goroutines that each hold one lock and wait for another: a lock is the address of an object
// with two methods, Hold and Take.
func mutexes(minutes int, pairs ...[2]int) string {
	var b strings.Builder
	for i, p := range pairs {
		fmt.Fprintf(&b, "goroutine %d [sync.Mutex.Lock, %d minutes]:\n", i+1, minutes)
		fmt.Fprintf(&b, "sync.(*Mutex).lockSlow(0xc%07x)\n\tmutex.go:1\n", p[1]<<12)
		fmt.Fprintf(&b, "example.com/a.(*T%d).Take(0xc%07x)\n\ta.go:1\n", p[1], p[1]<<12)
		if p[0] != 0 {
			fmt.Fprintf(&b, "example.com/a.(*T%d).Hold(0xc%07x)\n\ta.go:2\n", p[0], p[0]<<12)
		}
		b.WriteString("main.main()\n\tmain.go:1\n\n")
	}
	return b.String()
}

func TestHolders(t *testing.T) {
	tests := []struct {
		name, dump string
		want       []string // goroutine, blocks, cycle
	}{
		{"two wait for each other, and one for them", mutexes(3, [2]int{1, 2}, [2]int{2, 1}, [2]int{0, 1}), []string{
			"1 blocks 2 [1 2]", "2 blocks 2 [2 1]",
		}},
		{"a chain without an end that is known", mutexes(3, [2]int{1, 2}, [2]int{2, 3}, [2]int{0, 1}), []string{
			"2 blocks 2 []", "1 blocks 1 []",
		}},
		{"two that fit equally", mutexes(3, [2]int{1, 2}, [2]int{1, 3}, [2]int{0, 1}), nil},
		{"a deadlock is one from the start", mutexes(0, [2]int{1, 2}, [2]int{2, 1}), []string{
			"1 blocks 1 [1 2]", "2 blocks 1 [2 1]",
		}},
		{"another method of the object, on the way of a call", `goroutine 7 [sync.RWMutex.RLock, 2 minutes]:
sync.(*RWMutex).RLock(...)
	mutex.go:1
example.com/a.(*T).Get(0xc000001000)
	a.go:1
main.main()
	main.go:1

goroutine 8 [select, 2 minutes]:
example.com/b.(*C).Call(0xc000002000)
	b.go:1
example.com/a.(*T).Set(0xc000001000)
	a.go:1
main.main()
	main.go:1
`, []string{"8 blocks 1 []"}},
	}
	for _, tt := range tests {
		var got []string
		for _, h := range Analyse(parse(t, "test", tt.dump)).Holders {
			got = append(got, fmt.Sprintf("%d blocks %d %v", h.Goroutine, h.Blocks, h.Cycle))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestWaits has a stack for each word of the list that no dump shows, and idle for goroutines that are set aside.
func TestWaits(t *testing.T) {
	const table = `
select | ttrpc.(*Client).Call ttrpc.(*Client).dispatch a.io/a.f | ttrpc | the shim's reply (ttrpc client 0xc000001000)
syscall | os/exec.(*Cmd).Wait a.io/oci.(*runtimeOCI).StopContainer | runc | the OCI runtime (StopContainer)
syscall | os/exec.(*Cmd).Wait a.io/a.Do | child | a child process
semacquire | sync.(*Mutex).lockSlow a.io/a.(*T).Do | lock | lock 0xc000001000 of T
syscall | syscall.Fdatasync go.etcd.io/bbolt.fdatasync | fsync | the disk (fdatasync)
syscall | golang.org/x/sys/unix.Mount a.io/a.Do | mount | a mount
select | net/http.(*persistConn).roundTrip a.io/b.f a.io/client.(*Client).Get | network | dockerd's reply to Get (HTTP)
chan send | a.io/a.Do | channel | a channel, to send
sync.Cond.Wait | sync.(*Cond).Wait a.io/a.(*T).Do a.io/a.(*T).Call | condition | a condition
sleep | time.Sleep a.io/a.retry a.io/a.Do | sleep | a time
running | a.io/a.Do | nothing | nothing: at work
select, 5 minutes | a.io/a.(*T).loop a.io/a.Start.func1 | idle
chan receive | a.io/a.(*T).loop k8s.io/util/wait.Until a.io/a.Start.func1 | idle
sync.Cond.Wait | sync.runtime_notifyListWait sync.(*Cond).Wait a.io/a.(*T).loop | idle
chan send | a.io/a.(*T).loop | channel | a channel, to send
syscall | syscall.Syscall os.Stat a.io/a.(*T).loop | disk | a file system (Stat)
chan receive | a.io/a.wait a.io/a.(*T).Do a.io/a.(*T).Serve | channel | a channel
running | a.io/a.(*T).loop | nothing | nothing: at work`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.SplitN(strings.TrimSpace(line), " | ", 3)
		got := "idle"
		if w := Analyse(parse(t, "test", oneGoroutine(f[0], f[1]))).Waits; len(w) > 0 {
			got = w[0].WaitsFor + " | " + w[0].On
		}
		if got != f[2] {
			t.Errorf("%s: %s, want %s", f[1], got, f[2])
		}
	}
}

// TestStill wants a dump before to count where the newest has no times: the disk is waited for in each moment, but not
// by the same goroutine at the same place.
func TestStill(t *testing.T) {
	at := func(at time.Time) *Dump {
		d := read(t, "fs-frozen-1.6.txt.zst")
		d.Source.CapturedAt = &at
		for i := range d.Goroutines {
			d.Goroutines[i].Wait = 0
		}
		return d
	}
	now := time.Now()
	for _, tt := range []struct {
		name   string
		before *Dump
		want   int
	}{
		{"no dump", nil, 0},
		{"one of another process", read(t, "busy-3-1.6.txt.zst"), 0},
		{"one of 1s", at(now.Add(-time.Second)), 0},
		{"one of 3s", at(now.Add(-3 * time.Second)), 1},
	} {
		d := at(now)
		d.Before = tt.before
		r := Analyse(d)
		if len(r.Sources) != 1 || len(r.Holders) != tt.want || len(r.Known) != tt.want {
			t.Errorf("%s before: holders %v, known %v; want %d", tt.name, r.Holders, r.Known, tt.want)
		}
		for _, w := range r.Waits {
			if w.Still != nil && *w.Still != tt.want*w.Count {
				t.Errorf("%s before: %d of %d stand still", tt.name, *w.Still, w.Count)
			}
		}
	}
}

func TestTie(t *testing.T) {
	pod := &checks.Subject{Kind: "PodSandbox", ID: "5b15"}
	child := func(role string, pid, parent int, stuck string) Candidate {
		p := checks.Process{PID: pid, Name: role, Role: role}
		return Candidate{Process: p, Subject: pod, Parent: parent, Daemon: 10, Stuck: stuck}
	}
	runs, stopped, other := child("shim", 20, 1, ""), child("shim", 21, 1, "stopped"), child("shim", 22, 1, "stopped")
	cni, del := child("cni", 40, 10, ""), child("cni", 42, 10, "")
	del.Work = "DEL"
	tests := []struct {
		name, waitsFor string
		own            int
		all            []Candidate
		pid            int
		missing        string
	}{
		{"the stopped shim", WaitsTTRPC, 10, []Candidate{runs, stopped}, 21, ""},
		{"no shim is stuck", WaitsTTRPC, 10, []Candidate{runs}, 0, "which shim: none looks stuck"},
		{"two shims are", WaitsTTRPC, 10, []Candidate{stopped, other}, 0, "which shim: 2 fit (pid 21, 22)"},
		{"the shim of another daemon", WaitsTTRPC, 11, []Candidate{stopped}, 0, "which shim: none looks stuck"},
		{"runc below a shim", WaitsTTRPC, 10, []Candidate{runs, child("oci", 30, 20, "at work")}, 30, ""},
		{"runc of this shim", WaitsRunc, 20, []Candidate{child("oci", 30, 20, ""), child("oci", 31, 21, "")}, 30, ""},
		{"a plugin and the one that it started", WaitsCNI, 10, []Candidate{cni, child("cni", 41, 40, "")}, 40, ""},
		{"a plugin that does something else", WaitsCNI, 10, []Candidate{cni, del}, 40, ""},
		{"a lock is no process", WaitsLock, 10, []Candidate{stopped}, 0, ""},
	}
	for _, tt := range tests {
		r := &checks.StacksReport{
			Sources: []checks.StackSource{{PID: tt.own}},
			Holders: []checks.StackHolder{{WaitsFor: tt.waitsFor, Why: "it waits for a CNI plugin (ADD)"}},
		}
		Tie(r, tt.all)
		h, pid := r.Holders[0], 0
		if h.Process != nil {
			pid = h.Process.PID
		}
		missing := strings.Join(h.Evidence.Missing, "; ")
		if pid != tt.pid || missing != tt.missing || pid != 0 && (h.Subject != pod || len(h.Evidence.For) != 1) {
			t.Errorf("%s: pid %d, missing %q; want %d, %q", tt.name, pid, missing, tt.pid, tt.missing)
		}
	}
}

func FuzzAnalyse(f *testing.F) {
	for _, name := range []string{"crio-storage-lock.txt", "kubelet-pleg.txt", "kubelet-dead-mount.txt"} {
		b, err := os.ReadFile(filepath.Join("testdata", "dumps", name)) // the others are too large to mutate
		must(f, err)
		f.Add(b)
	}
	f.Add([]byte(mutexes(3, [2]int{1, 2}, [2]int{2, 1}, [2]int{0, 1})))
	f.Fuzz(func(t *testing.T, b []byte) {
		dumps, _ := Read(t.Context(), "fuzz", bytes.NewReader(b))
		r := Analyse(dumps...)
		Tie(r, []Candidate{{Process: checks.Process{PID: 2, Role: "shim"}, Stuck: "stopped"}})
		for _, h := range r.Holders {
			if h.Blocks < 1 || len(h.Evidence.For) == 0 || h.Confidence <= 0 {
				t.Errorf("a holder that blocks nobody, or for no reason: %+v", h)
			}
		}
	})
}
