package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// resultOf is the result of one check.
func resultOf(t *testing.T, f *facts.Input, id string) checks.Result {
	t.Helper()
	all := Results(f)
	i := slices.IndexFunc(all, func(r checks.Result) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("there is no check %s", id)
	}
	return all[i]
}

func TestReadOnlyState(t *testing.T) {
	run := host.Space{
		Folders: []host.Folder{{Path: "/run/containerd", Role: host.FolderState}}, Mount: "/run",
		Type: "tmpfs", Source: "tmpfs", Size: 1 << 30, Free: 1 << 29, ReadOnly: true,
	}
	for _, tt := range []struct {
		name   string
		spaces []host.Space
		reboot bool
	}{
		{"the state alone", []host.Space{disk(), run}, false},
		{"with the disk", []host.Space{func() host.Space { d := disk(); d.ReadOnly = true; return d }(), run}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(seen(func(n *facts.Node) { n.Spaces = good(tt.spaces) }))
			c := only(t, f, causes.IOStall)
			commands := make([]string, 0, len(c.NextSteps))
			for _, s := range c.NextSteps {
				commands = append(commands, s.Command)
			}
			if c.Severity != checks.Critical || !strings.Contains(c.Summary, "read-only") ||
				!slices.Contains(commands, "mount -o remount,rw /run") {
				t.Errorf("%s, %q, %q", c.Severity, c.Summary, commands)
			}
			if slices.Contains(commands, "systemctl reboot") != tt.reboot {
				t.Errorf("a reboot is proposed %v, want %v", !tt.reboot, tt.reboot)
			}
			if got := resultOf(t, f, "host.writes"); got.Status != checks.StatusCritical ||
				!strings.Contains(got.Summary, "read-only") {
				t.Errorf("host.writes: %s %q", got.Status, got.Summary)
			}
		})
	}
}

func TestSandboxImage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		image   facts.Reading[facts.SandboxImage]
		status  checks.Status
		summary string
	}{
		{"there", good(facts.SandboxImage{Name: "registry.k8s.io/pause:3.10"}), checks.StatusOK, "answered in"},
		{
			"not there", good(facts.SandboxImage{Name: "registry.k8s.io/pause:3.10", Absent: true}),
			checks.StatusWarning, "the sandbox image registry.k8s.io/pause:3.10 is not on this node",
		},
		{
			"not known",
			facts.Reading[facts.SandboxImage]{Missing: "x", Value: facts.SandboxImage{Absent: true}},
			checks.StatusOK, "answered in",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := resultOf(t, node(seen(func(n *facts.Node) { n.SandboxImage = tt.image })), "image.service")
			if got.Status != tt.status || !strings.Contains(got.Summary, tt.summary) {
				t.Errorf("%s %q, want %s %q", got.Status, got.Summary, tt.status, tt.summary)
			}
		})
	}
}

func TestBenchmarkOfAStoppedKubelet(t *testing.T) {
	with := func(state byte) []string {
		f := node(func(f *facts.Input) {
			f.Processes = append(f.Processes, host.Process{
				PID: 81, Name: "kubelet", Role: host.RoleKubelet,
				State: state,
			})
		})
		return NewRelistBenchmark(checks.Header{}, f).Problems
	}
	if got := with('T'); len(got) != 1 ||
		!strings.Contains(got[0], "(pid 81) is stopped and makes no relists") {
		t.Errorf("stopped: %q", got)
	}
	if got := with('S'); len(got) != 0 {
		t.Errorf("at work: %q", got)
	}
}

func TestMistypedEndpoint(t *testing.T) {
	for _, tt := range []struct {
		source string
		state  crictl.ConnectState
		want   bool
	}{
		{"flag", crictl.ConnectMissing, true},
		{"kubelet", crictl.ConnectMissing, false},
		{"flag", crictl.ConnectRefused, false},
	} {
		f := node(func(f *facts.Input) {
			f.Runtime.EndpointSource = tt.source
			f.Measurement = &plegbench.Measurement{Connect: crictl.Connect{State: tt.state}}
		})
		steps := only(t, f, causes.RuntimeDown).NextSteps
		if got := len(steps) > 0 && steps[0].Command == "kdiag pleg"; got != tt.want {
			t.Errorf("%s, %s: asks whether the path is right %v, want %v", tt.source, tt.state, got, tt.want)
		}
	}
}
