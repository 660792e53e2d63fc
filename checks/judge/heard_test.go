package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestJournalAsEvidence holds what the log adds to causes that were measured: which way it points, in which words, and
// that the confidence follows.
func TestJournalAsEvidence(t *testing.T) {
	down := signs(signature.RuntimeIsDown, 30, 3*time.Minute, 4*time.Second, "container runtime is down")
	active := signs(signature.SyncLoopActive, 30, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE"`)
	inspect := func(last time.Duration, ids ...string) entry {
		return signs(signature.InspectFailed, 7, 9*time.Minute, last, "ContainerStatus from runtime service failed", ids...)
	}
	pleg := incident(2*time.Minute, 4*time.Second)
	for _, tt := range []struct {
		name   string
		code   string
		tweaks []tweak
		log    []entry
		points int    // 1: for, -1: against, 0: neither
		say    string // in that side
	}{
		{"down, and the kubelet says so", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{down, signs(signature.RelistFailed, 180, 3*time.Minute, time.Second, refusedRelist)}, 1, `"container runtime is down" (30 s and more without a good Status) since 03:06:24`},
		{"down, its relists", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{signs(signature.RelistFailed, 180, 3*time.Minute, time.Second, refusedRelist)}, 1, "relists fail since 03:06:24, the first with Unavailable"},
		{"down for longer than is read", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{signs(signature.RelistFailed, 900, 15*time.Minute, time.Second, refusedRelist)}, 1, "relists fail for all of the last 15m"},
		{"down, and the kubelet works", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{active}, -1, "its log tells of no trouble"},
		{"down, and the kubelet worked before", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{signs(signature.SyncLoopActive, 9, 9*time.Minute, time.Minute, "x")}, 0, ""},
		{"hung, down and PLEG", causes.RuntimeHung, []tweak{hangs(everyRPC()...)}, []entry{down, pleg}, 1, "PLEG is not healthy, since 03:07:24; its last good relist began at 03:04:24"},
		{"hung, and the kubelet works", causes.RuntimeHung, []tweak{hangs(everyRPC()...)}, []entry{active}, -1, "the kubelet's loop was at work at 03:09:21"},
		{"list, PLEG alone", causes.ListHang, []tweak{hangs(facts.RPCContainers)}, []entry{pleg}, 1, "PLEG is not healthy"},
		{"list, down too", causes.ListHang, []tweak{hangs(facts.RPCContainers)}, []entry{pleg, down}, -1, "container runtime is down"},
		{"object, named", causes.InspectHang, []tweak{statusHangs("container1-0")}, []entry{inspect(time.Minute, "container1-0")}, 1, "names it too: its status calls for web/checkout-1 (app0) fail since 03:00:24, 7 times in all"},
		{"object, its pod named", causes.InspectHang, []tweak{statusHangs("container1-0")}, []entry{inspect(time.Minute, "web/checkout-1")}, 1, "names it too"},
		{"object, another named", causes.InspectHang, []tweak{statusHangs("container1-0")}, []entry{inspect(time.Minute, "0123456789abcdef")}, -1, "name others, such as 0123456789abc"},
		{"object, another named long ago", causes.InspectHang, []tweak{statusHangs("container1-0")}, []entry{inspect(8*time.Minute, "0123456789abcdef")}, 0, ""},
		{"too large, and refused there", causes.ListTooLarge, []tweak{exited(800, 1, 30000)}, []entry{signs(signature.MessageTooLarge, 40, 3*time.Minute, time.Second, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (26300000 vs. 16777216)")}, 1, "26300000 against 16777216 bytes, by the receiver's limit"},
		{"too large, and the kubelet works", causes.ListTooLarge, []tweak{exited(800, 1, 30000)}, []entry{active}, -1, "no trouble"},
		{"network", causes.NetworkNotReady, []tweak{condition(1, false)}, []entry{signs(signature.NetworkNotReady, 60, 5*time.Minute, 4*time.Second, "x")}, 1, "the kubelet logs it too since 03:04:24"},
		{"CNI, down alone", causes.CNIHung, []tweak{hangs(facts.RPCStatus)}, []entry{down}, 1, "container runtime is down"},
		{"down, stopped", causes.RuntimeDown, []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{signs(signature.UnitFailed, 1, time.Minute, time.Minute, "containerd.service: Failed with result 'exit-code'.", "containerd.service")}, 1, "containerd.service failed at 03:08:24"},
		{"images", causes.ImageServiceHung, []tweak{hangs(facts.RPCImages, facts.RPCImageFs)}, []entry{signs(signature.ImageServiceFailed, 3, 9*time.Minute, time.Minute, "x")}, 1, "image calls fail as well"},
		{"exited, and removals fail", causes.TooManyExited, []tweak{exited(2000, 100, 1000)}, []entry{signs(signature.RemoveFailed, 3, 9*time.Minute, time.Minute, "RemoveContainer failed: device busy")}, 1, "device busy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			alone := Judge(node(tt.tweaks...))
			heard := Judge(node(append(slices.Clone(tt.tweaks), said(tt.log...))...))
			i, k := index(alone, tt.code), index(heard, tt.code)
			if i < 0 || k < 0 {
				t.Fatalf("%v alone, %v with the log", codes(alone), codes(heard))
			}
			before, after := alone[i], heard[k]
			side := after.Evidence.For
			switch tt.points {
			case 1:
				if after.Confidence < before.Confidence {
					t.Errorf("confidence %.2f, alone %.2f", after.Confidence, before.Confidence)
				}
			case -1:
				side = after.Evidence.Against
				if after.Confidence >= before.Confidence {
					t.Errorf("confidence %.2f, alone %.2f", after.Confidence, before.Confidence)
				}
			case 0:
				if tt.code != causes.TooManyExited && after.Confidence != before.Confidence {
					t.Errorf("confidence %.2f, alone %.2f", after.Confidence, before.Confidence)
				}
			}
			if tt.say != "" && !mentions(side, tt.say) {
				t.Errorf("%q does not say %q", side, tt.say)
			}
			if len(heard) != len(alone) {
				t.Errorf("%v, alone %v", codes(heard), codes(alone))
			}
		})
	}
}

// TestAgreementRaises wants a confidence that was not certain to rise when the kubelet says the same, and never over
// certain.
func TestAgreementRaises(t *testing.T) {
	before := only(t, node(hangs(facts.RPCContainers)), causes.ListHang)
	after := only(t, node(hangs(facts.RPCContainers), said(incident(2*time.Minute, 4*time.Second))), causes.ListHang)
	if after.Confidence <= before.Confidence {
		t.Errorf("%.2f, alone %.2f", after.Confidence, before.Confidence)
	}
	if got := checks.Confidence(checks.Certain+checks.Agreement, checks.Evidence{}); got != checks.Certain {
		t.Errorf("%.2f", got)
	}
}

// TestJournalRoots holds which cause comes first when the logs and the measurement tell of the same trouble.
func TestJournalRoots(t *testing.T) {
	oom := func(victim string) entry {
		return signs(signature.OOMKill, 1, 6*time.Minute, 6*time.Minute, globalKill, victim)
	}
	hung := func(task string) entry {
		return signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim, task)
	}
	watchdog := []entry{restarted(3, 4*time.Minute, 50*time.Second), signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute, "kubelet.service: Watchdog timeout (limit 30s)!", "kubelet.service")}
	pleg := incident(2*time.Minute, 4*time.Second)
	for _, tt := range []struct {
		name     string
		tweaks   []tweak
		log      []entry
		want     []string
		causedBy []string
	}{
		{"the runtime was killed, and is down", []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{oom("containerd")}, []string{causes.OOMKilled, causes.RuntimeDown}, []string{"", causes.OOMKilled}},
		{"another was killed, and the runtime is down", []tweak{socket(crictl.ConnectRefused, "refused")}, []entry{oom("java")}, []string{causes.RuntimeDown, causes.OOMKilled}, []string{"", ""}},
		{"a shim was killed, and an object hangs", []tweak{statusHangs("container1-0")}, []entry{oom("containerd-shim")}, []string{causes.OOMKilled, causes.InspectHang}, []string{"", causes.OOMKilled}},
		{"the kubelet is killed again and again", nil, []entry{oom("kubelet"), restarted(4, time.Minute, 10*time.Second)}, []string{causes.OOMKilled, causes.KubeletCrashLooping}, []string{"", causes.OOMKilled}},
		{"the kernel hangs, and the runtime with it", []tweak{hangs(everyRPC()...)}, []entry{hung("jbd2/sda1-8:311")}, []string{causes.KernelHung, causes.RuntimeHung}, []string{"", causes.KernelHung}},
		{"the kernel hangs, and a list with it", []tweak{hangs(facts.RPCContainers)}, []entry{hung("containerd-shim:5000")}, []string{causes.KernelHung, causes.ListHang}, []string{"", causes.KernelHung}},
		{"the kernel hangs, but a signal stopped the runtime", []tweak{socket(crictl.ConnectSilent, ""), daemonIn('T', "do_signal_stop")}, []entry{hung("jbd2/sda1-8:311")}, []string{causes.RuntimeHung, causes.KernelHung}, []string{"", ""}},
		{"the kernel hangs, and PLEG with it", nil, []entry{hung("jbd2/sda1-8:311"), pleg}, []string{causes.KernelHung, causes.PLEGUnhealthy}, []string{"", causes.KernelHung}},
		{"the watchdog kills, and the runtime hangs", []tweak{hangs(everyRPC()...)}, watchdog, []string{causes.RuntimeHung, causes.KubeletCrashLooping}, []string{"", causes.RuntimeHung}},
		{"the kubelet ends itself, and the runtime hangs", []tweak{hangs(everyRPC()...)}, []entry{restarted(3, time.Minute, 50*time.Second)}, []string{causes.RuntimeHung, causes.KubeletCrashLooping}, []string{"", ""}},
		{"PLEG beside a hung runtime", []tweak{hangs(everyRPC()...)}, []entry{pleg}, []string{causes.RuntimeHung}, []string{""}},
		{"PLEG beside a hung object", []tweak{statusHangs("container1-0")}, []entry{pleg}, []string{causes.InspectHang}, []string{""}},
		{"PLEG beside a dead network", []tweak{condition(1, false)}, []entry{pleg}, []string{causes.PLEGUnhealthy, causes.NetworkNotReady}, []string{"", ""}},
		{"PLEG beside a list that is only large", []tweak{exited(500, 1, 18000)}, []entry{pleg}, []string{causes.PLEGUnhealthy, causes.ListTooLarge}, []string{"", ""}},
		{"PLEG beside slow lists", []tweak{takes(time.Second, facts.RPCSandboxes, facts.RPCContainers)}, []entry{pleg}, []string{causes.RuntimeSlow}, []string{""}},
		{"PLEG beside a killed shim", nil, []entry{signs(signature.OOMKill, 1, 5*time.Minute, 5*time.Minute, memcgKill, "containerd-shim"), pleg}, []string{causes.OOMKilled}, []string{""}},
		{"PLEG after a shim was killed long before", nil, []entry{signs(signature.OOMKill, 1, 14*time.Minute, 14*time.Minute, memcgKill, "containerd-shim"), pleg}, []string{causes.PLEGUnhealthy, causes.OOMKilled}, []string{"", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(append(slices.Clone(tt.tweaks), said(tt.log...))...))
			got, by := codes(named), []string{}
			for _, c := range named {
				by = append(by, c.CausedBy)
				if c.Code == causes.RuntimeSlow && c.Severity != checks.Critical {
					t.Error("the kubelet says that it has come so far")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(tt.causedBy, by); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKernelTasksNow compares what the kernel reported with what the processes are doing.
func TestKernelTasksNow(t *testing.T) {
	shim := host.Process{PID: 5000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, State: 'D', Wchan: "rpc_wait_bit_killable", Started: now().Add(-time.Hour)}
	log := said(signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim, "containerd-shim:5000"))
	stuck := only(t, node(log, ProcessesOf(shim)), causes.KernelHung)
	if !mentions(stuck.Evidence.For, "containerd-shim (pid 5000) is still in uninterruptible sleep") {
		t.Errorf("%q", stuck.Evidence.For)
	}
	shim.State = 'S'
	gone := only(t, node(log, ProcessesOf(shim)), causes.KernelHung)
	if !mentions(gone.Evidence.Against, "the kernel has let it go") || gone.Confidence >= stuck.Confidence || gone.Severity != checks.Warning || stuck.Severity != checks.Critical {
		t.Errorf("%q, %.2f against %.2f", gone.Evidence.Against, gone.Confidence, stuck.Confidence)
	}
}

// TestJournalChecks holds the checks of the journal: ok, and every other outcome.
func TestJournalChecks(t *testing.T) {
	ids := []string{"journal.pleg", "journal.kubelet", "journal.apiserver", "journal.kernel"}
	all := func(s checks.Status) map[string]checks.Status {
		out := map[string]checks.Status{}
		for _, id := range ids {
			out[id] = s
		}
		return out
	}
	but := func(id string, s checks.Status) map[string]checks.Status {
		out := all(checks.StatusOK)
		out[id] = s
		return out
	}
	unread := but("journal.kernel", checks.StatusOK)
	for _, id := range ids[:3] {
		unread[id] = checks.StatusUnknown
	}
	kmsg, journald := journal.Source{Name: "/dev/kmsg", Format: "kmsg"}, journal.Source{Name: "/var/log/journal/x/system.journal", Format: "journal"}
	rke2 := surfaces(func(n *facts.Node) { n.Systemd.Value.Kubelet.Name = "rke2-agent.service" })
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   map[string]checks.Status
	}{
		{"not looked at", nil, all(checks.StatusSkipped)},
		{"simulated", []tweak{func(f *facts.Input) {
			f.Runtime.EndpointSource, f.JournalProblem = string(crictl.SourceSimulated), "the runtime is simulated"
		}}, all(checks.StatusSkipped)},
		{"not readable", []tweak{func(f *facts.Input) { f.JournalProblem = "permission denied" }}, all(checks.StatusUnknown)},
		{"empty", []tweak{said(), func(f *facts.Input) { f.Journal.Lines = 0 }}, all(checks.StatusUnknown)},
		{"nothing of note", []tweak{said()}, all(checks.StatusOK)},
		{"calm", []tweak{calm()}, but("journal.apiserver", checks.StatusWarning)},
		{"only the kernel was read", []tweak{said(), readFrom(kmsg)}, unread},
		{"only the kernel could be read", []tweak{said(), readFrom(kmsg, journal.Source{Name: "/run/log/journal/x/system.journal", Problem: "permission denied"})}, unread},
		{"the journal was read", []tweak{said(), readFrom(kmsg, journald)}, all(checks.StatusOK)},
		{"RKE2's kubelet has a file of its own", []tweak{rke2, said(), readFrom(journald)}, unread},
		{"RKE2's own file was read", []tweak{rke2, said(), readFrom(journald, journal.Source{Name: "/host" + facts.OwnLog, Format: "klog"})}, all(checks.StatusOK)},
		{"RKE2's own file could not be read", []tweak{rke2, said(), readFrom(journald, journal.Source{Name: facts.OwnLog, Problem: "permission denied"})}, unread},
		{"no kubelet anywhere", []tweak{said(), func(f *facts.Input) { f.Kubelet = nil }}, map[string]checks.Status{"journal.pleg": checks.StatusSkipped, "journal.kubelet": checks.StatusSkipped, "journal.apiserver": checks.StatusSkipped, "journal.kernel": checks.StatusOK}},
		{"PLEG now", []tweak{said(incident(2*time.Minute, 4*time.Second))}, but("journal.pleg", checks.StatusCritical)},
		{"PLEG before", []tweak{said(incident(9*time.Minute, 8*time.Minute, recovered(7*time.Minute)))}, but("journal.pleg", checks.StatusWarning)},
		{"one restart", []tweak{said(restarted(1, 0, time.Minute))}, but("journal.kubelet", checks.StatusWarning)},
		{"a loop", []tweak{said(restarted(9, 11*time.Second, time.Second))}, but("journal.kubelet", checks.StatusCritical)},
		{"a loop that is over", []tweak{said(restarted(9, 11*time.Second, 8*time.Minute))}, but("journal.kubelet", checks.StatusWarning)},
		{"the watchdog withheld", []tweak{said(signs(signature.WatchdogWithheld, 2, time.Minute, time.Second, "x"))}, but("journal.kubelet", checks.StatusWarning)},
		{"the API server away", []tweak{said(signs(signature.APIServerFailed, 40, 5*time.Minute, time.Second, leaseTimeout))}, but("journal.apiserver", checks.StatusCritical)},
		{"a certificate", []tweak{said(signs(signature.CertificateExpired, 1, 5*time.Minute, time.Second, "x509"))}, but("journal.apiserver", checks.StatusWarning)},
		{"a hung shim", []tweak{said(signs(signature.HungTask, 1, 5*time.Minute, time.Minute, blockedShim, "containerd-shim:5000"))}, but("journal.kernel", checks.StatusCritical)},
		{"a hung disk and a killed kubelet", []tweak{said(signs(signature.HungTask, 1, 5*time.Minute, time.Minute, blockedJournal, "jbd2/sda1-8:311"), signs(signature.OOMKill, 1, 5*time.Minute, time.Minute, memcgKill, "kubelet"))}, but("journal.kernel", checks.StatusCritical)},
		{"a container at its limit", []tweak{said(signs(signature.OOMKill, 1, 5*time.Minute, time.Minute, memcgKill, "java"))}, all(checks.StatusOK)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]checks.Status{}
			for _, r := range Results(node(tt.tweaks...)) {
				if slices.Contains(ids, r.ID) {
					got[r.ID] = r.Status
				}
				if r.Summary == "" {
					t.Errorf("%s has no summary", r.ID)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOnlyTheReportHearsTheNode wants the verdict on a socket, and on a series of relists, to be theirs alone.
func TestOnlyTheReportHearsTheNode(t *testing.T) {
	f := node(said(restarted(9, 11*time.Second, time.Second)))
	report, probe, benchmark := NewReport(checks.Header{}, f), NewRuntimeProbe(checks.Header{}, f), NewRelistBenchmark(checks.Header{}, f)
	if report.Status != checks.Unhealthy || probe.Status != checks.Healthy || benchmark.Status != checks.Healthy || len(probe.Causes)+len(benchmark.Causes) > 0 {
		t.Errorf("%s, %s, %s", report.Status, probe.Status, benchmark.Status)
	}
}

// TestSpells holds how records become times in which something went on.
func TestSpells(t *testing.T) {
	type span struct{ from, to, n int64 } // seconds before the journal was read
	spans := func(f *facts.Input) []span {
		var out []span
		for _, s := range facts.Spells(facts.New(f), time.Minute, "A", "B") {
			out = append(out, span{int64(readAt().Sub(s.From).Seconds()), int64(readAt().Sub(s.To).Seconds()), s.Records})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		log  []entry
		want []span
	}{
		{"none", nil, nil},
		{"another", []entry{signs("C", 3, time.Minute, 0, "")}, nil},
		{"dense without a timeline", []entry{signs("A", 11, 5*time.Minute, 0, "")}, []span{{300, 0, 11}}},
		{"thin without a timeline", []entry{signs("A", 3, 5*time.Minute, 0, "")}, []span{{0, 0, 1}}},
		{"one", []entry{signs("A", 1, time.Minute, time.Minute, "")}, []span{{60, 60, 1}}},
		{"a timeline with a gap", []entry{signs("A", 30, 9*time.Minute, 0, ""), burst("A", 20, 9*time.Minute, 8*time.Minute, ""), burst("A", 10, time.Minute, 0, "")}, []span{{540, 480, 20}, {60, 0, 10}}},
		{"two codes make one", []entry{signs("A", 1, 2*time.Minute, 2*time.Minute, ""), signs("B", 1, time.Minute, time.Minute, "")}, []span{{120, 60, 2}}},
		{"one within another", []entry{signs("A", 9, 5*time.Minute, 0, ""), burst("A", 8, 5*time.Minute, 0, ""), burst("A", 1, 4*time.Minute, 3*time.Minute, "")}, []span{{300, 0, 9}}},
		{"a timeline that ends early", []entry{signs("A", 30, 9*time.Minute, 0, ""), burst("A", 20, 9*time.Minute, 8*time.Minute, "")}, []span{{540, 480, 20}, {0, 0, 1}}},
		{"no times", []entry{func(r *journal.Report) { r.Signatures = []journal.Count{{Code: "A", Count: 3}} }}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, spans(node(said(tt.log...))), cmp.AllowUnexported(span{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTaskNames holds the ways in which kernel and kdiag write a task, and what it is to the node.
func TestTaskNames(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want facts.LogTask
		role facts.Role
	}{
		{"containerd-shim:5000", facts.LogTask{Name: "containerd-shim", PID: 5000}, facts.RoleShim},
		{"containerd-shim (pid 5000)", facts.LogTask{Name: "containerd-shim", PID: 5000}, facts.RoleShim},
		{"containerd[77]", facts.LogTask{Name: "containerd", PID: 77}, facts.RoleRuntime},
		{"runc:[2:INIT]:6000", facts.LogTask{Name: "runc:[2:INIT]", PID: 6000}, facts.RoleOCI},
		{"runc:[2:INIT]", facts.LogTask{Name: "runc:[2:INIT]", PID: 0}, facts.RoleOCI},
		{"kworker/u8:3:12345", facts.LogTask{Name: "kworker/u8:3", PID: 12345}, facts.RoleOther},
		{"jbd2/sda1-8:311", facts.LogTask{Name: "jbd2/sda1-8", PID: 311}, facts.RoleOther},
		{"kubelet", facts.LogTask{Name: "kubelet", PID: 0}, facts.RoleKubelet},
		{"k3s-server", facts.LogTask{Name: "k3s-server", PID: 0}, facts.RoleKubelet},
		{"4711", facts.LogTask{Name: "", PID: 4711}, facts.RoleOther},
		{"", facts.LogTask{}, facts.RoleOther},
		{"java", facts.LogTask{Name: "java", PID: 0}, facts.RoleOther},
		{"conmon:9", facts.LogTask{Name: "conmon", PID: 9}, facts.RoleShim},
		{"crio:9", facts.LogTask{Name: "crio", PID: 9}, facts.RoleRuntime},
	} {
		if got := facts.TaskIn(tt.in); got != tt.want || got.Role() != tt.role {
			t.Errorf("%q: %+v, role %d", tt.in, got, got.Role())
		}
	}
	for name, want := range map[string]facts.Role{
		"kubelet.service": facts.RoleKubelet, "k3s-agent.service": facts.RoleKubelet, "snap.microk8s.daemon-kubelite.service": facts.RoleKubelet, "rke2-server": facts.RoleKubelet,
		"kubelet: The Kubernetes Node Agent": facts.RoleKubelet, "Kubernetes Kubelet": facts.RoleKubelet, "Lightweight Kubernetes": facts.RoleKubelet,
		"containerd.service": facts.RoleRuntime, "containerd container runtime": facts.RoleRuntime, "docker.service": facts.RoleRuntime, "crio": facts.RoleRuntime,
		"cri-containerd-12.scope": facts.RoleOther, "sshd.service": facts.RoleOther, "docker.socket": facts.RoleOther, "": facts.RoleOther,
	} {
		if got := facts.UnitRole(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// TestHungCalls holds the arithmetic of worst ages.
func TestHungCalls(t *testing.T) {
	for worst, want := range map[time.Duration]int{
		0: 0, 2*time.Minute + time.Second: 0, 3*time.Minute + 4*time.Second: 0, 4*time.Minute + time.Second: 2, 4*time.Minute + 11*time.Second: 0,
		6*time.Minute + 2*time.Second: 3, 5 * time.Minute: 0,
	} {
		if got := causes.HungCalls(worst, 2*time.Minute, 3*time.Minute); got != want {
			t.Errorf("%v: %d, want %d", worst, got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 21: "21st"} {
		if got := causes.Ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
