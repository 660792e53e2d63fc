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
	"github.com/kdiag/kdiag/journal/signature"
)

// TestJournalAsEvidence holds what the log adds to causes that were measured: which way it points, in which words, and
// that the confidence follows.
func TestJournalAsEvidence(t *testing.T) {
	down := signs(signature.RuntimeIsDown, 30, 3*time.Minute, 4*time.Second, "container runtime is down")
	active := signs(signature.SyncLoopActive, 30, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE"`)
	inspect := func(last time.Duration, ids ...string) entry {
		return signs(signature.InspectFailed, 7, 9*time.Minute, last, "ContainerStatus from runtime service failed",
			ids...)
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
		{
			"down, and the kubelet says so", causes.RuntimeDown,
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{down, signs(signature.RelistFailed, 180, 3*time.Minute, time.Second,
				refusedRelist)},
			1, "Status has failed for 30 s or more since 03:06:24",
		},
		{
			"down, its relists", causes.RuntimeDown,
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{signs(signature.RelistFailed, 180, 3*time.Minute, time.Second,
				refusedRelist)},
			1, "relists fail since 03:06:24: ",
		},
		{
			"down for longer than is read", causes.RuntimeDown,
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{signs(signature.RelistFailed, 900, 15*time.Minute, time.Second,
				refusedRelist)},
			1, "relists fail for all of the last 15m",
		},
		{
			"down, and the kubelet works", causes.RuntimeDown,
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{active},
			-1, "its log has no record of trouble",
		},
		{
			"down, and the kubelet worked before", causes.RuntimeDown,
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{signs(signature.SyncLoopActive, 9, 9*time.Minute, time.Minute, "x")},
			0, "",
		},
		{
			"hung, down and PLEG", causes.RuntimeHung,
			[]tweak{hangs(everyRPC()...)},
			[]entry{down, pleg},
			1,
			"PLEG is not healthy, since 03:07:24; its last good relist began at 03:04:24",
		},
		{
			"hung, and the kubelet works", causes.RuntimeHung,
			[]tweak{hangs(everyRPC()...)},
			[]entry{active},
			-1,
			"the kubelet's loop ran at 03:09:21",
		},
		{
			"list, PLEG alone", causes.ListHang,
			[]tweak{hangs(facts.RPCContainers)},
			[]entry{pleg},
			1,
			"PLEG is not healthy",
		},
		{
			"object, named", causes.InspectHang,
			[]tweak{statusHangs("container1-0")},
			[]entry{inspect(time.Minute,
				"container1-0")},
			1, "names it too: its status calls for web/checkout-1 (app0) fail since 03:00:24, 7 " +
				"times in all",
		},
		{
			"object, its pod named", causes.InspectHang,
			[]tweak{statusHangs("container1-0")},
			[]entry{inspect(time.Minute, "web/checkout-1")},
			1, "names it too",
		},
		{
			"object, another named", causes.InspectHang,
			[]tweak{statusHangs("container1-0")},
			[]entry{inspect(time.Minute, "0123456789abcdef")},
			-1, "name others, such as 0123456789abc",
		},
		{
			"object, another named long ago", causes.InspectHang,
			[]tweak{statusHangs("container1-0")},
			[]entry{inspect(8*time.Minute, "0123456789abcdef")},
			0, "",
		},
		{
			"too large, and refused there", causes.ListTooLarge,
			[]tweak{exited(800, 1, 30000)},
			[]entry{signs(signature.MessageTooLarge, 40, 3*time.Minute, time.Second,
				"rpc error: code = ResourceExhausted desc = grpc: received message larger than max (26300000 vs. "+
					"16777216)")},
			1, "(26300000 vs. 16777216)",
		},
		{
			"too large, and the kubelet works", causes.ListTooLarge,
			[]tweak{exited(800, 1, 30000)},
			[]entry{active},
			-1,
			"no record of trouble",
		},
		{
			"network", causes.NetworkNotReady,
			[]tweak{condition(1, false)},
			[]entry{signs(signature.NetworkNotReady, 60, 5*time.Minute, 4*time.Second,
				"x")},
			1, "the kubelet logs it too since 03:04:24",
		},
		{
			"CNI, down alone", causes.CNIHung,
			[]tweak{hangs(facts.RPCStatus)},
			[]entry{down},
			1,
			"container runtime is down",
		},
		{
			"images", causes.ImageServiceHung,
			[]tweak{hangs(facts.RPCImages, facts.RPCImageFs)},
			[]entry{signs(signature.ImageServiceFailed, 3, 9*time.Minute, time.Minute,
				"x")},
			1, "image calls fail",
		},
		{
			"exited, and removals fail", causes.TooManyExited,
			[]tweak{exited(2000, 100, 1000)},
			[]entry{signs(signature.RemoveFailed, 3, 9*time.Minute, time.Minute,
				"RemoveContainer failed: device busy")},
			1, "device busy",
		},
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
	watchdog := []entry{
		restarted(3, 4*time.Minute, 50*time.Second),
		signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute,
			"kubelet.service: Watchdog timeout (limit 30s)!", "kubelet.service"),
	}
	pleg := incident(2*time.Minute, 4*time.Second)
	for _, tt := range []struct {
		name     string
		tweaks   []tweak
		log      []entry
		want     []string
		causedBy []string
	}{
		{
			"the runtime was killed, and is down",
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{oom("containerd")},
			[]string{causes.OOMKilled, causes.RuntimeDown},
			[]string{"", causes.OOMKilled},
		},
		{
			"another was killed, and the runtime is down",
			[]tweak{socket(crictl.ConnectRefused, "refused")},
			[]entry{oom("java")},
			[]string{causes.RuntimeDown, causes.OOMKilled},
			[]string{"", ""},
		},
		{
			"a shim was killed, and an object hangs",
			[]tweak{statusHangs("container1-0")},
			[]entry{oom("containerd-shim")},
			[]string{causes.OOMKilled, causes.InspectHang},
			[]string{
				"",
				causes.OOMKilled,
			},
		},
		{
			"the kubelet is killed again and again", nil,
			[]entry{oom("kubelet"), restarted(4, time.Minute, 10*time.Second)},
			[]string{
				causes.OOMKilled,
				causes.KubeletCrashLooping,
			},
			[]string{"", causes.OOMKilled},
		},
		{
			"the kernel hangs, and the runtime with it",
			[]tweak{hangs(everyRPC()...)},
			[]entry{hung("jbd2/sda1-8 pid 311")},
			[]string{causes.KernelHung, causes.RuntimeHung},
			[]string{"", causes.KernelHung},
		},
		{
			"the kernel hangs, and a list with it",
			[]tweak{hangs(facts.RPCContainers)},
			[]entry{hung("containerd-shim pid 5000")},
			[]string{causes.KernelHung, causes.ListHang},
			[]string{
				"",
				causes.KernelHung,
			},
		},
		{
			"the kernel hangs, but a signal stopped the runtime",
			[]tweak{
				socket(crictl.ConnectSilent, ""),
				daemonIn('T', "do_signal_stop"),
			},
			[]entry{hung("jbd2/sda1-8 pid 311")},
			[]string{causes.RuntimeHung, causes.KernelHung},
			[]string{"", ""},
		},
		{
			"the kernel hangs, and PLEG with it", nil,
			[]entry{hung("jbd2/sda1-8 pid 311"), pleg},
			[]string{causes.KernelHung, causes.PLEGUnhealthy},
			[]string{"", causes.KernelHung},
		},
		{
			"the watchdog kills, and the runtime hangs",
			[]tweak{hangs(everyRPC()...)},
			watchdog,
			[]string{causes.RuntimeHung, causes.KubeletCrashLooping},
			[]string{"", causes.RuntimeHung},
		},
		{
			"the kubelet ends itself, and the runtime hangs",
			[]tweak{hangs(everyRPC()...)},
			[]entry{restarted(3, time.Minute, 50*time.Second)},
			[]string{
				causes.RuntimeHung,
				causes.KubeletCrashLooping,
			},
			[]string{"", ""},
		},
		{
			"PLEG beside a hung runtime",
			[]tweak{hangs(everyRPC()...)},
			[]entry{pleg},
			[]string{causes.RuntimeHung},
			[]string{""},
		},
		{
			"PLEG beside a hung object",
			[]tweak{statusHangs("container1-0")},
			[]entry{pleg},
			[]string{causes.InspectHang},
			[]string{""},
		},
		{
			"PLEG beside a dead network",
			[]tweak{condition(1, false)},
			[]entry{pleg},
			[]string{causes.PLEGUnhealthy, causes.NetworkNotReady},
			[]string{"", ""},
		},
		{
			"PLEG beside a list that is only large",
			[]tweak{exited(500, 1, 18000)},
			[]entry{pleg},
			[]string{causes.PLEGUnhealthy, causes.ListTooLarge},
			[]string{"", ""},
		},
		{
			"PLEG beside slow lists",
			[]tweak{takes(time.Second, facts.RPCSandboxes, facts.RPCContainers)},
			[]entry{pleg},
			[]string{causes.RuntimeSlow},
			[]string{""},
		},
		{"PLEG beside a killed shim", nil, []entry{signs(signature.OOMKill, 1, 5*time.Minute, 5*time.Minute,
			memcgKill, "containerd-shim"), pleg}, []string{causes.OOMKilled}, []string{""}},
		{
			"PLEG after a shim was killed long before", nil,
			[]entry{
				signs(signature.OOMKill, 1, 14*time.Minute, 14*time.Minute, memcgKill, "containerd-shim"),
				pleg,
			},
			[]string{causes.PLEGUnhealthy, causes.OOMKilled},
			[]string{"", ""},
		},
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
	shim := host.Process{
		PID: 5000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, State: 'D',
		Wchan: "rpc_wait_bit_killable", Started: now().Add(-time.Hour),
	}
	log := said(signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim, "containerd-shim pid 5000"))
	stuck := only(t, node(log, processesOf(shim)), causes.KernelHung)
	if !mentions(stuck.Evidence.For, "containerd-shim (pid 5000) is still in uninterruptible sleep") {
		t.Errorf("%q", stuck.Evidence.For)
	}
	shim.State = 'S'
	gone := only(t, node(log, processesOf(shim)), causes.KernelHung)
	if !mentions(gone.Evidence.Against, "the kernel has let it go") || gone.Confidence >= stuck.Confidence ||
		gone.Severity != checks.Warning || stuck.Severity != checks.Critical {
		t.Errorf("%q, %.2f against %.2f", gone.Evidence.Against, gone.Confidence, stuck.Confidence)
	}
}

// TestOnlyTheReportHearsTheNode wants the verdict on a socket, and on a series of relists, to be theirs alone.
func TestOnlyTheReportHearsTheNode(t *testing.T) {
	f := node(said(restarted(9, 11*time.Second, time.Second)))
	report, probe, benchmark := NewReport(checks.Header{}, f), NewRuntimeProbe(checks.Header{},
		f), NewRelistBenchmark(checks.Header{}, f)
	if report.Status != checks.Unhealthy || probe.Status != checks.Healthy || benchmark.Status != checks.Healthy ||
		len(probe.Causes)+len(benchmark.Causes) > 0 {
		t.Errorf("%s, %s, %s", report.Status, probe.Status, benchmark.Status)
	}
}
