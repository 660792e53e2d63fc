package judge

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/plegbench"
)

// A remedy is what must be among the next steps of a cause, and what must not: parts of "COMMAND: what it touches",
// with " | " between them.
type remedy struct {
	name, code, must, never string
	tweaks                  []tweak
}

func step(name, code, must, never string, tweaks ...tweak) remedy {
	return remedy{name, code, must, never, tweaks}
}

func lines(steps []checks.NextStep) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Command+": "+s.Touches)
	}
	return out
}

func adviseAll(t *testing.T, rows []remedy) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			i := index(named, tt.code)
			if i < 0 {
				t.Fatalf("found %q", codes(named))
			}
			got := lines(named[i].NextSteps)
			for part := range strings.SplitSeq(tt.must, " | ") {
				if !mentions(got, part) {
					t.Errorf("no step with %q:\n%s", part, strings.Join(got, "\n"))
				}
			}
			for part := range strings.SplitSeq(tt.never, " | ") {
				if part != "" && mentions(got, part) {
					t.Errorf("a step with %q:\n%s", part, strings.Join(got, "\n"))
				}
			}
		})
	}
}

const (
	endpointK3s     = "unix:///run/k3s/containerd/containerd.sock"
	endpointCRIO    = "unix:///run/crio/crio.sock"
	endpointDockerd = "unix:///run/cri-dockerd.sock"
	endpointDocker  = "unix:///run/docker/containerd/containerd.sock"
)

// TestStepsOfTheRuntime holds what is restarted, killed and looked at for a runtime, and what never.
func TestStepsOfTheRuntime(t *testing.T) {
	hung, down := hangs(everyRPC()...), socket(crictl.ConnectRefused, "refused")
	silent := socket(crictl.ConnectSilent, "")
	without := surfaces(noSystemd)
	configured := func(f *facts.Input) {
		f.Processes[0].Config = "/srv/c.toml"
		seen(func(n *facts.Node) {
			n.Folders = good([]host.Folder{{Path: "/srv/c", Role: host.FolderRuntime, PID: 4711}})
		})(f)
	}
	network := func(f *facts.Input) {
		seen(func(n *facts.Node) {
			n.CNI = good(kubelet.CNI{ConfDir: "/etc/cni/net.d", File: "10-ptp.conflist", Plugins: []string{"ptp"}})
		})(f)
		condition(1, false)(f)
	}
	asked := func(source string, state crictl.ConnectState) tweak {
		return func(f *facts.Input) { socket(state, "")(f); f.Runtime.EndpointSource = source }
	}
	unimplemented := fails(crictl.Unimplemented, unknownService, everyRPC()...)
	limit := func(n int) tweak {
		return fails(
			crictl.ResourceExhausted,
			fmt.Sprintf("grpc: trying to send message larger than max (90000000 vs. %d)", n),
			facts.RPCContainers,
		)
	}
	const restart = "systemctl restart containerd: the runtime"
	const afterTwoLooks = "systemctl reboot: the node | kubectl drain"
	const first = "kill -USR1 4711 | ps -o pid,stat,wchan:32,etime,comm -p 4711 | systemctl restart"
	adviseAll(t, []remedy{
		step("stopped", "RuntimeHung", "kill -CONT 4711", "", silent, daemonIn('T', "do_signal_stop")),
		step("deadlocked", "RuntimeHung", "kill -USR1 4711 | "+restart, "reboot", hung),
		step("asleep in two looks, silent", "RuntimeHung", afterTwoLooks, "USR1 | systemctl restart", silent,
			blockedFor("rpc_wait")),
		step("asleep in two looks, backlogged", "RuntimeHung", afterTwoLooks, "USR1",
			socket(crictl.ConnectBacklogged, ""), blockedFor("rpc_wait")),
		step("asleep in one look, silent", "RuntimeHung", first, "reboot | drain", silent, daemonIn('D', "rpc_wait")),
		step("asleep in two looks, the transport answers", "RuntimeHung", first, "reboot | drain", hung,
			blockedFor("rpc_wait")),
		step("docker may be at fault", "RuntimeHung",
			"systemctl start docker; systemctl restart cri-docker: the runtime", "", hung,
			at(endpointDockerd)),
		step("cri-dockerd is silent itself", "RuntimeHung", "systemctl restart cri-docker: the runtime",
			"restart docker", silent, at(endpointDockerd)),
		step("nothing listens for docker", "RuntimeDown",
			"systemctl start docker; systemctl restart cri-docker: the runtime", "", down, at(endpointDockerd)),
		step("docker's containerd", "RuntimeHung", "systemctl restart docker: the node", "", hung, at(endpointDocker)),
		step("k3s on an agent", "RuntimeHung", "systemctl restart k3s-agent: the kubelet", "", hung, at(endpointK3s),
			func(f *facts.Input) { f.Kubelet.Name = "k3s-agent" }),
		step("CRI-O", "RuntimeHung", "systemctl restart crio: the runtime", "", hung, at(endpointCRIO)),
		step("no systemd, down", "RuntimeDown", "grep -rlsw containerd /etc/init.d", "systemctl | journalctl", down,
			without, processesOf()),
		step("no systemd, hung", "RuntimeHung", "grep -rlsw containerd /etc/init.d", "systemctl | journalctl", hung,
			without),
		step("simulated, on a host without systemd", "RuntimeHung", restart, "", hung, askedBy(crictl.SourceSimulated),
			func(f *facts.Input) { f.NoSystemd = true }),
		step("another process holds the socket", "RuntimeHung", "/proc/29/exe", "USR1 | systemctl", silent,
			heldBy("python3")),
		step("a runtime that was not among the processes", "RuntimeHung", restart, "", silent, heldBy("containerd")),
		step("another process answers", "RuntimeUnsupported", "/proc/29/exe", "systemctl | ctr  | ss -xlp",
			socket(crictl.ConnectForeign, ""), heldBy("python3")),
		step("ttrpc of the kubelet's", "RuntimeUnsupported", "containerRuntimeEndpoint", "restart",
			ttrpc(crictl.SourceKubelet)),
		step("CRI disabled", "RuntimeUnsupported",
			"grep -n disabled_plugins /srv/c.toml; ctr -a /run/containerd/containerd.sock plugins ls",
			"/etc/containerd | /var/lib/containerd", unimplemented, configured),
		step("not the kubelet's, without a network", "NetworkNotReady",
			"crictl -r unix:///tmp/containerd/c.sock -t 60s info", "restart | /etc/cni", network, elsewhere),
		step("the kubelet's, without a network", "NetworkNotReady", "/etc/cni", "", network),
		step("not the kubelet's, and hung", "RuntimeHung", "kill -USR1 4711: a dump", "restart", hung, elsewhere),
		step("not the kubelet's, and down", "RuntimeDown", "", "restart", down, elsewhere),
		step("a path that was given, missing", "RuntimeDown", "kdiag pleg: nothing", "",
			asked("flag", crictl.ConnectMissing)),
		step("a path of the kubelet's, missing", "RuntimeDown", "", "kdiag pleg",
			asked("kubelet", crictl.ConnectMissing)),
		step("starting", "RuntimeNotReady", "kdiag runtime: nothing", "", condition(0, false)),
		step("the oldest runc, where nothing is named", "RuntimeHung", "kill -KILL 52: one process",
			"kill -KILL 51 | kill -KILL 53", hung, threeRuncs, noDaemon),
		step("the limit of CRI-O", "ListTooLarge",
			"grep -rsnE 'max_(send|recv)_(message|msg)_size' /etc/containerd /etc/crio: nothing", "",
			limit(83886080), at(endpointCRIO)),
		step("a benchmark's root", "RuntimeSlow", "grep . /proc/pressure", "", takes(3*time.Second, everyRPC()...)),
	})
	for endpoint, root := range map[string]string{
		"unix:///run/containerd/containerd.sock": "/var/lib/containerd",
		endpointCRIO:                             "/var/lib/containers",
		endpointDockerd:                          "/var/lib/docker",
		endpointK3s:                              "/var/lib/rancher",
		"unix:///run/k0s/containerd.sock":        "/var/lib/k0s",
		"unix:///var/snap/microk8s/common/run/containerd.sock": "/var/snap/microk8s/common",
		"unix:///run/mine.sock":                                "/var/lib",
	} {
		disk := fmt.Sprintf("df -h %s /run; df -i %s /run: nothing", root, root)
		adviseAll(t, []remedy{step("down at "+endpoint, "RuntimeDown", disk, "", down, at(endpoint))})
	}
}

// threeRuncs are an old one of something else, and three of containers.
func threeRuncs(f *facts.Input) {
	for pid, age := range map[int]time.Duration{51: time.Minute, 52: 9 * time.Minute, 53: 4 * time.Minute} {
		id := map[int]string{51: "container1-0", 52: "container2-0", 53: "container2-1"}[pid]
		f.Processes = append(f.Processes, host.Process{
			PID: pid, Name: "runc", Role: host.RoleOCI, ObjectID: id, State: 'S', Started: now().Add(-age),
		})
	}
}

func noDaemon(f *facts.Input) {
	f.Processes = slices.DeleteFunc(f.Processes, func(p host.Process) bool { return p.Role == host.RoleRuntime })
}

// TestStepsOfObjects holds what is killed, stopped and removed for single objects.
func TestStepsOfObjects(t *testing.T) {
	runc := func(state byte, lasting bool) tweak {
		return processesOf(
			host.Process{
				PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0", State: state,
				Lasting: lasting, Started: now().Add(-4 * time.Minute),
			},
			host.Process{PID: 5000, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox1", State: 'S'},
		)
	}
	conmon := func(state byte) tweak {
		return processesOf(
			host.Process{PID: 6000, Name: "conmon", Role: host.RoleShim, ObjectID: "container1-0", State: state},
		)
	}
	container, list := statusHangs("container1-0"), hangs(facts.RPCContainers)
	fifth := statusOf("container1-0")
	from := func(source string) tweak {
		return func(f *facts.Input) {
			for i := range f.Measurement.Sandboxes.Sandboxes {
				f.Measurement.Sandboxes.Sandboxes[i].ConfigSource = source
			}
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
	evil := func(f *facts.Input) {
		for i := range f.Measurement.Containers.Containers {
			f.Measurement.Containers.Containers[i].SandboxID = "-a;reboot"
		}
	}
	const mib, rmp = 1 << 20, " rmp -f sandbox1: one pod"
	const delete1 = "kubectl delete pod -n web checkout-1 --wait=false: one pod"
	const looks = "inspect -q container1-0 | /proc/5001/stack | journalctl"
	adviseAll(t, []remedy{
		step("a runc at work", "InspectHang",
			"kill -KILL 5001: one process | kill -KILL 5000: one pod | kubectl delete pod", "reboot", container,
			runc('S', false)),
		step("a runc asleep in one look", "InspectHang", "ps -o pid,stat,wchan:32,etime,comm -p 5001", "reboot",
			container, runc('D', false)),
		step("a runc asleep in two looks", "InspectHang", "systemctl reboot",
			"ps -o pid,stat,wchan:32,etime,comm -p 5001", container, runc('D', true)),
		step("a slow status", "InspectHang", looks, "kill -KILL | one p", runc('D', true),
			statuses(fifth, func(c crictl.Call) crictl.Call { c.Elapsed = 3 * time.Second; return c })),
		step("a failing status", "InspectHang", looks, "kill -KILL | one p", runc('D', true),
			statuses(fifth, withError(crictl.Internal, "bucket missing"))),
		step("behind the image service", "InspectHang", looks, "kill -KILL | one p", runc('D', true),
			hangs(facts.RPCImages), container),
		step("a list and a named object", "ListHang", "kill -KILL 51: one process", "kill -KILL 52 | kill -KILL 53",
			list, container, threeRuncs),
		step("a list alone", "ListHang", "kill -KILL 52: one process | ps -eo pid,ppid",
			"kill -KILL 51 | kill -KILL 53", list, threeRuncs, noDaemon),
		step("conmon is not killed", "InspectHang", " stop container1-0: one pod", "kill -KILL", container,
			conmon('S')),
		step("conmon is not killed for a list", "ListHang", " stop container1-0: one pod", "kill -KILL", list,
			container, conmon('S')),
		step("a stopped conmon", "InspectHang", "kill -CONT 6000", "", container, conmon('T')),
		step("a pod of the API server", "InspectHang", "kubectl delete pod", "", from("api"), container),
		step("a pod of a file", "InspectHang", "", "kubectl delete pod", from("file"), container),
		step("a pod of a URL", "InspectHang", "", "kubectl delete pod", from("http"), container),
		step("exited", "TooManyExited",
			"kdiag gc-exited: nothing | kdiag gc-exited --yes --audit gc-exited.jsonl: exited only", "rm -a",
			exited(2000, 100, 1000)),
		step("exited, by an endpoint that was given", "TooManyExited",
			"--audit gc-exited.jsonl --runtime-endpoint unix:///run/containerd/containerd.sock", "",
			exited(2000, 100, 1000), func(f *facts.Input) { f.Runtime.EndpointSource = "flag" }),
		step("exited, and all are the newest", "TooManyExited", "kubectl get pods", "--yes", exited(2000, 1, 1000)),
		step("large entries", "ListTooLarge", delete1+" | "+rmp+" | rmp -f sandbox2 | rmp -f sandbox0", "",
			sizes(2*mib, 4*mib, 3*mib)),
		step("large entries, and the dead are enough", "ListTooLarge", " rmp sandbox0: exited only", "rmp -f",
			sizes(2*mib, 4*mib, 3*mib), dead("sandbox0")),
		step("large entries, and the dead are not", "ListTooLarge", delete1+" | "+rmp+" | rmp sandbox0: exited only",
			"", sizes(mib/2, 9*mib, 3*mib), dead("sandbox0")),
		step("large entries of files", "ListTooLarge", "-o json", "rmp", sizes(2*mib, 4*mib, 3*mib), from("file")),
		step("large, not over yet", "ListTooLarge", "-o json", "rmp", sizes(2*mib, 3*mib, 2*mib)),
		step("large, streamed", "ListTooLarge", "-o json", "rmp", sizes(2*mib, 4*mib, 3*mib), streams),
		step("large, with an id that no shell should see", "ListTooLarge", "-o json", "rmp | reboot",
			sizes(2*mib, 4*mib, 3*mib), evil),
	})
	gate := func(tweaks ...tweak) bool {
		return slices.ContainsFunc(Judge(node(tweaks...)), func(c checks.Cause) bool {
			return slices.ContainsFunc(
				c.NextSteps,
				func(s checks.NextStep) bool { return strings.Contains(s.Why, "CRIListStreaming") },
			)
		})
	}
	on := func(f *facts.Input) { f.Kubelet.CRIListStreaming = true }
	large := sizes(2*mib, 4*mib, 3*mib)
	if !gate(large) || !gate(exited(17000, 100, 1000)) || gate(sizes(2*mib, 3*mib, 2*mib)) || gate(large, on) {
		t.Error("CRIListStreaming is the way out of a list that is too large, for a kubelet that does not have it on")
	}
}

// TestLeastIsLostFirst checks that a pod is deleted through the API before its shim is killed, and that what writes a
// dump is no mere look.
func TestLeastIsLostFirst(t *testing.T) {
	f := node(statusHangs("container1-0"))
	f.Processes = append(f.Processes, host.Process{
		PID: 5000, Name: "containerd-shim", Role: host.RoleShim, State: 'S', ObjectID: "sandbox1",
	})
	var got []string
	for _, s := range only(t, f, causes.InspectHang).NextSteps {
		word, _, _ := strings.Cut(s.Command, " -")
		got = append(got, word+": "+s.Touches)
	}
	dump, deletes := slices.Index(got, "kill: a dump"), slices.Index(got, "kubectl delete pod: one pod")
	kill := slices.Index(got, "kill: one pod")
	if dump < 0 || deletes < dump || kill < deletes {
		t.Errorf("%q", got)
	}
}

// statusOf picks the status call of one object.
func statusOf(id string) func(int, plegbench.Inspection) bool {
	return func(_ int, i plegbench.Inspection) bool { return i.ID == id }
}

// sizes gives the containers of each pod entries of so many bytes.
func sizes(bytes ...uint32) tweak {
	return func(f *facts.Input) {
		for i := range f.Measurement.Containers.Containers {
			f.Measurement.Containers.Containers[i].Size = bytes[i/2] // pods have two
		}
		measureLists(f)
	}
}

// TestStepsOfTheHost holds what is done about consumers, mounts and read-only file systems.
func TestStepsOfTheHost(t *testing.T) {
	memory := func(c host.Consumer) tweak { return shortOfMemory(host.Consumers{Memory: []host.Consumer{c}}) }
	static := func(f *facts.Input) {
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].ConfigSource = "file"
		}
	}
	noLists := func(f *facts.Input) { f.Measurement.Sandboxes, f.Measurement.Containers = nil, nil }
	evil, outside := group("uid-$(reboot)", 90*gib), unit("a b.service", 50*gib)
	evil.Dir, outside.Dir = "/sys/fs/cgroup/'; reboot; '", "/sys/fs/cgroup/../../etc"
	held := func(set func(*host.Memory)) tweak {
		return func(f *facts.Input) { shortOfMemory(host.Consumers{})(f); set(&f.Node.Memory.Value) }
	}
	readOnly := func(all bool) tweak {
		return seen(func(n *facts.Node) {
			n.Spaces.Value[0].ReadOnly = all
			n.Spaces.Value[1] = host.Space{
				Folders: []host.Folder{{Path: "/run/containerd", Role: host.FolderState}}, Mount: "/run",
				Type: "tmpfs", Size: gib, ReadOnly: true,
			}
		})
	}
	name := func(name string, changes ...func(*facts.Node)) tweak {
		named := func(n *facts.Node) { n.Settings.Value.NodeName = name }
		return func(f *facts.Input) {
			surfaces(append(changes, named)...)(f)
			f.Node.Health.Value.Metrics = nil // which would show the recovery
			logs(incident(2*time.Minute, 4*time.Second))(f)
		}
	}
	noCertificates := func(n *facts.Node) { n.Certificates = facts.Reading[[]kubelet.Certificate]{Skipped: true} }
	const anyName = `kubectl cordon "$(hostname)": new pods only | nodes/$(hostname)/proxy/debug/pprof`
	adviseAll(t, []remedy{
		step("a pod", "MemoryPressure", "kubectl delete pod -n web checkout-1 --wait=false: one pod", "",
			memory(group("uid-1", 90*gib))),
		step("a static pod", "MemoryPressure", "ls -l /etc/kubernetes/manifests: nothing", "kubectl delete",
			memory(group("uid-1", 90*gib)), static),
		step("a pod that is not listed", "MemoryPressure", "ls -d /var/log/pods/*_0f4f4cd2-7b1a: nothing", "",
			memory(group("0f4f4cd2-7b1a", 90*gib))),
		step("a pod without lists", "MemoryPressure", "ls -d /var/log/pods/*_uid-1: nothing", "",
			memory(group("uid-1", 90*gib)), noLists),
		step("a login", "MemoryPressure", "systemctl kill --signal=SIGKILL session-3.scope: one process", "",
			memory(unit("session-3.scope", 90*gib))),
		step("a unit", "MemoryPressure", "systemctl status --no-pager fluentd.service: nothing", "",
			memory(unit("fluentd.service", 90*gib))),
		step("a hostile group", "MemoryPressure", "", "reboot | ..", memory(evil)),
		step("a group outside", "MemoryPressure", "", "a b | ..", memory(outside)),
		step("a tenth in tmpfs", "MemoryPressure", "df -t tmpfs", "slabtop",
			held(func(m *host.Memory) { m.Shmem = 10 * gib })),
		step("less in tmpfs", "MemoryPressure", "", "df -t tmpfs", held(func(m *host.Memory) { m.Shmem = 10*gib - 1 })),
		step("a tenth in the kernel", "MemoryPressure", "slabtop", "",
			held(func(m *host.Memory) { m.SlabUnreclaimable = 10 * gib })),
		step("less in the kernel", "MemoryPressure", "", "slabtop",
			held(func(m *host.Memory) { m.SlabUnreclaimable = 10*gib - 1 })),
		step("the state is read-only", "IOStall", "mount -o remount,rw /run", "systemctl reboot", readOnly(false)),
		step("the disk is read-only too", "IOStall", "mount -o remount,rw /run | systemctl reboot", "", readOnly(true)),
		step("a dead mount", "FilesystemHung", "", "restart kubelet", surfaces(deadMount)),
		step("the node by its settings", "PLEGUnhealthy",
			"kubectl cordon ip-10-0-1-5.ec2.internal: new pods only | nodes/ip-10-0-1-5.ec2.internal/proxy", "hostname",
			name("ip-10-0-1-5.ec2.internal")),
		step("the node by its certificate", "PLEGUnhealthy", "kubectl cordon node-7: new pods only", "hostname",
			name("")),
		step("the node by no name", "PLEGUnhealthy", anyName, "", name("", noCertificates)),
		step("the node by a name that no shell should see", "PLEGUnhealthy", anyName, "reboot",
			name("x; reboot", noCertificates)),
	})
	for _, point := range []string{"/mnt/a b", "/mnt/$(reboot)", "/mnt/`x`", "/mnt/a;b", "/mnt/'x'", "/mnt/\n"} {
		f := node(seen(func(n *facts.Node) {
			n.Mounts.Value.Probed[0].Hung, n.Mounts.Value.Probed[0].Point = true, point
			n.Spaces.Value[0].Free, n.Spaces.Value[0].Mount = 0, point
			n.Spaces.Value[0].Folders = []host.Folder{{Path: point, Role: host.FolderRuntime}}
		}))
		named := Judge(f)
		if diff := strings.Join(codes(named), " "); diff != "FilesystemHung DiskFull" &&
			diff != "DiskFull FilesystemHung" {
			t.Errorf("%q: %s", point, diff)
		}
		for _, c := range named {
			if mentions(lines(c.NextSteps), point) {
				t.Errorf("%s: %q", c.Code, lines(c.NextSteps))
			}
		}
	}
}

// TestStepsWithoutSystemd has what is found on a host with systemd once more on one without, and for the commands
// that look at the runtime alone.
func TestStepsWithoutSystemd(t *testing.T) {
	steps := map[string][]checks.NextStep{}
	for name, f := range gallery() {
		f.NoSystemd = true
		for _, c := range Judge(f) {
			steps[name+" "+c.Code] = c.NextSteps
		}
	}
	alone := func(tweaks ...tweak) *facts.Input {
		f := node(tweaks...)
		f.NoSystemd = true
		return f
	}
	steps["runtime"] = NewRuntimeProbe(checks.Header{}, alone(hangs(everyRPC()...))).Causes[0].NextSteps
	steps["relist"] = NewRelistBenchmark(checks.Header{},
		alone(takes(3*time.Second, everyRPC()...))).Causes[0].NextSteps
	steps["canary"] = NewCanaryReport(checks.Header{}, CanaryFacts{
		NoSystemd: true,
		Runtime:   checks.Runtime{Endpoint: "unix:///run/containerd/containerd.sock", EndpointSource: "flag"},
		Result:    canaryRun(canaryFailure(0, canary.Failed, "Unknown: read-only file system")),
	}).NextSteps
	for name, all := range steps {
		if got := lines(all); len(got) == 0 || mentions(got, "systemctl ") || mentions(got, "journalctl ") ||
			mentions(got, "timedatectl") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestStepsAreShell has a shell read every command of the recorded cases, without running it.
func TestStepsAreShell(t *testing.T) {
	var script strings.Builder
	for _, f := range gallery() {
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				fmt.Fprintln(&script, s.Command)
			}
		}
	}
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(script.String())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, script.String())
	}
}

// TestKdiagCommand checks that next steps are about the runtime that was asked, and a simulation's never about the node
// at hand.
func TestKdiagCommand(t *testing.T) {
	for want, r := range map[string]checks.Runtime{
		"kdiag pleg": {Endpoint: "unix:///run/x.sock", EndpointSource: "well-known"},
		"kdiag pleg --runtime-endpoint unix:///run/x.sock": {Endpoint: "unix:///run/x.sock", EndpointSource: "flag"},
		"kdiag pleg --simulate exited-flood":               {EndpointSource: "simulated", Simulate: "exited-flood"},
		"kdiag pleg --simulate './a b.yaml'":               {EndpointSource: "simulated", Simulate: "'./a b.yaml'"},
		"kdiag pleg --simulate SCENARIO":                   {EndpointSource: "simulated"},
	} {
		if got := facts.KdiagCommand(facts.New(&facts.Input{Runtime: r}), "pleg"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestLoadingIsWaitedFor checks that the steps for a runtime that loads its state wait for it before any restart.
func TestLoadingIsWaitedFor(t *testing.T) {
	for _, tweak := range []tweak{condition(0, false), fails(crictl.Unavailable, notInitialised, everyRPC()...)} {
		c := only(t, node(tweak), causes.RuntimeNotReady)
		first := slices.IndexFunc(
			c.NextSteps,
			func(s checks.NextStep) bool { return s.Touches != checks.TouchesNothing },
		)
		if first < 1 || !mentions(lines(c.NextSteps[:first]), "kdiag runtime") ||
			!strings.HasPrefix(c.NextSteps[first].Why, "Only if") {
			t.Errorf("%+v", c.NextSteps)
		}
	}
}
