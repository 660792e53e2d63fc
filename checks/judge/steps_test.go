package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// commands returns the commands of the steps that hold a text, each with what it touches.
func commands(steps []checks.NextStep, text string) []string {
	var out []string
	for _, s := range steps {
		if strings.Contains(s.Command, text) {
			out = append(out, s.Command+": "+s.Touches)
		}
	}
	return out
}

// at gives the runtime another endpoint.
func at(endpoint string) tweak {
	return func(f *facts.Input) {
		k := *f.Kubelet
		k.Endpoint = endpoint
		f.Runtime.Endpoint, f.Kubelet, f.Processes = endpoint, &k, nil
	}
}

const (
	endpointCRIO    = "unix:///run/crio/crio.sock"
	endpointDockerd = "unix:///run/cri-dockerd.sock"
	endpointDocker  = "unix:///run/docker/containerd/containerd.sock"
)

// TestEventedNodeIsHealthy is an ordinary node with evented PLEG: the five minutes between two relists are half of the
// threshold, and no work.
func TestEventedNodeIsHealthy(t *testing.T) {
	evented := func(f *facts.Input) { f.Kubelet.EventedPLEG = true }
	f := node(evented)
	if age := causes.Optional(f.Summary.ProjectedAgeSeconds); age < 5*time.Minute {
		t.Fatalf("age %s, want the period in it", age)
	}
	if named := Judge(f); named != nil {
		t.Errorf("%+v", named)
	}
	if r := lineOf(f, "relist.projection"); r.Status != checks.StatusOK {
		t.Errorf("%+v", r)
	}
	// Its metric is no word of a relist.
	if r := lineOf(node(surfaces(), evented), "kubelet.metrics"); r.Status != checks.StatusOK ||
		strings.Contains(r.Summary, "began") {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		change  func(*plegbench.Summary)
		summary string
	}{
		{func(s *plegbench.Summary) { s.ColdSeconds = new(240.0) }, "4m after its restart"},
		{func(s *plegbench.Summary) { s.ProjectedAgeSeconds = new(700.0) }, "PLEG is last seen active up to 11m40s ago"},
	} {
		f := node(evented, figures(tt.change))
		if c := only(t, f, causes.RelistOverloaded); !strings.Contains(c.Summary, tt.summary) {
			t.Errorf("summary %q, want %q", c.Summary, tt.summary)
		}
		if r := lineOf(f, "relist.projection"); r.Status == checks.StatusOK {
			t.Errorf("%+v", r)
		}
	}
}

func TestRestartOfDocker(t *testing.T) {
	const docker = "systemctl restart docker: " + checks.TouchesNode
	const shim = "systemctl start docker; systemctl restart cri-docker: " + checks.TouchesRuntime
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string
	}{
		{"docker may be at fault", []tweak{hangs(everyRPC()...), at(endpointDockerd)}, []string{shim}},
		{
			"cri-dockerd is silent itself",
			[]tweak{socket(crictl.ConnectSilent, ""), at(endpointDockerd)},
			[]string{shim},
		},
		{
			"nothing listens",
			[]tweak{socket(crictl.ConnectRefused, "refused"), at(endpointDockerd)},
			[]string{shim},
		},
		{"docker's containerd", []tweak{hangs(everyRPC()...), at(endpointDocker)}, []string{docker}},
		{
			"docker's containerd is down",
			[]tweak{socket(crictl.ConnectRefused, "refused"), at(endpointDocker)},
			[]string{docker},
		},
		{
			"CRI-O",
			[]tweak{hangs(everyRPC()...), at(endpointCRIO)},
			[]string{"systemctl restart crio: " + checks.TouchesRuntime},
		},
	} {
		c := Judge(node(tt.tweaks...))[0]
		if diff := cmp.Diff(tt.want, commands(c.NextSteps, "systemctl restart")); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		for _, s := range c.NextSteps {
			if s.Command == "systemctl restart docker" &&
				!strings.Contains(s.Why, "Stops all containers unless docker info shows Live Restore Enabled: true") {
				t.Errorf("%s: %q", tt.name, s.Why)
			}
		}
	}
}

// TestNothingIsKilledForAnAnswer wants only looks where no call is held up, or where another cause holds it up.
func TestNothingIsKilledForAnAnswer(t *testing.T) {
	runc := host.Process{
		PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container0-1", State: 'D',
		Lasting: true, Started: now().Add(-4 * time.Minute),
	}
	shim := host.Process{PID: 5000, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox0", State: 'S'}
	for name, f := range map[string]*facts.Input{
		"slow": node(processesOf(runc, shim),
			func(f *facts.Input) { f.Measurement.Sweep.Inspections[4].Call.Elapsed = 3 * time.Second }),
		"failing": node(processesOf(runc, shim), func(f *facts.Input) {
			c := &f.Measurement.Sweep.Inspections[4].Call
			c.Code, c.Err = crictl.Internal, "bucket missing"
		}),
		"behind the image service": node(processesOf(runc, shim), hangs(facts.RPCImages), statusHangs("container0-1")),
	} {
		named := Judge(f)
		i := slices.IndexFunc(named, func(c checks.Cause) bool { return c.Code == causes.InspectHang })
		if i < 0 {
			t.Fatalf("%s: %q", name, codes(named))
		}
		for _, s := range named[i].NextSteps {
			if s.Touches != checks.TouchesNothing {
				t.Errorf("%s: %+v", name, s)
			}
		}
		for _, want := range []string{"inspect -q container0-1", "/proc/5001/stack", "journalctl"} {
			if len(commands(named[i].NextSteps, want)) == 0 {
				t.Errorf("%s: no step with %q", name, want)
			}
		}
	}
}

// TestOneLookIsNoReboot wants a reboot for an object's process only where two looks agree.
func TestOneLookIsNoReboot(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		runc := host.Process{
			PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0", State: 'D',
			Lasting: lasting,
		}
		c := only(t, node(statusHangs("container1-0"), processesOf(runc)), causes.InspectHang)
		if hasStep(c, "systemctl reboot") != lasting ||
			hasStep(c, "ps -o pid,stat,wchan:32,etime,comm -p 5001") == lasting {
			t.Errorf("lasting %v: %+v", lasting, c.NextSteps)
		}
		for _, s := range c.NextSteps {
			if strings.Contains(s.Command, "--delete-emptydir-data") &&
				!strings.Contains(s.Why, "loses the data in emptyDir volumes") {
				t.Errorf("%+v", s)
			}
		}
	}
}

// TestListHangKillsOne wants the processes of the named object, or the single oldest, never all that are old.
func TestListHangKillsOne(t *testing.T) {
	oci := func(pid int, id string, age time.Duration) host.Process {
		return host.Process{
			PID: pid, Name: "runc", Role: host.RoleOCI, ObjectID: id, State: 'S',
			Started: now().Add(-age),
		}
	}
	all := processesOf(oci(1, "x", time.Hour), oci(51, "container1-0", time.Minute),
		oci(52, "container2-0", 9*time.Minute), oci(53, "container2-1", 4*time.Minute))
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string
	}{
		{
			"named",
			[]tweak{hangs(facts.RPCContainers), statusHangs("container1-0"), all},
			[]string{"kill -KILL 51: one process"},
		},
		{"not named", []tweak{
			hangs(facts.RPCContainers), all,
			func(f *facts.Input) { f.Processes = f.Processes[1:] },
		}, []string{"kill -KILL 52: one process"}},
		{"the whole runtime", []tweak{
			hangs(everyRPC()...), all,
			func(f *facts.Input) { f.Processes = f.Processes[1:] },
		}, []string{"kill -KILL 52: one process"}},
	} {
		c := Judge(node(tt.tweaks...))[0]
		if diff := cmp.Diff(tt.want, commands(c.NextSteps, "kill -KILL")); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if ps := commands(c.NextSteps, "ps -eo pid,ppid"); c.Code == causes.ListHang &&
			(len(ps) == 1) != (tt.name == "not named") {
			t.Errorf("%s: %q", tt.name, ps)
		}
	}
}

// TestConmonIsNotKilled wants the container stopped by name: without conmon it would run on unwatched.
func TestConmonIsNotKilled(t *testing.T) {
	conmon := host.Process{PID: 6000, Name: "conmon", Role: host.RoleShim, ObjectID: "container1-0", State: 'S'}
	pods := host.Process{PID: 6001, Name: "conmonrs", Role: host.RoleShim, ObjectID: "sandbox1", State: 'S'}
	for _, f := range []*facts.Input{
		node(statusHangs("container1-0"), processesOf(conmon, pods)),
		node(hangs(facts.RPCContainers), statusHangs("container1-0"), processesOf(conmon, pods)),
	} {
		steps := Judge(f)[0].NextSteps
		if kills := commands(steps, "kill -KILL"); len(kills) > 0 {
			t.Errorf("%q", kills)
		}
		if stops := commands(steps, " stop container1-0"); len(stops) != 1 ||
			!strings.HasSuffix(stops[0], checks.TouchesPod) {
			t.Errorf("%q", stops)
		}
	}
	conmon.State = 'T'
	c := only(t, node(statusHangs("container1-0"), processesOf(conmon)), causes.InspectHang)
	if !hasStep(c, "kill -CONT 6000") {
		t.Errorf("a stopped conmon may be continued: %+v", c.NextSteps)
	}
}

func TestDiskOfTheRuntime(t *testing.T) {
	for endpoint, root := range map[string]string{
		"unix:///run/containerd/containerd.sock": "/var/lib/containerd",
		endpointCRIO:                             "/var/lib/containers",
		endpointDockerd:                          "/var/lib/docker",
		endpointDocker:                           "/var/lib/docker",

		"unix:///run/k3s/containerd/containerd.sock":           "/var/lib/rancher",
		"unix:///run/k0s/containerd.sock":                      "/var/lib/k0s",
		"unix:///var/snap/microk8s/common/run/containerd.sock": "/var/snap/microk8s/common",
		"unix:///run/mine.sock":                                "/var/lib",
	} {
		want := []string{fmt.Sprintf("df -h %s /run; df -i %s /run: %s", root, root, checks.TouchesNothing)}
		for _, f := range []*facts.Input{
			node(socket(crictl.ConnectRefused, "refused"), at(endpoint)),
			node(hangs(facts.RPCImages), at(endpoint)),
			node(fails(crictl.Unimplemented, "unknown service runtime.v1.RuntimeService", everyRPC()...), at(endpoint)),
		} {
			c := Judge(f)[0]
			if diff := cmp.Diff(want, commands(c.NextSteps, "df -h")); diff != "" {
				t.Errorf("%s, %s: %s", endpoint, c.Code, diff)
			}
		}
	}
}

// TestCleanUpNamesNumbers wants the clean-up of dead sandboxes with their number, and no number that is not known to
// be all.
func TestCleanUpNamesNumbers(t *testing.T) {
	dead := func(f *facts.Input) {
		m := f.Measurement
		pod := &crictl.Pod{Namespace: "batch", Name: "report", UID: "uid-report"}
		for i := range 1001 { // the newest first, as runtimes list them
			m.Sandboxes.Sandboxes = append(m.Sandboxes.Sandboxes, crictl.PodSandbox{
				ID: fmt.Sprintf("dead%d", i), Pod: pod, State: crictl.SandboxNotReady, CreatedAt: now().Add(-time.Duration(i) * time.Hour).UnixNano(),
			})
		}
	}
	why := func(tweaks ...tweak) string {
		for _, s := range only(t, node(tweaks...), causes.TooManyExited).NextSteps {
			if s.Command == "kdiag gc-exited --yes --audit gc-exited.jsonl" {
				return s.Why
			}
		}
		return ""
	}
	if got := why(dead); !strings.HasPrefix(got, "Removes 1,000 dead sandboxes, oldest") {
		t.Errorf("got %q", got)
	}
	part := why(dead, func(f *facts.Input) { f.Measurement.Containers.Complete = false })
	if !strings.HasPrefix(part, "Removes 1,000 dead sandboxes and more, oldest") {
		t.Errorf("got %q", part)
	}
	if got := why(exited(2000, 1, 1000)); got != "" {
		t.Errorf("all are the newest, so there is nothing to remove: %q", got)
	}
	flagged := only(t, node(dead, func(f *facts.Input) { f.Runtime.EndpointSource = "flag" }), causes.TooManyExited)
	want := []string{"kdiag gc-exited --yes --audit gc-exited.jsonl --runtime-endpoint " +
		"unix:///run/containerd/containerd.sock: " + checks.TouchesExited}
	if diff := cmp.Diff(want, commands(flagged.NextSteps, "--yes")); diff != "" {
		t.Error(diff)
	}
}

// TestStepsNameTheNode wants a drain that is pasted on another machine to meet this node.
func TestStepsNameTheNode(t *testing.T) {
	named := func(name string) func(*facts.Node) { return func(n *facts.Node) { n.Settings.Value.NodeName = name } }
	uncertain := func(n *facts.Node) { n.Certificates = facts.Reading[[]kubelet.Certificate]{Skipped: true} }
	const hint = "Pasted elsewhere, it needs the node's name for $(hostname)."
	for _, tt := range []struct {
		name    string
		tweak   tweak
		drain   string
		hinted  bool
		profile string
	}{
		{
			"as its settings have it", surfaces(named("ip-10-0-1-5.ec2.internal")),
			"kubectl cordon ip-10-0-1-5.ec2.internal", false, `kubectl get --raw "/api/v1/nodes/ip-10-0-1-5.ec2.internal/proxy/debug/pprof/goroutine?debug=2"`,
		},
		{
			"as its certificate has it", surfaces(named("")), "kubectl cordon node-7", false,
			`kubectl get --raw "/api/v1/nodes/node-7/proxy/debug/pprof/goroutine?debug=2"`,
		},
		{
			"nobody knows it", surfaces(named(""), uncertain), `kubectl cordon "$(hostname)"`, true,
			`kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
		},
		{
			"a name that no shell should see", surfaces(named("x; reboot"), uncertain), `kubectl cordon "$(hostname)"`,
			true, `kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
		},
		{
			"the node was not looked at", func(*facts.Input) {}, `kubectl cordon "$(hostname)"`, true,
			`kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := only(t, node(tt.tweak, said(incident(2*time.Minute, 4*time.Second))), causes.PLEGUnhealthy)
			if got := commands(c.NextSteps, "cordon"); !slices.Equal(got,
				[]string{tt.drain + ": " + checks.TouchesScheduler}) {
				t.Errorf("%q", got)
			}
			if got := commands(c.NextSteps, "pprof"); !slices.Equal(got,
				[]string{tt.profile + ": " + checks.TouchesNothing}) {
				t.Errorf("%q", got)
			}
			for _, s := range c.NextSteps {
				if want := tt.hinted && strings.Contains(s.Command, "cordon"); strings.HasSuffix(s.Why, hint) != want {
					t.Errorf("%s: %q", s.Command, s.Why)
				}
			}
		})
	}
}

// TestRuntimeNotReadyWaits wants a runtime that loads its state to be waited for, and every restart to come after that.
func TestRuntimeNotReadyWaits(t *testing.T) {
	for name, tweak := range map[string]tweak{
		"says so":         condition(0, false),
		"not initialised": fails(crictl.Unavailable, "server is not initialized yet", everyRPC()...),
		"docker":          func(f *facts.Input) { condition(0, false)(f); at(endpointDockerd)(f) },
	} {
		c := only(t, node(tweak), causes.RuntimeNotReady)
		waits := false
		for _, s := range c.NextSteps {
			switch {
			case s.Touches == checks.TouchesNothing:
				waits = waits || s.Command == "kdiag runtime" && strings.Contains(s.Why, "wait: ") &&
					strings.Contains(s.Why, "a restart begins it anew")
			case !waits || !strings.HasPrefix(s.Why, "Only if it is not loading its state, or that never ends. "):
				t.Errorf("%s: %q: %q", name, s.Command, s.Why)
			}
		}
		if !waits {
			t.Errorf("%s: nobody says to wait: %+v", name, c.NextSteps)
		}
	}
}
