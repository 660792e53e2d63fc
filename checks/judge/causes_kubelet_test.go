package judge

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// quiet is a log that holds nothing of the kubelet, as it mostly does with -v=0.
func quiet(f *facts.Input) {
	logs(signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate", "logrotate.service"))(f)
	f.Journal.Signatures[0].Lane = string(signature.Node)
}

// noSystemd is a node on which something else runs the services.
func noSystemd(n *facts.Node) {
	n.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: facts.NoSystemd}
}

// TestJournalRoots checks which cause comes first when the logs and the measurement show the same trouble.
func TestJournalRoots(t *testing.T) {
	oom := func(victim string) tweak {
		return logs(signs(signature.OOMKill, 1, 6*time.Minute, 6*time.Minute, globalKill, victim))
	}
	hungTask := func(task string) entry {
		return signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim, task)
	}
	watchdog := logs(restarted(3, 4*time.Minute, 50*time.Second),
		signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute, watchdogFired, "kubelet.service"))
	pleg := incident(2*time.Minute, 4*time.Second)
	shimKilled := func(at time.Duration) entry {
		return signs(signature.OOMKill, 1, at, at, memcgKill, "containerd-shim")
	}
	down, hung := socket(crictl.ConnectRefused, "refused"), hangs(everyRPC()...)
	shim := func(state byte) tweak {
		return processesOf(
			host.Process{
				PID: 5000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, State: state,
				Started: now().Add(-time.Hour),
			},
		)
	}
	judgeAll(t, []scenario{
		row("the runtime was killed, and is down", "OOMKilled!; RuntimeDown! < OOMKilled", down, oom("containerd")),
		row("another was killed, and the runtime is down", "RuntimeDown!; OOMKilled", down, oom("java")),
		row("a shim was killed, and an object hangs", "OOMKilled!; InspectHang! < OOMKilled",
			statusHangs("container1-0"), oom("containerd-shim")),
		row("the kubelet is killed again and again", "OOMKilled!; KubeletCrashLooping! < OOMKilled",
			logs(restarted(4, time.Minute, 10*time.Second),
				signs(signature.OOMKill, 1, 6*time.Minute, 6*time.Minute, globalKill, "kubelet"))),
		row("the kernel hangs, and the runtime with it", "KernelHung!; RuntimeHung! < KernelHung", hung,
			logs(hungTask("jbd2/sda1-8:311"))),
		row("the kernel hangs, and a list with it", "KernelHung!; ListHang! < KernelHung", hangs(facts.RPCContainers),
			logs(hungTask("containerd-shim pid 5000"))),
		row("the kernel hangs, but a signal stopped the runtime", "RuntimeHung!; KernelHung",
			socket(crictl.ConnectSilent, ""), daemonIn('T', ""), logs(hungTask("jbd2/sda1-8:311"))),
		row("the kernel hangs, and PLEG with it", "KernelHung!; PLEGUnhealthy! < KernelHung",
			logs(hungTask("jbd2/sda1-8:311"), pleg)),
		row("the kernel reported a shim that is still stuck", "KernelHung!", logs(hungTask("containerd-shim pid 5000")),
			shim('D')),
		row("the kernel reported a shim that went on", "healthy",
			logs(hungTask("containerd-shim pid 5000")), shim('S')),
		row("the watchdog kills, and the runtime hangs", "RuntimeHung!; KubeletCrashLooping! < RuntimeHung", hung,
			watchdog),
		row("the kubelet ends itself, and the runtime hangs", "RuntimeHung!; KubeletCrashLooping!", hung,
			logs(restarted(3, time.Minute, 50*time.Second))),
		row("PLEG beside a hung runtime", "RuntimeHung!", hung, logs(pleg)),
		row("PLEG beside a hung object", "InspectHang!", statusHangs("container1-0"), logs(pleg)),
		row("PLEG beside a dead network", "PLEGUnhealthy!; NetworkNotReady!", condition(1, false), logs(pleg)),
		row("PLEG beside a list that is only large", "PLEGUnhealthy!; ListTooLarge", exited(500, 1, 18000), logs(pleg)),
		row("PLEG beside slow lists", "RuntimeSlow!", takes(time.Second, lists()...), logs(pleg)),
		row("PLEG beside a killed shim", "OOMKilled!", logs(shimKilled(5*time.Minute), pleg)),
		row("PLEG after a shim was killed long before", "PLEGUnhealthy!; OOMKilled",
			logs(shimKilled(14*time.Minute), pleg)),
	})
	f := node(logs(restarted(9, 11*time.Second, time.Second)))
	if probe, benchmark := NewRuntimeProbe(checks.Header{}, f), NewRelistBenchmark(checks.Header{}, f); len(
		Judge(f),
	) == 0 ||
		len(probe.Causes)+len(benchmark.Causes) > 0 {
		t.Errorf("the verdict on a socket and on a series is theirs alone: %s, %s", probe.Status, benchmark.Status)
	}
}

// TestJournalAsEvidence checks whether the log supports a cause that was measured (1), contradicts it (-1), or neither.
func TestJournalAsEvidence(t *testing.T) {
	down := signs(signature.RuntimeIsDown, 30, 3*time.Minute, 4*time.Second, "container runtime is down")
	active := signs(signature.SyncLoopActive, 30, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE"`)
	relists := signs(signature.RelistFailed, 180, 3*time.Minute, time.Second, refusedRelist)
	received := signs(
		signature.MessageTooLarge,
		40,
		3*time.Minute,
		time.Second,
		"rpc error: code = ResourceExhausted desc = grpc: "+
			"received message larger than max (26300000 vs. 16777216)",
	)
	inspect := func(last time.Duration, id string) entry {
		return signs(signature.InspectFailed, 7, 9*time.Minute, last, "ContainerStatus from runtime service failed", id)
	}
	pleg := incident(2*time.Minute, 4*time.Second)
	refused, large := socket(crictl.ConnectRefused, "refused"), exited(800, 1, 30000)
	container := statusHangs("container1-0")
	for _, tt := range []struct {
		name   string
		code   string
		tweak  tweak
		log    []entry
		points int
	}{
		{"down, in two ways", "RuntimeDown", refused, []entry{down, relists}, 1},
		{"down, and the kubelet works", "RuntimeDown", refused, []entry{active}, -1},
		{
			"down, and the kubelet worked before", "RuntimeDown", refused,
			[]entry{signs(signature.SyncLoopActive, 9, 9*time.Minute, time.Minute, "x")},
			0,
		},
		{"hung, down and PLEG", "RuntimeHung", hangs(everyRPC()...), []entry{down, pleg}, 1},
		{"hung, and the kubelet works", "RuntimeHung", hangs(everyRPC()...), []entry{active}, -1},
		{"list, PLEG alone", "ListHang", hangs(facts.RPCContainers), []entry{pleg}, 1},
		{"object, named", "InspectHang", container, []entry{inspect(time.Minute, "container1-0")}, 1},
		{"object, its pod named", "InspectHang", container, []entry{inspect(time.Minute, "web/checkout-1")}, 1},
		{"object, another named", "InspectHang", container, []entry{inspect(time.Minute, "0123456789abcdef")}, -1},
		{
			"object, another named long ago", "InspectHang", container,
			[]entry{inspect(8*time.Minute, "0123456789abcdef")},
			0,
		},
		{"too large, and refused there", "ListTooLarge", large, []entry{received}, 1},
		{"too large, and the kubelet works", "ListTooLarge", large, []entry{active}, -1},
		{
			"network", "NetworkNotReady", condition(1, false),
			[]entry{signs(signature.NetworkNotReady, 60, 5*time.Minute, 4*time.Second, "x")},
			1,
		},
		{"CNI, down alone", "CNIHung", hangs(facts.RPCStatus), []entry{down}, 1},
		{
			"images", "ImageServiceHung", hangs(facts.RPCImages, facts.RPCImageFs),
			[]entry{signs(signature.ImageServiceFailed, 3, 9*time.Minute, time.Minute, "x")},
			1,
		},
		{
			"exited, and removals fail", "TooManyExited", exited(2000, 100, 1000),
			[]entry{signs(signature.RemoveFailed, 3, 9*time.Minute, time.Minute, "busy")},
			1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := only(t, node(tt.tweak), tt.code), only(t, node(tt.tweak, logs(tt.log...)), tt.code)
			f, against := len(after.Evidence.For)-len(before.Evidence.For), len(after.Evidence.Against)-len(
				before.Evidence.Against,
			)
			switch {
			case tt.points > 0 && (f <= 0 || after.Confidence < before.Confidence),
				tt.points < 0 && (against <= 0 || after.Confidence >= before.Confidence),
				tt.points == 0 && (f+against != 0 || after.Confidence != before.Confidence):
				t.Errorf(
					"%d lines for, %d against, confidence %.2f, alone %.2f",
					f,
					against,
					after.Confidence,
					before.Confidence,
				)
			}
		})
	}
	alone := only(t, node(hangs(facts.RPCContainers)), "ListHang")
	if both := only(t, node(hangs(facts.RPCContainers), logs(pleg)), "ListHang"); both.Confidence <= alone.Confidence {
		t.Errorf("agreement raises: %.2f, alone %.2f", both.Confidence, alone.Confidence)
	}
}
