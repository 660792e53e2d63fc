package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestForeignShim has stopped shims that are not, or may not be, those of the runtime that was asked.
func TestForeignShim(t *testing.T) {
	stopped := func(id string, age time.Duration) host.Process {
		return host.Process{
			PID: 6000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, ObjectID: id,
			State: 'T', Started: now().Add(-age),
		}
	}
	with := func(shims ...host.Process) tweak {
		return func(f *facts.Input) {
			f.Processes = append([]host.Process{daemonProcess(), kubeletProcess('S')}, shims...)
			f.Node.Tasks.Value.Stopped = shims
		}
	}
	empty := func(f *facts.Input) {
		f.Measurement.Sandboxes.Sandboxes, f.Measurement.Containers.Containers = nil, nil
		measureLists(f)
		sweep(f)
	}
	part := func(f *facts.Input) { f.Measurement.Containers.Complete = false }
	two := stopped("other", time.Hour)
	two.PID = 6001
	failing := said(signs(signature.RemoveFailed, 9, 9*time.Minute, time.Second, "RemovePodSandbox failed", "other"))
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   float64 // the cause's confidence; 0 for no cause
		shims  checks.Status
		words  string // of host.shims
	}{
		{
			"of an empty runtime",
			[]tweak{surfaces(), with(stopped("other", time.Hour), two), empty},
			0,
			checks.StatusOK, "none of this runtime's stopped; the runtime does not list",
		},
		{
			"of another runtime",
			[]tweak{surfaces(), with(shimProcess('S'), stopped("other", time.Hour))},
			0,
			checks.StatusOK, "the runtime does not list what containerd-shim (pid 6000) serves",
		},
		{
			"ours",
			[]tweak{surfaces(), with(stopped("sandbox1", time.Hour))},
			checks.Certain, checks.StatusWarning,
			"(pid 6000) of web/checkout-1 is stopped",
		},
		{
			"ours and another's",
			[]tweak{surfaces(), with(stopped("sandbox1", time.Hour), two)},
			checks.Certain,
			checks.StatusWarning, "(pid 6000) of web/checkout-1 is stopped",
		},
		{
			"forgotten, and the kubelet cannot remove it",
			[]tweak{
				surfaces(), with(stopped("other", time.Hour)),
				failing,
			},
			checks.Certain, checks.StatusWarning, "is stopped",
		},
		{
			"too young to be listed",
			[]tweak{surfaces(), with(stopped("other", facts.ShimSettled-time.Second))},
			0.75,
			checks.StatusWarning, "is stopped",
		},
		{"without an id", []tweak{surfaces(), with(stopped("", time.Hour))}, 0.75, checks.StatusWarning, "is stopped"},
		{
			"part of a list",
			[]tweak{surfaces(), with(stopped("other", time.Hour)), part},
			0.75, checks.StatusWarning,
			"is stopped",
		},
		{
			"of another endpoint",
			[]tweak{surfaces(), elsewhere, with(stopped("other", time.Hour))},
			0.75,
			checks.StatusWarning, "is stopped",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweaks...)
			got := 0.0
			named := Judge(f)
			if i := index(named, causes.ShimStuck); i >= 0 {
				got = named[i].Confidence
				unknown := mentions(named[i].Evidence.Missing, "this runtime's")
				if unknown != (tt.want < checks.Certain) {
					t.Errorf("missing %q", named[i].Evidence.Missing)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if r := resultOf(t, f, "host.shims"); r.Status != tt.shims || !strings.Contains(r.Summary, tt.words) {
				t.Errorf("host.shims: %s %q, want %s %q", r.Status, r.Summary, tt.shims, tt.words)
			}
			want := checks.StatusWarning
			if tt.want == 0 {
				want = checks.StatusOK
			}
			if r := resultOf(t, f, "host.processes"); r.Status != want {
				t.Errorf("host.processes: %s %q, want %s", r.Status, r.Summary, want)
			}
		})
	}
}

// TestForeignShimIsNoRoot has a list that hangs beside another runtime's stopped shim, and one beside a shim that may
// be ours.
func TestForeignShimIsNoRoot(t *testing.T) {
	shim := shimProcess('T')
	f := node(surfaces(func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shim} }),
		processesOf(daemonProcess(), kubeletProcess('S'), shim), hangs(facts.RPCContainers))
	if got := chain(f); !strings.Contains(got, "ListHang critical < ShimStuck") {
		t.Errorf("a shim of the list of sandboxes: %q", got)
	}
	if c := Judge(f)[0]; c.Code != causes.ShimStuck || c.Confidence != checks.Certain {
		t.Errorf("%s %v: the list of sandboxes names its sandbox", c.Code, c.Confidence)
	}
	// The status of a container hangs; the stopped shim serves nothing that is listed.
	shim.ObjectID = "other"
	f = node(surfaces(func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shim} }),
		processesOf(daemonProcess(), kubeletProcess('S'), shim), statusHangs("container1-0"))
	if got := codes(Judge(f)); slices.Contains(got, causes.ShimStuck) {
		t.Errorf("found %v", got)
	}
}
