package judge

import (
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

func health(change func(*kubelet.Health)) func(*facts.Node) {
	return func(n *facts.Node) { change(&n.Health.Value) }
}

func lastSeen(ago time.Duration) func(*facts.Node) {
	return health(func(h *kubelet.Health) { h.Metrics.PLEGLastSeen = now().Add(-ago) })
}

// loop changes what the kubelet's server answers about its loop.
func loop(change func(*kubelet.Answer)) tweak {
	return surfaces(health(func(h *kubelet.Health) { change(h.SyncLoop) }))
}

// cannotAsk is the kubelet's server when the kubelet cannot ask the API server who may come in.
func cannotAsk(n *facts.Node) {
	h := &n.Health.Value
	h.SyncLoop = &kubelet.Answer{URL: "https://127.0.0.1:10250/healthz/syncloop", Status: 500, Denied: true}
	h.Metrics, h.Credential, h.Missing = nil, "", "the kubelet could not ask the API server who may come in"
}

// quiet is a log that holds nothing of the kubelet, as it mostly does with -v=0.
func quiet(f *facts.Input) {
	said(signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate", "logrotate.service"))(f)
	f.Journal.Signatures[0].Lane = string(signature.Node)
}

// readFrom sets from what the log was read.
func readFrom(sources ...journal.Source) tweak {
	return func(f *facts.Input) { f.Journal.Sources = sources }
}

// noSystemd is a node on which something else runs the services.
func noSystemd(n *facts.Node) {
	n.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: facts.NoSystemd}
}

// kubeletAge sets for how long the kubelet has been running.
func kubeletAge(d time.Duration) tweak {
	return func(f *facts.Input) { f.Processes[1].Started = now().Add(-d) }
}

// TestKubeletDown holds what shows that there is no kubelet, or none that stays up.
func TestKubeletDown(t *testing.T) {
	down := unitIn("failed", "failed", "exit-code", time.Minute)
	stopped := unitIn("inactive", "dead", "success", time.Minute)
	noUnit := func(n *facts.Node) { n.Systemd.Value.Kubelet = nil }
	noCertificates := func(n *facts.Node) { n.Certificates = facts.Reading[[]kubelet.Certificate]{Skipped: true} }
	disabled := func(n *facts.Node) { n.Systemd.Value.Kubelet.Enabled = "disabled" }
	ping := func(status int, err string) tweak {
		return func(f *facts.Input) {
			f.Node.Health = good(
				kubelet.Health{Ping: &kubelet.Answer{URL: "http://127.0.0.1:10248/healthz", Status: status, Err: err}},
			)
		}
	}
	restarts := func(n int, active, sub string, since time.Duration) tweak {
		return surfaces(unitIn(active, sub, "exit-code", since),
			func(node *facts.Node) { node.Systemd.Value.Kubelet.Restarts = n })
	}
	lease := func(n *facts.Node) { n.Server.Value.LeaseAge = time.Hour }
	gone := input(func(f *facts.Input) { f.Kubelet, f.Processes = nil, []host.Process{daemonProcess()} })
	gaveUp := said(signs(signature.UnitRestarted, 5, 4*time.Minute, time.Minute, scheduled, "kubelet.service"),
		signs(signature.KubeletFatal, 5, 4*time.Minute, time.Minute, fatalSwap))
	judgeAll(t, []scenario{
		row("all well", "healthy", surfaces()),
		row("unit failed", "KubeletDown!", surfaces(down), noKubelet),
		row("unit failed, another kubelet runs", "healthy", surfaces(down)),
		row("unit stopped", "KubeletDown!", surfaces(stopped), noKubelet),
		row("unit never used", "healthy", surfaces(unitIn("inactive", "dead", "success", 0), disabled, noCertificates),
			noKubelet),
		row("disabled on a node", "KubeletDown!", surfaces(stopped, disabled), noKubelet),
		row("a unit of another name, stopped", "KubeletDown!", surfaces(noUnit), noKubelet,
			ping(0, "connect: connection refused")),
		row("a unit of another name, and somebody answers", "healthy", surfaces(noUnit), noKubelet, ping(200, "")),
		row("no unit, no kubelet", "healthy", surfaces(noUnit), noKubelet),
		row("no systemd, port refused", "KubeletDown!", surfaces(noSystemd), gone,
			ping(0, "connect: connection refused")),
		row("no systemd, and no kubelet", "KubeletDown!", surfaces(noSystemd), noKubelet),
		row("no systemd, and a kubelet elsewhere answers", "healthy", surfaces(noSystemd), noKubelet, ping(200, "")),
		row("no systemd, and no node", "healthy", surfaces(noSystemd, noCertificates), noKubelet),
		row("down, and the lease is old", "KubeletDown!; APIServerUnreachable! < KubeletDown", surfaces(down, lease),
			gone),
		row("about to be restarted, twice so far", "healthy", restarts(2, "activating", "auto-restart", time.Second)),
		row("about to be restarted, the third time", "KubeletCrashLooping!",
			restarts(3, "activating", "auto-restart", time.Second), noKubelet),
		row("restarted often, up for a minute", "KubeletCrashLooping!", restarts(9, "active", "running", time.Minute),
			kubeletAge(time.Minute)),
		row("restarted often, up for long", "healthy", restarts(9, "active", "running", facts.LoopFresh)),
		row("given up after a loop", "KubeletCrashLooping!; KubeletDown! < KubeletCrashLooping",
			surfaces(unitIn("failed", "failed", "start-limit-hit", time.Minute)), noKubelet, gaveUp),
	})
}

// TestKubeletStalled holds what shows that a kubelet runs and does not get on.
func TestKubeletStalled(t *testing.T) {
	refused := surfaces(
		health(func(h *kubelet.Health) { *h.Ping = kubelet.Answer{Err: "connect: connection refused"} }))
	stopped := surfaces(func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{kubeletProcess('T')} })
	stands := loop(func(a *kubelet.Answer) { a.Status = 500 })
	judgeAll(t, []scenario{
		row("PLEG at the threshold", "healthy", surfaces(lastSeen(3*time.Minute))),
		row("PLEG over the threshold", "KubeletStalled!", surfaces(lastSeen(3*time.Minute+time.Second))),
		row("PLEG over the threshold, and a call hangs", "InspectHang!", surfaces(lastSeen(11*time.Minute)),
			statusHangs("container1-0")),
		row("PLEG never seen", "healthy",
			surfaces(health(func(h *kubelet.Health) { h.Metrics.PLEGLastSeen = time.Unix(0, 0) }))),
		row("the loop stands still", "KubeletStalled!", stands),
		row("the loop was not asked", "healthy", loop(func(a *kubelet.Answer) { a.Status, a.Denied = 401, true })),
		row("the loop stands still, the runtime is not ready", "RuntimeNotReady!", stands, condition(0, false)),
		row("stopped", "KubeletStalled!", stopped),
		row("the ping hangs", "KubeletStalled!",
			surfaces(health(func(h *kubelet.Health) { h.Ping.Hung, h.Ping.Status = true, 0 }))),
		row("still starting", "healthy", refused, kubeletAge(facts.KubeletStartup-time.Second)),
		row("never came up", "KubeletStalled!", refused, kubeletAge(facts.KubeletStartup)),
		row("never came up, the runtime hangs", "RuntimeHung!; KubeletStalled! < RuntimeHung", refused,
			hangs(everyRPC()...)),
	})
}

// TestAPIServerAndCertificates holds the way to the API server, and what refuses it.
func TestAPIServerAndCertificates(t *testing.T) {
	lease := func(age time.Duration) func(*facts.Node) {
		return func(n *facts.Node) { n.Server.Value.LeaseAge = age }
	}
	away := surfaces(func(n *facts.Node) {
		n.Server.Value = kubelet.Server{URL: "https://api:6443", Err: "lookup api: no such host"}
	})
	over := expires(0, -time.Hour, -time.Minute)
	stopped := input(func(f *facts.Input) { f.Node.Tasks.Value.Stopped = []host.Process{kubeletProcess('T')} })
	second := func(n *facts.Node) {
		n.Certificates.Value = append(n.Certificates.Value,
			kubelet.Certificate{Role: "client", NotBefore: now().Add(-time.Hour), NotAfter: now().Add(time.Hour)})
	}
	own := func(n *facts.Node) { n.Certificates.Value[1].Path = "/var/lib/kubelet/pki/kubelet.crt" }
	bootstrap := signs(signature.KubeletFatal, 5, 6*time.Minute, time.Minute,
		`"command failed" err="failed to run Kubelet: unable to load bootstrap kubeconfig"`)
	logs := said(signs(signature.APIServerFailed, 40, 14*time.Minute, 3*time.Second, "failed to list *v1.ConfigMap"))
	judgeAll(t, []scenario{
		row("lease in time", "healthy", surfaces(lease(facts.LeaseGrace))),
		row("lease too old", "APIServerUnreachable!", surfaces(lease(facts.LeaseGrace+time.Second))),
		row("away", "APIServerUnreachable!", away),
		row("away, and the kubelet works", "APIServerUnreachable", away,
			said(signs(signature.SyncLoopActive, 30, time.Minute, time.Second, "SyncLoop"))),
		row("away, and the kubelet logs nothing", "APIServerUnreachable", away, quiet),
		row("away, and the kubelet is refused as well", "APIServerUnreachable!", away,
			said(signs(signature.Unauthorized, 2, time.Minute, 30*time.Second, "Unauthorized"))),
		row("away, and the kubelet has had no time to notice", "APIServerUnreachable!", away, quiet,
			kubeletAge(facts.APIFresh-time.Second)),
		row("away, and the kubelet has had time", "APIServerUnreachable", away, quiet, kubeletAge(facts.APIFresh)),
		row("away, and the kubelet is stopped", "KubeletStalled!; APIServerUnreachable!", away, quiet, stopped),
		row("away, and only the kernel's log was read", "APIServerUnreachable!", away, quiet,
			readFrom(journal.Source{Name: "/dev/kmsg", Format: "kmsg"})),
		row("away, and the kubelet cannot ask it who we are", "APIServerUnreachable!", away,
			input(func(f *facts.Input) { cannotAsk(f.Node) })),
		row("the kubelet may not list something, and renews its lease", "healthy", surfaces(), logs),
		row("401 for kdiag", "healthy",
			surfaces(func(n *facts.Node) { n.Server.Value.Status, n.Server.Value.LeaseRead = 401, false })),
		row("client certificate in its last second", "healthy", surfaces(expires(0, -time.Hour, 0))),
		row("client certificate over", "CertificateExpired!", surfaces(expires(0, -time.Hour, -time.Second))),
		row("client certificate of tomorrow", "CertificateExpired!", surfaces(expires(0, time.Hour, 9*time.Hour))),
		row("another client certificate holds", "healthy", surfaces(over, second)),
		row("serving certificate over", "CertificateExpired", surfaces(expires(1, -time.Hour, -time.Second))),
		row("the kubelet's own serving certificate over", "healthy",
			surfaces(expires(1, -time.Hour, -time.Second), own)),
		row("certificate over, lease too old", "CertificateExpired!; APIServerUnreachable! < CertificateExpired",
			surfaces(over, lease(time.Hour))),
		row("certificate over, and nobody listens there", "CertificateExpired!; APIServerUnreachable!", away,
			input(func(f *facts.Input) { over(f.Node) })),
		row("certificate over, and the kubelet ends for another reason",
			"CertificateExpired!; APIServerUnreachable! < CertificateExpired; KubeletCrashLooping!",
			surfaces(over, lease(time.Hour)), kubeletAge(time.Minute), said(restarted(5, time.Minute, 10*time.Second))),
		row("certificate over, and the kubelet ends for it",
			"CertificateExpired!; KubeletCrashLooping! < CertificateExpired; APIServerUnreachable! < CertificateExpired",
			surfaces(over, lease(time.Hour)), kubeletAge(time.Minute),
			said(restarted(5, time.Minute, 10*time.Second), bootstrap)),
		row("certificate over, and no bootstrap", "CertificateExpired!; KubeletDown! < CertificateExpired",
			surfaces(over, unitIn("failed", "failed", "exit-code", time.Minute)), noKubelet, said(bootstrap)),
	})
}

// TestCgroupDrivers holds which drivers of kubelet and runtime disagree.
func TestCgroupDrivers(t *testing.T) {
	kubeletHas := func(driver string, gate ...bool) func(*facts.Node) {
		return func(n *facts.Node) {
			n.Settings.Value.CgroupDriver = driver
			for _, on := range gate {
				n.Settings.Value.FeatureGates = map[string]bool{"KubeletCgroupDriverFromCRI": on}
			}
		}
	}
	judgeAll(t, []scenario{
		row("they differ", "CgroupDriverMismatch!", surfaces(kubeletHas("cgroupfs"))),
		row("they differ, the other way", "CgroupDriverMismatch",
			surfaces(func(n *facts.Node) { n.RuntimeDriver.Value = "cgroupfs" })),
		row("the kubelet was seen to follow", "healthy", surfaces(kubepods("/kubepods.slice"), kubeletHas("cgroupfs"))),
		row("the kubelet may not follow", "CgroupDriverMismatch!",
			surfaces(kubepods("/kubepods.slice"), kubeletHas("cgroupfs", false))),
		row("the kubelet is told to follow", "healthy", surfaces(kubeletHas("cgroupfs", true))),
		row("the groups of both are there", "CgroupDriverMismatch!",
			surfaces(kubepods("/kubepods", "/kubepods.slice"), kubeletHas("cgroupfs"))),
		row("a driver is not known", "healthy",
			surfaces(func(n *facts.Node) { n.RuntimeDriver = facts.Reading[string]{Missing: "Unimplemented"} })),
	})
}

// TestJournalRoots holds which cause comes first when the logs and the measurement show the same trouble.
func TestJournalRoots(t *testing.T) {
	oom := func(victim string) tweak {
		return said(signs(signature.OOMKill, 1, 6*time.Minute, 6*time.Minute, globalKill, victim))
	}
	hungTask := func(task string) entry {
		return signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim, task)
	}
	watchdog := said(restarted(3, 4*time.Minute, 50*time.Second),
		signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute, "kubelet.service: Watchdog timeout (limit 30s)!", "kubelet.service"))
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
			said(restarted(4, time.Minute, 10*time.Second), signs(signature.OOMKill, 1, 6*time.Minute, 6*time.Minute, globalKill, "kubelet"))),
		row("the kernel hangs, and the runtime with it", "KernelHung!; RuntimeHung! < KernelHung", hung,
			said(hungTask("jbd2/sda1-8:311"))),
		row("the kernel hangs, and a list with it", "KernelHung!; ListHang! < KernelHung", hangs(facts.RPCContainers),
			said(hungTask("containerd-shim pid 5000"))),
		row("the kernel hangs, but a signal stopped the runtime", "RuntimeHung!; KernelHung",
			socket(crictl.ConnectSilent, ""), daemonIn('T', ""), said(hungTask("jbd2/sda1-8:311"))),
		row("the kernel hangs, and PLEG with it", "KernelHung!; PLEGUnhealthy! < KernelHung",
			said(hungTask("jbd2/sda1-8:311"), pleg)),
		row("the kernel reported a shim that is still stuck", "KernelHung!", said(hungTask("containerd-shim pid 5000")),
			shim('D')),
		row("the kernel reported a shim that went on", "KernelHung", said(hungTask("containerd-shim pid 5000")), shim('S')),
		row("the watchdog kills, and the runtime hangs", "RuntimeHung!; KubeletCrashLooping! < RuntimeHung", hung,
			watchdog),
		row("the kubelet ends itself, and the runtime hangs", "RuntimeHung!; KubeletCrashLooping!", hung,
			said(restarted(3, time.Minute, 50*time.Second))),
		row("PLEG beside a hung runtime", "RuntimeHung!", hung, said(pleg)),
		row("PLEG beside a hung object", "InspectHang!", statusHangs("container1-0"), said(pleg)),
		row("PLEG beside a dead network", "PLEGUnhealthy!; NetworkNotReady!", condition(1, false), said(pleg)),
		row("PLEG beside a list that is only large", "PLEGUnhealthy!; ListTooLarge", exited(500, 1, 18000), said(pleg)),
		row("PLEG beside slow lists", "RuntimeSlow!", takes(time.Second, lists()...), said(pleg)),
		row("PLEG beside a killed shim", "OOMKilled!", said(shimKilled(5*time.Minute), pleg)),
		row("PLEG after a shim was killed long before", "PLEGUnhealthy!; OOMKilled!",
			said(shimKilled(14*time.Minute), pleg)),
	})
	f := node(said(restarted(9, 11*time.Second, time.Second)))
	if probe, benchmark := NewRuntimeProbe(checks.Header{}, f), NewRelistBenchmark(checks.Header{}, f); len(
		Judge(f),
	) == 0 ||
		len(probe.Causes)+len(benchmark.Causes) > 0 {
		t.Errorf("the verdict on a socket and on a series is theirs alone: %s, %s", probe.Status, benchmark.Status)
	}
}

// TestJournalAsEvidence holds whether the log speaks for a cause that was measured (1), against it (-1), or neither.
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
			before, after := only(t, node(tt.tweak), tt.code), only(t, node(tt.tweak, said(tt.log...)), tt.code)
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
	if both := only(t, node(hangs(facts.RPCContainers), said(pleg)), "ListHang"); both.Confidence <= alone.Confidence {
		t.Errorf("agreement raises: %.2f, alone %.2f", both.Confidence, alone.Confidence)
	}
}
