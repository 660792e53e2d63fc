package capture

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/internal/testkit"
)

var must, equal = testkit.Must, testkit.Equal

func TestMain(m *testing.M) {
	beDaemon()
	os.Exit(m.Run())
}

// A tree is a host's root for a test.
type tree struct{ testkit.Tree }

// A thread is one of process 812 for a test.
type thread struct {
	state byte
	wchan string
}

// process makes process 812, which runs program as comm, was started 100 s after the boot at 1000, and has these masks
// of signals.
func (r tree) process(program, comm string, masks [3]string, threads ...thread) {
	r.Helper()
	r.Write("proc/stat", "btime 1000\n")
	stat := func(i int) string {
		return fmt.Sprintf("%d (%s) %c 1%s 10000 0 0\n", 812+i, comm, threads[i].state, strings.Repeat(" 0", 17))
	}
	for i, th := range threads {
		dir := "proc/812/task/" + strconv.Itoa(812+i)
		r.Write(dir+"/stat", stat(i))
		r.Write(dir+"/wchan", th.wchan)
	}
	r.Write("proc/812/stat", stat(0))
	r.Write("proc/812/status", fmt.Sprintf("ShdPnd:\t%s\nSigBlk:\t%s\nSigCgt:\t%s\n", masks[0], masks[1], masks[2]))
	r.Link("proc/812/exe", program)
}

// What processes do with SIGUSR1: as in /proc/PID/status pending, blocked and caught signals.
var (
	catches = [3]string{"0000000000000000", "0000000000000000", "fffffffd7fc1feff"} // Go's
	blocks  = [3]string{"0000000000000000", "0000000000000200", "fffffffd7fc1feff"}
	ignores = [3]string{"0000000000000000", "0000000000000000", "fffffffd7fc1fcff"}
	pending = [3]string{"0000000000000200", "0000000000000000", "fffffffd7fc1feff"}
	dies    = [3]string{"0000000000000000", "0000000000000000", "0000000000000002"} // Python's
)

func TestProve(t *testing.T) {
	running, stopped, disk := thread{'S', "futex_do_wait"}, thread{'T', "do_signal_stop"}, thread{'D', "io_schedule"}
	const runc = "/usr/bin/containerd-shim-runc-v2"
	for _, tc := range []struct {
		name          string
		role          host.Role // empty for the runtime
		program, comm string    // empty for containerd
		masks         [3]string // empty for those of Go
		started       int64     // of the process as it was seen before; 0 for the same
		threads       []thread  // nil for one that waits
		namespace     string    // of process ids; empty for this one
		want          string    // in the error; empty for none
		stuck         bool      // there are the stacks in the kernel
	}{
		{name: "containerd"},
		{name: "the clock was set by a second", started: 1101},
		{name: "another process of that id", started: 1090, want: "another process than before"},
		{name: "another program", program: "/usr/bin/python3.11", want: "not a known runtime"},
		{name: "k3s as containerd", program: "/var/lib/rancher/k3s/data/1/bin/k3s"},
		{name: "k3s", program: "/usr/local/bin/k3s", comm: "k3s-server", want: "not a known runtime"},
		{name: "a shim", role: host.RoleShim, program: runc},
		{name: "conmon", role: host.RoleShim, program: "/usr/bin/conmon", want: "not a known shim", stuck: true},
		{name: "in Rust", role: host.RoleShim, program: runc, masks: dies, want: "does not handle", stuck: true},
		{name: "ignored", masks: ignores, want: "does not handle SIGUSR1"},
		{name: "blocked", masks: blocks, want: "does not handle SIGUSR1"},
		{name: "an earlier one is pending", masks: pending, want: "earlier SIGUSR1", stuck: true},
		{name: "a containerd in a pod", namespace: "pid:[1]", want: "pid namespace of its own"},
		{name: "a zombie", threads: []thread{{'Z', ""}}, want: "zombie"},
		{name: "stopped", threads: []thread{stopped, stopped}, want: "is stopped", stuck: true},
		{name: "one thread is still to stop", threads: []thread{stopped, running}},
		{name: "frozen, cgroup v2", threads: []thread{{'S', "do_freezer_trap"}}, want: "is frozen", stuck: true},
		{name: "frozen, cgroup v1", threads: []thread{{'D', "__refrigerator"}, disk}, want: "is frozen", stuck: true},
		{name: "all wait for a disk", threads: []thread{disk, disk}, want: "sleep with all 2 threads", stuck: true},
		{name: "one waits for a disk", threads: []thread{disk, running}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tree{testkit.NewTree(t)}
			if tc.masks[0] == "" {
				tc.masks = catches
			}
			if tc.threads == nil {
				tc.threads = []thread{running}
			}
			r.process(cmp.Or(tc.program, "/usr/bin/containerd"), cmp.Or(tc.comm, "containerd"), tc.masks, tc.threads...)
			if tc.namespace != "" {
				r.Link("proc/812/ns/pid", tc.namespace)
			}
			p := host.Process{PID: 812, Role: cmp.Or(tc.role, host.RoleRuntime), Name: "it"}
			p.Started = time.Unix(cmp.Or(tc.started, 1100), 0)
			err := Input{Root: r.Root}.prove(t.Context(), p)
			_, stuck := errors.AsType[stuckError](err)
			if (err == nil) != (tc.want == "") || !strings.Contains(fmt.Sprint(err), tc.want) || stuck != tc.stuck {
				t.Errorf("prove() = %v, want %q", err, tc.want)
			}
		})
	}
}

// beDaemon lets a copy of this binary be a daemon that writes no dump: a silent one catches every signal, as each Go
// program does, and tells of the first, and a deaf one ignores SIGUSR1.
func beDaemon() {
	signals := make(chan os.Signal, 1)
	switch os.Getenv("CAPTURE_TEST") {
	case "":
		return
	case "silent":
		signal.Notify(signals, unix.SIGUSR1)
	case "deaf":
		signal.Ignore(unix.SIGUSR1)
		signal.Notify(signals, unix.SIGUSR2) // else the program ends: it would wait for nothing that can happen
	}
	fmt.Println("ready")
	fmt.Println(<-signals)
	select {}
}

// daemon starts a copy of this binary under the name containerd. It returns what the daemon prints next.
func daemon(t *testing.T, kind string) (pid int, next func() string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	copied := filepath.Join(t.TempDir(), "containerd")
	must(t, os.WriteFile(copied, []byte(testkit.Read(t, self)), 0o755))
	cmd := exec.CommandContext(t.Context(), copied)
	cmd.Env = append(os.Environ(), "CAPTURE_TEST="+kind)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	next = func() string { lines.Scan(); return lines.Text() }
	if got := next(); got != "ready" {
		t.Fatalf("the daemon says %q", got)
	}
	return cmd.Process.Pid, next
}

// TestRuntimeSurvives sends no signal to what would die of it.
func TestRuntimeSurvives(t *testing.T) {
	pid, _ := daemon(t, "deaf")
	said := ""
	d := Runtime(t.Context(), Input{
		Root: "/", Socket: "/nowhere.sock", Say: func(line string) { said += line },
		Processes: []host.Process{
			{PID: pid, Role: host.RoleRuntime, Name: "containerd", Sockets: []string{"/nowhere.sock"}},
			{PID: os.Getpid(), Role: host.RoleRuntime, Name: "other", Sockets: []string{"/else.sock"}},
		},
	})
	if !strings.Contains(d.Source.Problem, "does not handle SIGUSR1 and could die of it") || said != "" ||
		len(d.Text) > 0 || len(d.Source.Kernel) > 0 {
		t.Errorf("%+v, %q", d.Source, said)
	}
	must(t, unix.Kill(pid, 0))
}

// TestSilentDaemon keeps to the deadline with what gets the signal and writes nothing.
func TestSilentDaemon(t *testing.T) {
	pid, next := daemon(t, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { next(); cancel() }()
	said := ""
	p := host.Process{PID: pid, Role: host.RoleRuntime, Name: "containerd"}
	in := Input{Root: "/", Say: func(line string) { said += line }}
	d := Dump{Source: checks.StackSource{PID: pid}}
	w, err := in.order(ctx, p, p)
	d.fill(t.Context(), "/", w, err)
	if !strings.Contains(d.Source.Problem, "was sent SIGUSR1 and wrote no dump in time") ||
		strings.Count(said, "send SIGUSR1 to ") != 1 || len(d.Text) > 0 || len(d.Source.Kernel) == 0 {
		t.Errorf("%+v, %q", d.Source, said)
	}
}

// TestKubelet asks a server that hangs without a token, as this process: the kernel shows its threads.
func TestKubelet(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			<-hang
		}
		_, _ = io.WriteString(w, dump)
	}))
	defer server.Close()
	defer close(hang)
	in := Input{Root: "/", Credentials: kubelet.Credentials{Token: "good"}}
	in.Kubelet.PID, in.Kubelet.Address = os.Getpid(), server.Listener.Addr().String()
	d := Kubelet(t.Context(), in)
	if string(d.Text) != dump || d.Source.Problem != "" || !strings.HasPrefix(d.Source.Name, server.URL) {
		t.Errorf("Kubelet() = %q, %+v", d.Text, d.Source)
	}
	in.Credentials.Token = ""
	d = in.kubelet(t.Context(), 50*time.Millisecond)
	if d.Source.Problem != "asking the kubelet for its goroutines: no answer in time" || len(d.Source.Kernel) == 0 {
		t.Errorf("Kubelet() of one that hangs = %q, %+v", d.Text, d.Source)
	}
}
