package judge

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// shown collects which statuses the rows of a test have shown of each check.
type shown map[string]map[checks.Status]bool

// readAll reads the checks of each row. want holds one or more of "ID status", with commas between them.
func (s shown) readAll(t *testing.T, rows []scenario) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]checks.Result{}
			for _, r := range Results(node(tt.tweaks...)) {
				if r.Summary == "" || strings.Contains(r.Summary, "%!") {
					t.Errorf("%s: summary %q", r.ID, r.Summary)
				}
				got[r.ID] = r
				if s[r.ID] == nil {
					s[r.ID] = map[checks.Status]bool{}
				}
				s[r.ID][r.Status] = true
			}
			for want := range strings.SplitSeq(tt.want, ", ") {
				id, status, _ := strings.Cut(want, " ")
				if r := got[id]; string(r.Status) != status {
					t.Errorf("%s is %s (%s), want %s", id, r.Status, r.Summary, status)
				}
			}
		})
	}
}

// TestChecks holds each check: ok, and what is not. The lines of causes are the causes' own (TestPatterns and others).
func TestChecks(t *testing.T) {
	s := shown{}
	s.readAll(t, runtimeRows())
	s.readAll(t, hostRows())
	s.readAll(t, kubeletRows())
	s.readAll(t, journalRows())
	doc, err := os.ReadFile("../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(doc), "\n# Looks\n")
	for _, r := range readChecks(facts.New(nil)) {
		if !s[r.ID][checks.StatusOK] || len(s[r.ID]) < 3 {
			t.Errorf("%s is shown as %v only", r.ID, s[r.ID])
		}
		if !strings.Contains(list, "\n## "+r.ID+"\n") {
			t.Errorf("docs/checks.md does not describe %s", r.ID)
		}
	}
}

func runtimeRows() []scenario {
	slower := takes(time.Second, everyRPC()...)
	images := func(image facts.Reading[facts.SandboxImage]) tweak {
		return seen(func(n *facts.Node) { n.SandboxImage = image })
	}
	canceled := func(f *facts.Input) {
		f.Measurement.Samples = nil
		for i := range f.Measurement.Probes {
			f.Measurement.Probes[i].Code = crictl.Canceled
		}
	}
	endpoint := func(e string) tweak { return func(f *facts.Input) { f.Kubelet.Endpoint = e } }
	all := "runtime.endpoint ok, runtime.connect ok, runtime.version ok, runtime.status ok, runtime.network ok, runtime.lists ok, " +
		"runtime.inspect ok, image.service ok, relist.size ok, relist.exited ok, relist.projection ok"
	return []scenario{
		row("all well", all),
		row("no pods", "runtime.inspect skipped, relist.projection ok", pods(0, 0), sweep),
		row("refused",
			"runtime.connect critical, runtime.version skipped, runtime.lists skipped, relist.size skipped, image.service skipped",
			socket(crictl.ConnectRefused, "refused")),
		row("denied", "runtime.connect unknown", socket(crictl.ConnectDenied, "permission denied")),
		row("backlogged", "runtime.connect critical", socket(crictl.ConnectBacklogged, "")),
		row("silent", "runtime.connect critical", socket(crictl.ConnectSilent, "")),
		row("foreign", "runtime.connect critical", socket(crictl.ConnectForeign, "")),
		row("ttrpc that a person named", "runtime.connect critical", ttrpc(crictl.SourceFlag)),
		row("not asked", "runtime.connect unknown, runtime.status unknown, relist.exited unknown",
			func(f *facts.Input) { f.Measurement = nil }),
		row("no endpoint", "runtime.endpoint unknown", func(f *facts.Input) { f.Runtime.Endpoint = "" }),
		row("another endpoint", "runtime.endpoint warning", endpoint("unix:///run/crio/crio.sock")),
		row("an endpoint that is none", "runtime.endpoint warning", endpoint("unix://unix:///run/x.sock")),
		row("the same endpoint in other words", "runtime.endpoint ok", endpoint("/var/run/containerd/containerd.sock")),
		row("the same endpoint with one slash", "runtime.endpoint ok",
			endpoint("unix:/run/containerd/containerd.sock")),
		row("the command ended",
			"runtime.version unknown, runtime.status unknown, runtime.lists unknown, image.service unknown", canceled),
		row("slow", "runtime.version warning, runtime.status warning, runtime.lists warning", slower),
		row("very slow", "runtime.lists critical", takes(5*time.Second, lists()...)),
		row("Version hangs", "runtime.version critical", hangs(facts.RPCVersion)),
		row("Status hangs", "runtime.status critical, runtime.network unknown", hangs(facts.RPCStatus)),
		row("the network is not ready", "runtime.network critical", condition(1, false)),
		row("a list hangs", "runtime.lists critical, relist.projection critical", hangs(facts.RPCContainers)),
		row("a list hung once", "runtime.lists critical",
			func(f *facts.Input) { f.Measurement.Samples[1].Containers = lost(f.Measurement.Samples[1].Containers) }),
		row("a list failed once", "runtime.lists warning", sampleFails(crictl.PermissionDenied, "no", 1)),
		row("one status hangs", "runtime.inspect critical, relist.projection warning", statusHangs("container1-0")),
		row("all statuses hang", "relist.projection critical", statuses(every, lost)),
		row("all statuses are refused", "runtime.inspect warning, relist.projection unknown",
			statuses(every, withError(crictl.Unavailable, notInitialised))),
		row("nothing is found", "runtime.inspect warning", statuses(every, withError(crictl.NotFound, "not found"))),
		row("one status is slow", "runtime.inspect warning",
			statuses(first(1), func(c crictl.Call) crictl.Call { c.Elapsed = 3 * time.Second; return c })),
		row("no sweep", "runtime.inspect unknown, relist.projection unknown", noSweep),
		row("no sweep, and slow lists alone", "relist.projection critical", noSweep, takes(50*time.Second, lists()...)),
		row("ListImages hangs", "image.service warning", hangs(facts.RPCImages)),
		row("ImageFsInfo hangs", "image.service critical", hangs(facts.RPCImageFs)),
		row("ImageFsInfo fails", "image.service warning", fails(crictl.Internal, "x", facts.RPCImageFs)),
		row("the sandbox image is there", "image.service ok", images(good(facts.SandboxImage{Name: "pause:3.10"}))),
		row("the sandbox image is not there", "image.service warning",
			images(good(facts.SandboxImage{Name: "pause:3.10", Absent: true}))),
		row("the sandbox image is not known", "image.service ok",
			images(facts.Reading[facts.SandboxImage]{Missing: "x", Value: facts.SandboxImage{Absent: true}})),
		row("a flood", "relist.size critical, relist.exited critical", exited(17000, 100, 1000)),
	}
}

func hostRows() []scenario {
	process := func(role host.Role, state byte, lasting bool) tweak {
		p := host.Process{
			PID: 7, Name: "p", Role: role, State: state, Lasting: lasting, Started: now().Add(-time.Second),
		}
		return func(f *facts.Input) { f.Measurement.Connect.PeerPID, f.Processes = p.PID, append(f.Processes, p) }
	}
	shims := func(state byte, ids ...string) tweak {
		return func(f *facts.Input) {
			surfaces()(f)
			for i, id := range ids {
				f.Processes = append(f.Processes, host.Process{
					PID: 5000 + i, Name: "containerd-shim", Role: host.RoleShim, ObjectID: id, State: state, Started: now().Add(-time.Hour),
				})
			}
		}
	}
	ready := func(f *facts.Input) {
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].State = crictl.SandboxReady
		}
	}
	conmon := func(f *facts.Input) { f.Processes[len(f.Processes)-1].Name = "conmon" }
	zombies := func(n int) tweak {
		return seen(func(node *facts.Node) {
			node.Tasks.Value.Zombies, node.Tasks.Value.ZombiesByParent = n, []host.ZombieParent{
				{PID: 8, Name: "node", Count: n},
			}
		})
	}
	memory := func(change func(*facts.Reading[host.Memory])) tweak {
		return seen(func(n *facts.Node) { change(&n.Memory) })
	}
	nothing := func(n *facts.Node) {
		n.Memory.Value, n.Spaces.Value, n.Writes.Value, n.Disks.Value = host.Memory{}, nil, nil, nil
		n.Mounts.Value, n.PIDs.Value, n.Files.Value, n.Inotify.Value = host.MountTable{}, host.PIDs{}, host.Files{}, host.Inotify{}
		n.Pressure.Value, n.Cgroups.Value, n.Clock.Value, n.Conntrack.Value = host.Pressure{}, host.Cgroups{}, host.Clock{}, host.Conntrack{}
		n.Systemd.Value = host.Systemd{}
	}
	all := "host.pressure ok, host.memory ok, host.space ok, host.inodes ok, host.writes ok, host.disks ok, host.mounts ok, host.pids ok, " +
		"host.files ok, host.inotify ok, host.conntrack ok, host.cgroups ok, host.clock ok, host.tasks ok, host.zombies ok, host.freezer ok, " +
		"host.throttling ok, systemd.answer ok, systemd.units ok, runtime.unit ok"
	return []scenario{
		row("all well", all, surfaces()),
		row("only the runtime was asked",
			"host.memory skipped, host.shims skipped, host.freezer skipped, host.throttling skipped"),
		row("nothing may be read",
			"host.memory unknown, host.tasks unknown, host.freezer unknown, host.throttling unknown, host.zombies unknown",
			notSeen),
		row("nothing was found",
			"host.memory unknown, host.space unknown, host.inodes unknown, host.writes unknown, host.disks unknown, "+"host.mounts unknown, host.pids unknown, host.files unknown, host.inotify unknown, host.pressure skipped, host.cgroups unknown, "+"host.clock unknown, host.conntrack skipped, systemd.answer unknown, systemd.units unknown, runtime.unit unknown",
			seen(nothing)),
		row("a reading that failed", "host.memory unknown",
			memory(func(m *facts.Reading[host.Memory]) { m.OK, m.Missing = false, "denied" })),
		row("a reading that hung", "host.memory unknown",
			memory(func(m *facts.Reading[host.Memory]) { m.OK, m.Hung = false, true })),
		row("trouble in a part", "host.memory warning",
			memory(func(m *facts.Reading[host.Memory]) { m.OK, m.Value.Available = false, 1 })),
		row("a reading that does not apply", "host.memory skipped",
			memory(func(m *facts.Reading[host.Memory]) { m.Skipped = true })),
		row("pressure", "host.pressure warning", seen(func(n *facts.Node) { n.Pressure.Value.IO.Full = some(60) })),
		row("a file system was not read", "host.space unknown, host.inodes unknown",
			space(func(s *host.Space) { s.Err = "x" })),
		row("no inodes to count", "host.inodes skipped", space(func(s *host.Space) { s.Inodes = 0 })),
		row("a write failed", "host.writes unknown",
			writes(func(w *host.Writes) { *w = host.Writes{Err: "permission denied"} })),
		row("the node's disk is slow", "host.disks warning",
			seen(func(n *facts.Node) { n.Disks.Value[0].WriteAwait = time.Second })),
		row("somebody else's disk is slow", "host.disks ok",
			seen(func(n *facts.Node) { n.Disks.Value[0].WriteAwait, n.Disks.Value[0].Folders = time.Second, nil })),
		row("mounts were not asked", "host.mounts unknown", seen(func(n *facts.Node) { n.Mounts.Value.Left = 3 })),
		row("processes whose watches could not be read", "host.inotify unknown",
			seen(func(n *facts.Node) { n.Inotify.Value.Unread = 2 })),
		row("the table of connections is full", "host.conntrack critical",
			seen(func(n *facts.Node) { n.Conntrack.Value.Current = 262144 })),
		row("nobody keeps the clock", "host.clock warning",
			seen(func(n *facts.Node) { n.Clock.Value.Synchronised = false })),
		row("no processes", "host.processes skipped", processesOf()),
		row("processes may not be read", "host.processes unknown, host.shims unknown", surfaces(),
			func(f *facts.Input) { f.HostMissing = "permission denied" }),
		row("simulated", "host.processes skipped",
			func(f *facts.Input) { f.Runtime.EndpointSource = string(crictl.SourceSimulated) }),
		row("the runtime runs", "host.processes ok", process(host.RoleRuntime, 'S', false)),
		row("the runtime is stopped", "host.processes critical", process(host.RoleRuntime, 'T', false)),
		row("the runtime sleeps in two looks", "host.processes critical", process(host.RoleRuntime, 'D', true)),
		row("the runtime sleeps in one", "host.processes warning", process(host.RoleRuntime, 'D', false)),
		row("a shim sleeps", "host.processes warning", process(host.RoleShim, 'D', false)),
		row("a runc sleeps", "host.processes warning", process(host.RoleOCI, 'D', false)),
		row("the kubelet is stopped", "host.processes warning", process(host.RoleKubelet, 'T', false)),
		row("another runtime is stopped", "host.processes warning", func(f *facts.Input) {
			f.Processes = append(f.Processes, host.Process{PID: 7, Name: "dockerd", Role: host.RoleRuntime, State: 'T'})
		}),
		row("a CNI plugin is old", "host.processes warning", stuckCNI(7*time.Minute)),
		row("a task sleeps", "host.tasks warning", surfaces(blocked(onNFS()))),
		row("999 zombies", "host.zombies ok", zombies(999)),
		row("1,000 zombies", "host.zombies warning", zombies(1000)),
		row("no shims", "host.shims skipped", surfaces()),
		row("shims of all", "host.shims ok", shims('S', "sandbox0", "sandbox1", "sandbox2"), ready),
		row("one shim is not there", "host.shims warning", shims('S', "sandbox0", "sandbox1"), ready),
		row("few have shims", "host.shims ok", shims('S', "sandbox0"), ready),
		row("CRI-O's sandboxes have no process", "host.shims ok", shims('S', "sandbox0", "sandbox1"), ready, conmon),
		row("a stopped shim", "host.shims warning, host.processes warning", shims('T', "sandbox1")),
		row("another runtime's is stopped", "host.shims ok, host.processes ok", shims('T', "other")),
		row("lists of another endpoint", "host.shims unknown", shims('S', "sandbox1"), elsewhere),
		row("units were not counted", "systemd.units unknown",
			seen(func(n *facts.Node) { n.Systemd.Value.Counted = false })),
		row("the runtime's unit is down, and it answers", "runtime.unit skipped",
			surfaces(func(n *facts.Node) { n.Systemd.Value.Runtime.Active = "failed" })),
		row("the runtime's unit is down", "runtime.unit critical",
			surfaces(func(n *facts.Node) { n.Systemd.Value.Runtime.Active = "failed" }),
			socket(crictl.ConnectRefused, "")),
	}
}

func kubeletRows() []scenario {
	day := 24 * time.Hour
	ping := func(a kubelet.Answer) tweak { return surfaces(health(func(h *kubelet.Health) { *h.Ping = a })) }
	refused := ping(kubelet.Answer{Err: "connection refused"})
	unasked := surfaces(
		health(func(h *kubelet.Health) { *h = kubelet.Health{Ping: h.Ping, Missing: "no kubelet runs here"} }))
	noMetrics := surfaces(
		health(func(h *kubelet.Health) { h.Metrics, h.Unread = nil, []string{"/metrics: no answer in time"} }))
	settings := func(change func(*kubelet.Settings)) tweak {
		return surfaces(func(n *facts.Node) { change(&n.Settings.Value) })
	}
	server := func(change func(*kubelet.Server)) tweak {
		return surfaces(func(n *facts.Node) { change(&n.Server.Value) })
	}
	away := server(func(s *kubelet.Server) { *s = kubelet.Server{URL: "https://api:6443", Err: "no answer in time"} })
	restarts := func(since time.Duration) tweak {
		return surfaces(func(n *facts.Node) {
			n.Systemd.Value.Runtime.Restarts, n.Systemd.Value.Runtime.Since = facts.LoopRestarts, now().Add(-since)
		})
	}
	inKubeconfig := func(until time.Duration) func(*facts.Node) {
		return func(n *facts.Node) {
			old := kubelet.Certificate{
				Role: "client", Path: "/etc/kubernetes/kubelet.conf", NotBefore: now().Add(-300 * day),
				NotAfter: now().Add(until),
			}
			n.Certificates.Value = append([]kubelet.Certificate{old}, n.Certificates.Value...)
		}
	}
	cni := func(change func(*kubelet.CNI)) tweak { return surfaces(func(n *facts.Node) { change(&n.CNI.Value) }) }
	broken := cni(func(c *kubelet.CNI) {
		*c = kubelet.CNI{
			ConfDir: "/etc/cni/net.d", File: "05-broken.conf", Others: []string{"10-calico.conflist"},
			Problem: "names no plugin",
		}
	})
	crio := func(f *facts.Input) { f.Runtime.Endpoint = "unix:///run/crio/crio.sock" }
	unread := func(n *facts.Node) { n.Settings.OK, n.Settings.Missing = false, "permission denied" }
	noCertificates := surfaces(func(n *facts.Node) { n.Certificates.Value = nil })
	all := "kubelet.unit ok, kubelet.settings ok, kubelet.healthz ok, kubelet.server ok, kubelet.metrics ok, kubelet.certificates ok, " +
		"kubelet.apiserver ok, kubelet.cgroupdriver ok, kubelet.cni ok"
	return []scenario{
		row("all well", all, surfaces()),
		row("nothing may be read", "kubelet.unit unknown, kubelet.certificates unknown", notSeen),
		row("no such unit", "kubelet.unit skipped", surfaces(func(n *facts.Node) { n.Systemd.Value.Kubelet = nil })),
		row("the unit is being started", "kubelet.unit warning",
			surfaces(unitIn("activating", "start", "success", time.Second))),
		row("a runtime that was restarted", "runtime.unit warning", restarts(facts.LoopFresh-time.Second)),
		row("a runtime that has stayed up since", "runtime.unit ok", restarts(facts.LoopFresh)),
		row("a harmful setting", "kubelet.settings warning",
			settings(func(s *kubelet.Settings) { s.Harmful = []kubelet.Setting{{Name: "a", Harm: "b."}, {Name: "c"}} })),
		row("settings that do not run", "kubelet.settings warning",
			surfaces(health(func(h *kubelet.Health) { h.Differs = []kubelet.Difference{{Name: "a"}} }))),
		row("settings inside a process", "kubelet.settings unknown",
			settings(func(s *kubelet.Settings) { s.Problems, s.Own = []string{"K3s"}, "evictionHard" })),
		row("a distribution's own settings", "kubelet.settings ok",
			settings(func(s *kubelet.Settings) { s.Own = "evictionHard names two" })),
		row("no health port", "kubelet.healthz skipped", surfaces(health(func(h *kubelet.Health) { h.Ping = nil }))),
		row("the ping hangs", "kubelet.healthz critical", ping(kubelet.Answer{Hung: true})),
		row("the ping fails", "kubelet.healthz critical", ping(kubelet.Answer{Status: 500})),
		row("the ping is refused", "kubelet.healthz critical", refused, kubeletAge(facts.KubeletStartup)),
		row("the ping is refused at the start", "kubelet.healthz warning", refused, kubeletAge(time.Second)),
		row("the server was not asked", "kubelet.server unknown", unasked),
		row("there is no kubelet to ask", "kubelet.server skipped", unasked,
			func(f *facts.Input) { f.Kubelet, f.Processes = nil, f.Processes[:1] }),
		row("the kubelet cannot ask who we are", "kubelet.server unknown, kubelet.metrics unknown",
			surfaces(cannotAsk)),
		row("the server hangs, and the ping answers", "kubelet.server unknown",
			loop(func(a *kubelet.Answer) { a.Hung, a.Status = true, 0 })),
		row("both hang", "kubelet.server critical", loop(func(a *kubelet.Answer) { a.Hung, a.Status = true, 0 }),
			func(f *facts.Input) { *f.Node.Health.Value.Ping = kubelet.Answer{Hung: true} }),
		row("the server answers something else", "kubelet.server unknown",
			loop(func(a *kubelet.Answer) { a.Status = 404 })),
		row("the metrics hang", "kubelet.metrics unknown", noMetrics),
		row("a minute since the last relist", "kubelet.metrics ok", surfaces(lastSeen(time.Minute))),
		row("more than a minute", "kubelet.metrics warning", surfaces(lastSeen(time.Minute+time.Second))),
		row("more than three", "kubelet.metrics critical", surfaces(lastSeen(3*time.Minute+time.Second))),
		row("five, with evented PLEG", "kubelet.metrics warning", surfaces(lastSeen(5*time.Minute)),
			func(f *facts.Input) { f.Kubelet.EventedPLEG, f.Summary = true, nil }),
		row("no certificates", "kubelet.certificates skipped", noCertificates),
		row("a certificate that cannot be read", "kubelet.certificates unknown",
			surfaces(func(n *facts.Node) { n.Certificates.Value[0].Err = "x" })),
		row("a week is left of a year", "kubelet.certificates ok", surfaces(expires(0, -358*day, 7*day))),
		row("less is left", "kubelet.certificates warning", surfaces(expires(0, -359*day, 6*day))),
		row("one for a day, new", "kubelet.certificates ok", surfaces(expires(0, -2*time.Hour, 22*time.Hour))),
		row("one for a day, old", "kubelet.certificates warning", surfaces(expires(0, -22*time.Hour, 2*time.Hour))),
		row("the kubeconfig's is over, and another is good", "kubelet.certificates warning",
			surfaces(inKubeconfig(-day))),
		row("the kubeconfig's is good", "kubelet.certificates ok", surfaces(inKubeconfig(90*day))),
		row("nobody knows whether the API server is away", "kubelet.apiserver critical", away),
		row("the API server is away for kdiag alone", "kubelet.apiserver warning", away, quiet),
		row("the API server is not ready", "kubelet.apiserver warning",
			server(func(s *kubelet.Server) { s.Status = 503 })),
		row("its clock differs", "kubelet.apiserver warning",
			server(func(s *kubelet.Server) { s.Skew = 2 * time.Minute })),
		row("the lease may not be read", "kubelet.apiserver ok",
			server(func(s *kubelet.Server) { s.LeaseRead, s.Status = false, 403 })),
		row("the driver of no kubelet", "kubelet.cgroupdriver skipped", surfaces(kubepods("/kubepods.slice")),
			noKubelet),
		row("settings that cannot be read", "kubelet.cgroupdriver unknown",
			surfaces(kubepods("/kubepods.slice"), unread)),
		row("the runtime names no driver", "kubelet.cgroupdriver unknown",
			surfaces(func(n *facts.Node) { n.RuntimeDriver.Value = "" })),
		row("a plugin is not there", "kubelet.cni warning",
			cni(func(c *kubelet.CNI) { c.Missing = []string{"portmap"} })),
		row("where plugins are is not known", "kubelet.cni unknown", cni(func(c *kubelet.CNI) { c.BinDirs = nil })),
		row("no file in the usual folders", "kubelet.cni skipped",
			cni(func(c *kubelet.CNI) { *c = kubelet.CNI{Problem: "none"} })),
		row("a broken file comes first", "kubelet.cni warning", broken),
		row("a broken file comes first, which CRI-O passes over", "kubelet.cni skipped", broken, crio),
	}
}

func journalRows() []scenario {
	all := func(status string) string {
		return strings.Join(
			[]string{"journal.pleg", "journal.kubelet", "journal.apiserver", "journal.kernel"},
			" "+status+", ",
		) + " " + status
	}
	unread := "journal.pleg unknown, journal.kubelet unknown, journal.apiserver unknown, journal.kernel ok"
	kmsg := journal.Source{Name: "/dev/kmsg", Format: "kmsg"}
	journald := journal.Source{Name: "/var/log/journal/x/system.journal", Format: "journal"}
	rke2 := surfaces(func(n *facts.Node) { n.Systemd.Value.Kubelet.Name = "rke2-agent.service" })
	one := func(code, example string, first time.Duration, subjects ...string) tweak {
		return said(signs(code, 40, first, time.Second, example, subjects...))
	}
	return []scenario{
		row("not looked at", all("skipped")),
		row("not readable", all("unknown"), func(f *facts.Input) { f.JournalProblem = "permission denied" }),
		row("empty", all("unknown"), said(), func(f *facts.Input) { f.Journal.Lines = 0 }),
		row("nothing of note", all("ok"), said()),
		row("calm", "journal.pleg ok, journal.kubelet ok, journal.apiserver warning, journal.kernel ok", calm()),
		row("only the kernel's log was read", unread, said(), readFrom(kmsg)),
		row("only the kernel's log could be read", unread, said(),
			readFrom(kmsg, journal.Source{Name: "x", Problem: "permission denied"})),
		row("the journal was read", all("ok"), said(), readFrom(kmsg, journald)),
		row("RKE2's kubelet has its own file", unread, rke2, said(), readFrom(journald)),
		row("RKE2's own file was read", all("ok"), rke2, said(),
			readFrom(journald, journal.Source{Name: "/host" + facts.OwnLog, Format: "klog"})),
		row("no kubelet anywhere",
			"journal.pleg skipped, journal.kubelet skipped, journal.apiserver skipped, journal.kernel ok", said(),
			func(f *facts.Input) { f.Kubelet = nil }),
		row("PLEG now", "journal.pleg critical", said(incident(2*time.Minute, 4*time.Second))),
		row("PLEG before", "journal.pleg warning",
			said(incident(9*time.Minute, 8*time.Minute, recovered(7*time.Minute)))),
		row("one restart", "journal.kubelet warning", said(restarted(1, 0, time.Minute))),
		row("a loop", "journal.kubelet critical", said(restarted(9, 11*time.Second, time.Second))),
		row("a loop that is over", "journal.kubelet warning", said(restarted(9, 11*time.Second, 8*time.Minute))),
		row("the watchdog withheld", "journal.kubelet warning", one(signature.WatchdogWithheld, "x", time.Minute)),
		row("the API server away", "journal.apiserver critical",
			one(signature.APIServerFailed, leaseTimeout, 5*time.Minute)),
		row("a certificate", "journal.apiserver warning", one(signature.CertificateExpired, "x509", 5*time.Minute)),
		row("a hung shim", "journal.kernel critical",
			one(signature.HungTask, blockedShim, 5*time.Minute, "containerd-shim pid 5000")),
		row("a killed kubelet", "journal.kernel critical", one(signature.OOMKill, memcgKill, 5*time.Minute, "kubelet")),
		row("a container at its limit", all("ok"),
			said(signs(signature.OOMKill, 1, time.Minute, time.Minute, memcgKill, "java"))),
	}
}
