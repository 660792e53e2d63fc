package target

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
)

// silent is a socket on which nobody ever answers.
func silent(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	lis, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

// TestSnapshotHung wants the answer about a runtime that hangs within the time for saying who it is, whatever the command's.
func TestSnapshotHung(t *testing.T) {
	lis := silent(t, "unix", filepath.Join(t.TempDir(), "cri.sock"))
	client, err := crictl.Dial(lis.Addr().String(), crictl.Options{RPCTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	k := &Target{Client: client, Endpoint: crictl.Endpoint{URL: "unix://" + lis.Addr().String()}}
	done := make(chan Snapshot, 1)
	go func() { done <- k.TakeSnapshot(t.Context(), cli.Env{Root: t.TempDir(), Now: time.Now}, Sources{}) }()
	select {
	case look := <-done:
		if !strings.Contains(look.Problem, "Version did not answer") || look.Denied {
			t.Errorf("%q, denied: %v", look.Problem, look.Denied)
		}
	case <-time.After(helloTimeout):
		t.Fatal("no answer") // without a deadline it is the probe's default, of the same length
	}
}

// TestEvidenceApart lets the kubelet hang: the other sources are had all the same, and the reason names the address.
func TestEvidenceApart(t *testing.T) {
	lis := silent(t, "tcp", "127.0.0.1:0")
	env, k := node(t)
	k.Kubelet.Collection.ReadOnlyPort = lis.Addr().(*net.TCPAddr).Port
	e := k.evidence(t.Context(), env, Sources{}, []crictl.PodSandbox{{Pod: &crictl.Pod{UID: "live"}}})
	if e.DirsWithout != "" || e.ManifestsWithout != "" || e.PodsWithout != "the kubelet does not answer at "+lis.Addr().String() {
		t.Errorf("%q, %q, %q", e.PodsWithout, e.DirsWithout, e.ManifestsWithout)
	}
}

// TestUnknownKeep says why the kubelet's number is not known.
func TestUnknownKeep(t *testing.T) {
	dir := t.TempDir()
	for _, link := range []string{"a", "b"} {
		if err := os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "real"), "")
	five := 5
	for _, tt := range []struct {
		name    string
		kubelet *crictl.Kubelet
		want    string
	}{
		{"none", nil, "no kubelet runs here"},
		{"unreadable", &crictl.Kubelet{Unreadable: "no permission"}, "could not be read: no permission"},
		{"unreadable in part", &crictl.Kubelet{Unreadable: "x", Collection: crictl.Collection{DeadPerContainer: &five}}, ""},
		{"of another runtime", &crictl.Kubelet{Endpoint: "unix:///run/other.sock"}, "uses another runtime, unix:///run/other.sock"},
		{"of this one, by a link", &crictl.Kubelet{Endpoint: filepath.Join(dir, "b")}, ""},
		{"of this one", &crictl.Kubelet{}, ""},
	} {
		k := &Target{Kubelet: tt.kubelet, Endpoint: crictl.Endpoint{URL: "unix://" + filepath.Join(dir, "a")}}
		if got := k.unknownKeep(); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestSourcesRelative takes the folders from where the command runs.
func TestSourcesRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	src := Sources{KubeletRoot: "kubelet", Manifests: "/etc/manifests"}
	if err := src.CheckSources(&cobra.Command{}); err != nil {
		t.Fatal(err)
	}
	if src.KubeletRoot != filepath.Join(here, "kubelet") || src.Manifests != "/etc/manifests" {
		t.Errorf("%+v", src)
	}
}

// TestCommandLine writes flags so that a shell reads them back.
func TestCommandLine(t *testing.T) {
	cmd := &cobra.Command{}
	fs := cmd.Flags()
	fs.String("pod", "", "")
	fs.Bool("logs", false, "")
	fs.Bool("off", true, "")
	fs.Duration("older-than", 0, "")
	fs.StringToString("label", nil, "")
	fs.String("output", "", "")
	if err := fs.Parse([]string{"--pod", "it's $HOME", "--logs", "--off=false", "--older-than", "24h", "--label", "a=b", "--label=c=d", "--output", "json"}); err != nil {
		t.Fatal(err)
	}
	got := CommandLine(cmd, "gc-exited", "pod", "logs", "off", "older-than", "label", "none")
	if i := strings.Index(got, "c=d,a=b"); i >= 0 { // a map's order
		got = got[:i] + "a=b,c=d" + got[i+len("a=b,c=d"):]
	}
	want := `kdiag gc-exited --label a=b,c=d --logs --off=false --older-than 24h0m0s --pod 'it'\''s $HOME'`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestUnanswered says in words what became of a call.
func TestUnanswered(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		call crictl.Call
		want string
	}{
		{"hung", t.Context(), crictl.Call{Method: "ListContainers", Code: crictl.DeadlineExceeded, Elapsed: 5 * time.Second}, "the runtime did not answer ListContainers within 5s"},
		{"cut short", t.Context(), crictl.Call{Method: "ListContainers", Code: crictl.Canceled, Err: "context deadline exceeded"}, "the command's time was up before ListContainers was answered"},
		{"interrupted", interrupted, crictl.Call{Method: "ListContainers", Code: crictl.Canceled, Err: "context canceled"}, "interrupted before ListContainers was answered"},
		{"failed", t.Context(), crictl.Call{Method: "ListContainers", Code: crictl.Internal, Err: "broken"}, "ListContainers: Internal: broken"},
	} {
		if got := unanswered(tt.ctx, tt.call); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestPodsFile refuses what is no file, and says which of the two it is.
func TestPodsFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		pipe: ": it is no regular file", dir: ": it is no regular file", filepath.Join(dir, "none"): ": there is no such file",
	} {
		err := (&Sources{Pods: name}).CheckSources(&cobra.Command{})
		if err == nil || err.Error() != "--pods "+name+want {
			t.Errorf("%v, want ...%s", err, want)
		}
	}
}

// TestSimulate wants next steps to name the scenario as a shell reads it.
func TestSimulate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my scenario.yaml")
	write(t, file, "name: other\nextends: healthy\n")
	for name, want := range map[string]string{"healthy": "healthy", file: "'" + file + "'"} {
		opened, err := Open(t.Context(), cli.Env{}, &cli.Flags{Simulate: name, Timeout: time.Minute, RPCTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if got := opened.Runtime().Simulate; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		opened.Close()
	}
}

// TestInterruptedHello says that the first call was cut short, in words.
func TestInterruptedHello(t *testing.T) {
	opened, err := Open(t.Context(), cli.Env{}, &cli.Flags{Simulate: "runtime-hung", Timeout: time.Minute, RPCTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if look := opened.TakeSnapshot(ctx, cli.Env{}, Sources{}); look.Problem != "interrupted before Version was answered" || look.Denied {
		t.Errorf("%q, denied %v", look.Problem, look.Denied)
	}
}
