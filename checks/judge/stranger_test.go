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
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
)

// heldBy has a process behind the socket that is none of the runtime's.
func heldBy(name string) tweak {
	return func(f *facts.Input) {
		role := host.Role("")
		if name == "containerd" {
			role = host.RoleRuntime
		}
		f.Measurement.Connect.PeerPID = 29
		f.Processes = nil
		f.Peer = &host.Process{PID: 29, Name: name, Role: role, State: 'S'}
	}
}

// ttrpc has containerd's socket for its shims in place of that for CRI.
func ttrpc(source crictl.Source) tweak {
	return func(f *facts.Input) {
		at(f.Runtime.Endpoint + ".ttrpc")(f)
		f.Runtime.EndpointSource = string(source)
		socket(crictl.ConnectForeign, "speaks ttrpc, not gRPC")(f)
		f.Measurement.Connect.TTRPC = true
	}
}

// elsewhere asks another runtime than the kubelet's.
func elsewhere(f *facts.Input) {
	f.Runtime.Endpoint, f.Runtime.EndpointSource = "unix:///tmp/containerd/c.sock", string(crictl.SourceFlag)
}

func networkDown(f *facts.Input) {
	f.Measurement.Status.Conditions[1] = crictl.Condition{
		Type: "NetworkReady", Reason: "NetworkPluginNotReady",
		Message: "cni plugin not initialized",
	}
}

// TestWhoHoldsTheSocket has sockets that are not the runtime's of the node. What is well is not restarted for them.
func TestWhoHoldsTheSocket(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tweaks  []tweak
		code    string
		summary string
		never   []string // parts of commands
		always  string
	}{
		{
			"silent",
			[]tweak{socket(crictl.ConnectSilent, ""), heldBy("python3")},
			causes.RuntimeHung,
			"never answers: stopped, or waiting in the kernel; it is not containerd",
			[]string{"USR1", "systemctl"},
			"/proc/29/exe",
		},
		{
			"silent, a daemon that was not among the processes",
			[]tweak{socket(crictl.ConnectSilent, ""), heldBy("containerd")},
			causes.RuntimeHung,
			"containerd (pid 29) accepts connections and never answers", nil, "systemctl restart containerd",
		},
		{
			"garbage",
			[]tweak{socket(crictl.ConnectForeign, "answers something that is not HTTP/2"), heldBy("python3")},
			causes.RuntimeUnsupported,
			"python3 (pid 29), and it is not containerd",
			[]string{"systemctl", "ctr ", "ss -xlp"},
			"/proc/29/exe",
		},
		{
			"no calls but the transport",
			[]tweak{hangs(everyRPC()...), heldBy("python3")},
			causes.RuntimeHung,
			"it is not containerd",
			[]string{"USR1", "systemctl"},
			"/proc/29/exe",
		},
		{
			"ttrpc of the kubelet's",
			[]tweak{ttrpc(crictl.SourceKubelet)},
			causes.RuntimeUnsupported,
			"/run/containerd/containerd.sock.ttrpc is containerd's ttrpc socket, for its shims: no kubelet can use it",
			[]string{"restart"},
			"containerRuntimeEndpoint",
		},
		{
			"not the kubelet's, without a network",
			[]tweak{seen(), networkDown, elsewhere},
			causes.NetworkNotReady,
			"NetworkReady is false",
			[]string{"restart", "/etc/cni"},
			"crictl -r unix:///tmp/containerd/c.sock -t 60s info",
		},
		{
			"not the kubelet's, and hung",
			[]tweak{hangs(everyRPC()...), elsewhere},
			causes.RuntimeHung,
			"containerd (pid 4711)",
			[]string{"restart"},
			"",
		},
		{
			"not the kubelet's, and of a package",
			[]tweak{hangs(everyRPC()...), elsewhere, func(f *facts.Input) { f.Runtime.Endpoint = endpointCRIO }},
			causes.RuntimeHung,
			"containerd (pid 4711)",
			[]string{"restart"},
			"",
		},
		{
			"not the kubelet's, and down",
			[]tweak{socket(crictl.ConnectRefused, "refused"), elsewhere},
			causes.RuntimeDown,
			"nothing listens",
			[]string{"restart"},
			"",
		},
		{
			"CRI disabled",
			[]tweak{
				fails(crictl.Unimplemented, "unknown service runtime.v1.RuntimeService", everyRPC()...),
				func(f *facts.Input) {
					f.Processes = slices.Clone(f.Processes)
					f.Processes[0].Config = "/srv/c.toml"
				}, seen(func(n *facts.Node) {
					n.Folders = good([]host.Folder{{Path: "/srv/c", Role: host.FolderRuntime, PID: 4711}})
				}),
			},
			causes.RuntimeUnsupported,
			"serves no CRI v1",
			[]string{"/etc/containerd", "/var/lib/containerd"},
			"grep -n disabled_plugins /srv/c.toml; ctr -a /run/containerd/containerd.sock plugins ls",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := only(t, node(tt.tweaks...), tt.code)
			if !strings.Contains(c.Summary, tt.summary) {
				t.Errorf("summary %q, want %q", c.Summary, tt.summary)
			}
			var all []string
			for _, s := range c.NextSteps {
				all = append(all, s.Command)
			}
			text := strings.Join(all, "\n")
			for _, never := range tt.never {
				if strings.Contains(text, never) {
					t.Errorf("a step has %q:\n%s", never, text)
				}
			}
			if !strings.Contains(text, tt.always) {
				t.Errorf("no step has %q:\n%s", tt.always, text)
			}
		})
	}
}

// TestNetworkOfAnotherRuntime has the kubelet's network in order, which says nothing of that of another runtime.
func TestNetworkOfAnotherRuntime(t *testing.T) {
	cni := seen(func(n *facts.Node) {
		n.CNI = good(kubelet.CNI{
			ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"},
			File: "10-ptp.conflist", Plugins: []string{"ptp"},
		})
	})
	c := only(t, node(cni, networkDown, elsewhere), causes.NetworkNotReady)
	if !mentions(c.Evidence.Missing, "where this runtime has its CNI configuration") ||
		mentions(c.Evidence.For, "10-ptp.conflist") || c.Subject.Kind != "Socket" {
		t.Errorf("%+v, %+v", c.Evidence, c.Subject)
	}
	if c := only(t, node(cni, networkDown), causes.NetworkNotReady); !mentions(c.Evidence.For, "10-ptp.conflist") {
		t.Errorf("%+v", c.Evidence)
	}
}

func TestNamedTTRPC(t *testing.T) {
	for _, source := range []crictl.Source{crictl.SourceFlag, crictl.SourceEnv} {
		f := node(ttrpc(source))
		if named := Judge(f); len(named) != 0 || !facts.NamedTTRPC(f) || VerdictOf(f, named) != checks.Unknown {
			t.Errorf("%s: causes %v; a socket that was named by mistake tells nothing of the node", source,
				codes(named))
		}
		if got, want := facts.CRISocketBeside(f.Runtime.Endpoint), "its CRI socket is "+
			"unix:///run/containerd/containerd.sock"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestRuntimeDownKeepsKubeletDown has containerd ended, which takes its socket away, and a kubelet that ended for
// want of it.
func TestRuntimeDownKeepsKubeletDown(t *testing.T) {
	noKubelet := func(f *facts.Input) {
		f.Kubelet, f.Runtime.EndpointReason = nil, "containerRuntimeEndpoint in /var/lib/kubelet/config.yaml, of "+
			"a kubelet that does not run"
	}
	gone := seen(func(n *facts.Node) {
		n.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: facts.NoSystemd}
		n.Health = good(kubelet.Health{Ping: &kubelet.Answer{
			URL: "http://127.0.0.1:10248/healthz",
			Err: "connection refused",
		}})
	})
	shims := processesOf(host.Process{PID: 50, Name: "containerd-shim", Role: host.RoleShim, State: 'S'},
		host.Process{PID: 51, Name: "containerd-shim", Role: host.RoleShim, State: 'S'})
	for _, state := range []crictl.ConnectState{crictl.ConnectMissing, crictl.ConnectRefused} {
		f := node(socket(state, "gone"), shims, noKubelet, gone)
		named := Judge(f)
		if diff := cmp.Diff([]string{causes.RuntimeDown, causes.KubeletDown}, codes(named)); diff != "" {
			t.Fatal(diff)
		}
		if named[1].CausedBy != causes.RuntimeDown {
			t.Errorf("%s: caused by %q", state, named[1].CausedBy)
		}
		if c := named[0]; !strings.Contains(c.Summary, "2 shims run without a daemon") ||
			!mentions(c.Evidence.For, "config.yaml, of a kubelet that does not run") {
			t.Errorf("%s: %q, %q", state, c.Summary, c.Evidence.For)
		}
	}
	// A runtime that accepts and is silent has not ended the kubelet.
	named := Judge(node(socket(crictl.ConnectSilent, ""), shims, noKubelet, gone))
	if i := index(named, causes.KubeletDown); i < 0 || named[i].CausedBy != "" {
		t.Errorf("%v", named)
	}
}

// TestStepsWithoutSystemd has what is found on a host with systemd once more on one without.
func TestStepsWithoutSystemd(t *testing.T) {
	without := func(n *facts.Node) { n.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: facts.NoSystemd} }
	for name, tt := range map[string]struct {
		f    *facts.Input
		want []string
	}{
		"down": {node(socket(crictl.ConnectRefused, "refused"), seen(without), processesOf()), []string{
			"grep -rlsw containerd /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab: " +
				checks.TouchesRuntime,
		}},
		"hung": {node(hangs(everyRPC()...), seen(without)), []string{
			"grep -rlsw containerd /etc/init.d /etc/runit /etc/sv /etc/s6 /etc/service /etc/inittab: " +
				checks.TouchesRuntime,
		}},
	} {
		c := Judge(tt.f)[0]
		if diff := cmp.Diff(tt.want, commands(c.NextSteps, "init.d")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, f := range gallery() {
		if f.Node == nil {
			continue
		}
		n := *f.Node
		without(&n)
		f.Node = &n
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				if strings.Contains(s.Command, "systemctl ") || strings.Contains(s.Command, "journalctl ") {
					t.Errorf("%s: %s: %s", name, c.Code, s.Command)
				}
			}
		}
	}
}

// TestNoCommandNamesSystemd has the commands that look at the runtime alone on a host that something else runs.
func TestNoCommandNamesSystemd(t *testing.T) {
	alone := func(tweaks ...tweak) *facts.Input {
		f := node(tweaks...)
		f.Node, f.NoSystemd = nil, true
		return f
	}
	hung := alone(hangs(everyRPC()...))
	slow := alone(takes(3*time.Second, everyRPC()...))
	failed := NewCanaryReport(checks.Header{}, CanaryFacts{
		NoSystemd: true, Runtime: checks.Runtime{
			Endpoint:       "unix:///run/containerd/containerd.sock",
			EndpointSource: "flag",
		},
		Result: canaryRun(canaryFailure(0, canary.Failed, "Unknown: read-only file system")),
	})
	steps := map[string][]checks.NextStep{
		"runtime": NewRuntimeProbe(checks.Header{}, hung).Causes[0].NextSteps,
		"relist":  NewRelistBenchmark(checks.Header{}, slow).Causes[0].NextSteps,
		"canary":  failed.NextSteps,
	}
	for name, all := range steps {
		if len(all) == 0 {
			t.Errorf("%s: no steps", name)
		}
		for _, s := range all {
			if strings.Contains(s.Command, "systemctl ") || strings.Contains(s.Command, "journalctl ") {
				t.Errorf("%s: %s", name, s.Command)
			}
		}
	}
	// With systemd they do, and a simulated runtime plays a node that has it.
	simulated := alone(hangs(everyRPC()...), func(f *facts.Input) {
		f.Runtime.EndpointSource,
			f.Processes = string(crictl.SourceSimulated), nil
	})
	for name, f := range map[string]*facts.Input{"systemd": node(hangs(everyRPC()...)), "simulated": simulated} {
		if len(commands(Judge(f)[0].NextSteps, "systemctl restart containerd")) != 1 {
			t.Errorf("%s: %+v", name, Judge(f)[0].NextSteps)
		}
	}
}

func TestKubeletsNotTaken(t *testing.T) {
	f := node(func(f *facts.Input) {
		f.NotTaken = []crictl.Tried{{What: "kubelet (pid 7)", Why: "runs as user 65534, and a node's kubelet as root"}}
	})
	r := NewReport(checks.Header{}, f)
	if r.Status != checks.Healthy ||
		!mentions(r.Problems, "not taken for this node's kubelet: kubelet (pid 7): runs as user 65534") {
		t.Errorf("%s, problems %q", r.Status, r.Problems)
	}
}
