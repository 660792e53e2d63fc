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
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// only returns the one cause that facts must have.
func only(t *testing.T, f *facts.Input, code string) checks.Cause {
	t.Helper()
	named := Judge(f)
	if diff := cmp.Diff([]string{code}, codes(named)); diff != "" {
		t.Fatal(diff)
	}
	return named[0]
}

// mentions reports whether a line holds all words.
func mentions(lines []string, words ...string) bool {
	for _, l := range lines {
		found := true
		for _, w := range words {
			found = found && strings.Contains(l, w)
		}
		if found {
			return true
		}
	}
	return false
}

func TestStoppedDaemonIsNamed(t *testing.T) {
	silent := func(f *facts.Input) {
		socket(crictl.ConnectSilent, "")(f)
		f.Measurement.Connect.PeerPID = 4711
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
	}{
		{"the socket names it", []tweak{silent, daemonIn('T', "do_signal_stop")}},
		{"the socket names nobody", []tweak{socket(crictl.ConnectBacklogged, ""), daemonIn('T', "")}},
		{"traced", []tweak{silent, daemonIn('t', "")}},
		{"socket activation", []tweak{
			silent, daemonIn('T', ""),
			func(f *facts.Input) { f.Measurement.Connect.PeerPID = 1 },
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := only(t, node(tt.tweaks...), causes.RuntimeHung)
			if !strings.HasPrefix(c.Summary, "containerd (pid 4711) is stopped") ||
				!strings.Contains(c.Summary, "SIGSTOP") {
				t.Errorf("summary %q", c.Summary)
			}
			if c.NextSteps[0].Command != "kill -CONT 4711" {
				t.Errorf("first step %q", c.NextSteps[0].Command)
			}
			if c.Subject.Kind != "Process" || c.Subject.ID != "4711" || len(c.Subject.Processes) != 1 {
				t.Errorf("subject %+v", c.Subject)
			}
		})
	}
}

func TestPeerOutranksGuess(t *testing.T) {
	docker := host.Process{PID: 900, Name: "dockerd", Role: host.RoleRuntime, State: 'T'}
	c := only(t, node(hangs(everyRPC()...), func(f *facts.Input) { f.Processes = append(f.Processes, docker) }),
		causes.RuntimeHung)
	if c.Subject.ID != "4711" || strings.Contains(c.Summary, "stopped (SIGSTOP)") {
		t.Errorf("subject %+v, summary %q", c.Subject, c.Summary)
	}
}

// TestUninterruptibleDaemon wants drain and reboot only where two looks agree and nobody serves the socket.
func TestUninterruptibleDaemon(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		reboot bool
	}{
		{"two looks, silent", []tweak{socket(crictl.ConnectSilent, ""), blockedFor("rpc_wait")}, true},
		{"two looks, backlogged", []tweak{socket(crictl.ConnectBacklogged, ""), blockedFor("rpc_wait")}, true},
		{"one look, silent", []tweak{socket(crictl.ConnectSilent, ""), daemonIn('D', "rpc_wait")}, false},
		{"two looks, the transport answers", []tweak{hangs(everyRPC()...), blockedFor("rpc_wait")}, false},
		{"one look, the transport answers", []tweak{hangs(everyRPC()...), daemonIn('D', "rpc_wait")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := only(t, node(tt.tweaks...), causes.RuntimeHung)
			for _, want := range []struct {
				command string
				present bool
			}{
				{"systemctl reboot", tt.reboot},
				{"kubectl drain", tt.reboot},
				{"systemctl restart", !tt.reboot},
				{"kill -USR1 4711", !tt.reboot},
				{"ps -o pid,stat,wchan:32,etime,comm -p 4711", !tt.reboot},
			} {
				if hasStep(c, want.command) != want.present {
					t.Errorf("%q among the steps: %v", want.command, !want.present)
				}
			}
			if strings.Contains(c.Summary, "uninterruptible sleep in rpc_wait in two looks") != tt.reboot {
				t.Errorf("summary %q", c.Summary)
			}
		})
	}
}

// hasStep reports whether a cause has a step whose command begins so.
func hasStep(c checks.Cause, command string) bool {
	return slices.ContainsFunc(c.NextSteps, func(s checks.NextStep) bool {
		return strings.HasPrefix(s.Command,
			command)
	})
}

func TestDeadlockedIsNotStopped(t *testing.T) {
	c := only(t, node(hangs(everyRPC()...)), causes.RuntimeHung)
	if !mentions(c.Evidence.For, "the transport answers") {
		t.Errorf("evidence %q", c.Evidence.For)
	}
	if c.NextSteps[0].Command != "kill -USR1 4711" {
		t.Errorf("first step %q", c.NextSteps[0].Command)
	}
}

// frozenFrom makes every call hang that starts at or after d.
func frozenFrom(d time.Duration) tweak { return frozenBetween(d, time.Hour) }

// frozenBetween makes every call hang that starts between two moments since the start.
func frozenBetween(from, to time.Duration) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		during := func(c crictl.Call) bool {
			d := c.Start.Sub(m.Started)
			return d >= from && d < to
		}
		for i := range m.Samples {
			s := &m.Samples[i]
			switch {
			case during(s.Sandboxes):
				s.Sandboxes, s.Containers = lost(s.Sandboxes), crictl.Call{}
			case during(s.Containers):
				s.Containers = lost(s.Containers)
			}
		}
		for i := range m.Sweep.Inspections {
			if in := &m.Sweep.Inspections[i]; during(in.Call) {
				in.Call = lost(in.Call)
			}
		}
	}
}

// late moves the status calls with the given ids to a later time.
func late(by time.Duration, ids ...string) tweak {
	return func(f *facts.Input) {
		for i := range f.Measurement.Sweep.Inspections {
			if in := &f.Measurement.Sweep.Inspections[i]; contains(ids, in.ID) {
				in.Call.Start = in.Call.Start.Add(by)
			}
		}
	}
}

func TestFrozenMidway(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string
	}{
		{"in the sweep", []tweak{frozenFrom(time.Second)}, []string{causes.RuntimeHung}},
		{"between relists", []tweak{frozenFrom(300 * time.Millisecond)}, []string{causes.RuntimeHung}},
		{"for a while", []tweak{
			late(10*time.Second, "container2-0", "container2-1"),
			frozenBetween(time.Second, 5*time.Second),
		}, []string{causes.RuntimeSlow}},
		{
			"three objects of one pod, nobody else left",
			[]tweak{statusHangs("sandbox2", "container2-0", "container2-1")},
			[]string{causes.InspectHang},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, codes(Judge(node(tt.tweaks...)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMostStatusesHang(t *testing.T) {
	ids := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, "container"+string(rune('0'+i/2))+"-"+string(rune('0'+i%2)))
		}
		return out
	}
	// Ten pods of two containers make thirty objects, of which more than twenty must hang.
	twenty := append(ids(18), "sandbox0", "sandbox1")
	only(t, node(pods(10, 2), swept, statusHangs(twenty...)), causes.InspectHang)
	more := append(twenty, "sandbox2")
	c := only(t, node(pods(10, 2), swept, statusHangs(more...)), causes.RuntimeHung)
	if !mentions(c.Evidence.For, "21 of 30 status calls") {
		t.Errorf("evidence %q", c.Evidence.For)
	}
	// The same number among many that answer is a matter of single objects.
	only(t, node(pods(30, 2), swept, statusHangs(more...)), causes.InspectHang)
}

func TestRuntimeGoesAwayMidway(t *testing.T) {
	c := only(t, node(func(f *facts.Input) {
		for i := range f.Measurement.Sweep.Inspections {
			in := &f.Measurement.Sweep.Inspections[i].Call
			in.Code, in.Err = crictl.Unavailable, "error reading from server: EOF"
		}
	}), causes.RuntimeDown)
	if !strings.Contains(c.Summary, "went away") {
		t.Errorf("summary %q", c.Summary)
	}
}

// TestFrozenBetweenSamples is a daemon that is stopped while a series of relists runs: one list hangs, and so does the
// Version that is asked beside it.
func TestFrozenBetweenSamples(t *testing.T) {
	frozen := func(recovers bool) *facts.Input {
		f := node(pods(3, 2))
		m := f.Measurement
		at := now()
		hang := crictl.Call{Method: "ListPodSandbox", Start: at, Elapsed: time.Second, Code: crictl.DeadlineExceeded}
		m.Samples = append(m.Samples, plegbench.Sample{At: at, Sandboxes: hang})
		m.Liveness = []crictl.Call{{
			Method: "Version", Start: at.Add(time.Second / 2), Elapsed: time.Second,
			Code: crictl.DeadlineExceeded,
		}}
		m.Sweep = plegbench.Sweep{
			Total: m.Sweep.Total,
			Reach: "stopped because the runtime no longer answered anything, Version included",
		}
		if recovers {
			ok := crictl.Call{
				Method: "ListPodSandbox", Start: at.Add(3 * time.Second), Elapsed: time.Millisecond,
				Code: crictl.OK,
			}
			m.Samples = append(m.Samples, plegbench.Sample{At: ok.Start, Sandboxes: ok, Containers: ok})
		}
		return f
	}
	only(t, frozen(false), causes.RuntimeHung)
	if got := codes(Judge(frozen(true))); slices.Contains(got, causes.RuntimeHung) {
		t.Errorf("got %v of a runtime that answers again", got)
	}
}
