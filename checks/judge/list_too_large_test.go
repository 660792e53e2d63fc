package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
)

// sizes gives the containers of each pod entries of so many bytes.
func sizes(bytes ...uint32) tweak {
	return func(f *facts.Input) {
		for i := range f.Measurement.Containers.Containers {
			f.Measurement.Containers.Containers[i].Size = bytes[i/2] // pods have two
		}
		measureLists(f)
	}
}

// TestWayOutOfALargeList wants the way out of a list of large entries by id: a kubelet that is blind acts on no
// deletion.
func TestWayOutOfALargeList(t *testing.T) {
	const mib = 1 << 20
	static := func(f *facts.Input) {
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].ConfigSource = "file"
		}
	}
	dead := func(pod string) tweak {
		return func(f *facts.Input) {
			for i := range f.Measurement.Containers.Containers {
				if c := &f.Measurement.Containers.Containers[i]; c.SandboxID == pod {
					c.State = crictl.ContainerExited
				}
			}
		}
	}
	const remove = "crictl -r unix:///run/containerd/containerd.sock -t 60s rmp "
	gone := func(pod string) []string {
		return []string{
			"kubectl delete pod -n web checkout-" + pod + " --wait=false: " + checks.TouchesPod, remove +
				"-f sandbox" + pod + ": " + checks.TouchesPod,
		}
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string // steps that remove
		why    string   // part of one
	}{
		{
			"one pod is enough",
			[]tweak{sizes(2*mib, 4*mib, 3*mib)},
			append(append(gone("1"), gone("2")...), gone("0")...), "until kdiag pleg finds",
		},
		{
			"two are",
			[]tweak{sizes(5*mib, 6*mib, 4*mib)},
			append(append(gone("1"), gone("0")...), gone("2")...),
			"until kdiag pleg finds",
		},
		{
			"the dead are enough",
			[]tweak{sizes(2*mib, 4*mib, 3*mib), dead("sandbox0")},
			[]string{remove + "sandbox0: " + checks.TouchesExited},
			"no longer runs",
		},
		{
			"the dead are not",
			[]tweak{sizes(mib/2, 9*mib, 3*mib), dead("sandbox0")},
			append(append(gone("1"), gone("2")...),
				remove+"sandbox0: "+checks.TouchesExited), "until kdiag pleg finds",
		},
		{"pods of files come back", []tweak{sizes(2*mib, 4*mib, 3*mib), static}, nil, ""},
		{"not over yet", []tweak{sizes(2*mib, 3*mib, 2*mib)}, nil, ""},
		{"streamed", []tweak{sizes(2*mib, 4*mib, 3*mib), func(f *facts.Input) {
			f.Kubelet.CRIListStreaming, f.Measurement.Containers.Mode = true, crictl.ModeStream
		}}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps := only(t, node(tt.tweaks...), causes.ListTooLarge).NextSteps
			var got, whys []string
			for _, s := range steps {
				whys = append(whys, s.Why)
				if s.Touches != checks.TouchesNothing {
					got = append(got, s.Command+": "+s.Touches)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(strings.Join(whys, "\n"), tt.why) {
				t.Errorf("no step says %q: %q", tt.why, whys)
			}
		})
	}
}

// TestStreamingIsAWayOut names the gate to a kubelet that is blind and does not have it on.
func TestStreamingIsAWayOut(t *testing.T) {
	on := func(f *facts.Input) { f.Kubelet.CRIListStreaming = true }
	for name, tt := range map[string]struct {
		tweaks []tweak
		want   bool
	}{
		"large entries":        {[]tweak{sizes(2<<20, 4<<20, 3<<20)}, true},
		"many entries":         {[]tweak{exited(17000, 100, 1000)}, true},
		"not over yet":         {[]tweak{sizes(2<<20, 3<<20, 2<<20)}, false},
		"on, and of no effect": {[]tweak{sizes(2<<20, 4<<20, 3<<20), on}, false},
	} {
		got := false
		for _, c := range Judge(node(tt.tweaks...)) {
			for _, s := range c.NextSteps {
				got = got || strings.Contains(s.Why, "CRIListStreaming")
			}
		}
		if got != tt.want {
			t.Errorf("%s: a step names CRIListStreaming %v, want %v", name, got, tt.want)
		}
	}
}

// TestHostileSandboxID wants no command with an id that could be one.
func TestHostileSandboxID(t *testing.T) {
	f := node(sizes(2<<20, 4<<20, 3<<20), func(f *facts.Input) {
		for i := range f.Measurement.Containers.Containers {
			f.Measurement.Containers.Containers[i].SandboxID = "-a;reboot"
		}
	})
	for _, s := range only(t, f, causes.ListTooLarge).NextSteps {
		if strings.Contains(s.Command, "reboot") || strings.Contains(s.Command, "rmp") {
			t.Errorf("command %q", s.Command)
		}
	}
}
