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
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
)

// deaf is a socket at which nothing ever answers.
func deaf(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	lis, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

// TestSnapshotHung asks a runtime that hangs: the answer comes within the time of the first call, whatever the
// command's. One that is interrupted in that call names it.
func TestSnapshotHung(t *testing.T) {
	lis := deaf(t, "unix", filepath.Join(t.TempDir(), "cri.sock"))
	client, err := crictl.Dial(lis.Addr().String(), crictl.Options{RPCTimeout: 300 * time.Millisecond})
	must(t, err)
	defer client.Close()
	k := &Target{Client: client, Endpoint: crictl.Endpoint{URL: "unix://" + lis.Addr().String()}}
	start := time.Now()
	s := k.TakeSnapshot(t.Context(), cli.Env{Root: t.TempDir(), Now: time.Now}, Sources{}, &render.Progress{})
	if !strings.Contains(s.Problem, "Version hangs") || s.Denied {
		t.Errorf("%q, denied: %v", s.Problem, s.Denied)
	}
	if took := time.Since(start); took > helloTimeout {
		t.Errorf("after %v", took)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	s = k.TakeSnapshot(ctx, cli.Env{}, Sources{}, &render.Progress{})
	if s.Problem != "interrupted before Version replied" || s.Denied {
		t.Errorf("%q, denied %v", s.Problem, s.Denied)
	}
}

// TestUnknownKeep has kubelets whose number is known, and others.
func TestUnknownKeep(t *testing.T) {
	dir := t.TempDir()
	for _, link := range []string{"a", "b"} {
		must(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, link)))
	}
	write(t, filepath.Join(dir, "real"), "")
	five := crictl.Collection{DeadPerContainer: new(5)}
	for _, tt := range []struct {
		name    string
		kubelet *crictl.Kubelet
		want    string
	}{
		{"none", nil, "no kubelet runs here"},
		{
			"unreadable", &crictl.Kubelet{Unreadable: "no permission"},
			"cannot read the kubelet's settings: no permission",
		},
		{"unreadable in part", &crictl.Kubelet{Unreadable: "x", Collection: five}, ""},
		{
			"of another runtime", &crictl.Kubelet{Endpoint: "unix:///run/other.sock"},
			"the kubelet here uses another runtime, unix:///run/other.sock",
		},
		{"of this one, by a link", &crictl.Kubelet{Endpoint: filepath.Join(dir, "b")}, ""},
		{"of this one", &crictl.Kubelet{}, ""},
	} {
		k := &Target{Kubelet: tt.kubelet, Endpoint: crictl.Endpoint{URL: "unix://" + filepath.Join(dir, "a")}}
		if got := k.unknownKeep(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestSources takes folders from where the command runs, and refuses a list of pods that is no file.
func TestSources(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	src := Sources{KubeletRoot: "kubelet", Manifests: "/etc/manifests"}
	err := src.CheckSources(&cobra.Command{})
	want := Sources{KubeletRoot: filepath.Join(here, "kubelet"), Manifests: "/etc/manifests"}
	if err != nil || src != want {
		t.Errorf("%+v, %v, want %+v", src, err, want)
	}
	must(t, unix.Mkfifo("pipe", 0o600))
	for name, want := range map[string]string{
		"pipe": "not a regular file", here: "not a regular file", "none": "no such file",
	} {
		err := (&Sources{Pods: name}).CheckSources(&cobra.Command{})
		if err == nil || !strings.Contains(err.Error(), "--pods: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCommandLine writes flags so that a shell reads them back.
func TestCommandLine(t *testing.T) {
	cmd := &cobra.Command{}
	fs := cmd.Flags()
	fs.String("pod", "", "")
	fs.Bool("cni", false, "")
	fs.Bool("off", true, "")
	fs.Duration("older-than", 0, "")
	fs.StringToString("label", nil, "")
	fs.String("output", "", "")
	must(t, fs.Parse([]string{
		"--pod", "it's $HOME", "--cni", "--off=false", "--older-than", "24h", "--label", "a=b", "--output", "json",
	}))
	got := CommandLine(cmd, "gc-exited", "pod", "cni", "off", "older-than", "label", "none")
	if want := `kdiag gc-exited --cni --label a=b --off=false --older-than 24h0m0s --pod 'it'\''s $HOME'`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestUnanswered describes calls without an answer.
func TestUnanswered(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, tt := range []struct {
		ctx  context.Context
		code crictl.Code
		want string
	}{
		{t.Context(), crictl.DeadlineExceeded, "ListContainers hangs (no reply in 5s)"},
		{t.Context(), crictl.Canceled, "--timeout reached before ListContainers replied"},
		{interrupted, crictl.Canceled, "interrupted before ListContainers replied"},
		{t.Context(), crictl.Internal, "ListContainers: Internal: broken"},
	} {
		call := crictl.Call{Method: "ListContainers", Code: tt.code, Elapsed: 5 * time.Second, Err: "broken"}
		if got := unanswered(tt.ctx, call); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestSimulate names the scenario for the next steps as a shell reads it.
func TestSimulate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my scenario.yaml")
	write(t, file, "name: other\nextends: healthy\n")
	for name, want := range map[string]string{"healthy": "healthy", file: "'" + file + "'"} {
		flags := &cli.Flags{Simulate: name, Timeout: time.Minute, RPCTimeout: time.Second}
		opened, err := Open(t.Context(), cli.Env{}, flags)
		must(t, err)
		if got := opened.Runtime().Simulate; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		opened.Close()
	}
}
