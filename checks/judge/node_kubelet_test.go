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
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// chain writes causes with their severity and root: FilesystemHung critical; TaskStuck critical < FilesystemHung.
func chain(f *facts.Input) string {
	var words []string
	for _, c := range Judge(f) {
		w := c.Code + " " + string(c.Severity)
		if c.CausedBy != "" {
			w += " < " + c.CausedBy
		}
		words = append(words, w)
	}
	return strings.Join(words, "; ")
}

func health(change func(*kubelet.Health)) func(*facts.Node) {
	return func(n *facts.Node) { change(&n.Health.Value) }
}

func lastSeen(ago time.Duration) func(*facts.Node) {
	return health(func(h *kubelet.Health) { h.Metrics.PLEGLastSeen = now().Add(-ago) })
}

// cannotAsk is the kubelet's server when the kubelet cannot ask the API server who may come in.
func cannotAsk(n *facts.Node) {
	h := &n.Health.Value
	h.SyncLoop = &kubelet.Answer{
		URL: "https://127.0.0.1:10250/healthz/syncloop", Status: 500, Denied: true,
	}
	h.Metrics, h.Credential, h.Missing = nil, "", "the kubelet could not ask the API server whether the node "+
		"certificate lets us in (500)"
}

// quiet is a log in which the kubelet says nothing, as it mostly does with -v=0.
func quiet(f *facts.Input) {
	said(signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate.service",
		"logrotate.service"))(f)
	f.Journal.Signatures[0].Lane = string(signature.Node)
}

// readFrom says what the log was read from.
func readFrom(sources ...journal.Source) tweak {
	return func(f *facts.Input) { f.Journal.Sources = sources }
}

// TestKubeletCauses holds what the kubelet's own surfaces make, on both sides of each threshold.
func TestKubeletCauses(t *testing.T) {
	restarts := func(n int, active, sub string, since time.Duration) tweak {
		return surfaces(unitIn(active, sub, "exit-code", since),
			func(node *facts.Node) { node.Systemd.Value.Kubelet.Restarts = n })
	}
	refused := health(func(h *kubelet.Health) {
		h.Ping = &kubelet.Answer{
			URL: "http://127.0.0.1:10248/healthz",
			Err: "dial tcp 127.0.0.1:10248: connect: connection refused",
		}
	})
	young := func(age time.Duration) tweak {
		return func(f *facts.Input) { f.Processes[1].Started = now().Add(-age) }
	}
	noUnit := func(n *facts.Node) { n.Systemd.Value.Kubelet = nil }
	lease := func(age time.Duration) tweak { return surfaces(func(n *facts.Node) { n.Server.Value.LeaseAge = age }) }
	away := surfaces(func(n *facts.Node) {
		n.Server.Value = kubelet.Server{URL: "https://api:6443", Err: "lookup api: no such host"}
	})
	refusedLease := surfaces(expires(0, -time.Hour, -time.Minute),
		func(n *facts.Node) { n.Server.Value.LeaseAge = 5 * time.Minute })
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   string
	}{
		{"all well", []tweak{surfaces()}, ""},
		{
			"unit failed",
			[]tweak{surfaces(unitIn("failed", "failed", "exit-code", time.Minute)), noKubelet},
			"KubeletDown critical",
		},
		{
			"unit failed, another kubelet runs",
			[]tweak{surfaces(unitIn("failed", "failed", "exit-code", time.Minute))},
			"",
		},
		{
			"unit stopped",
			[]tweak{surfaces(unitIn("inactive", "dead", "success", time.Minute)), noKubelet},
			"KubeletDown critical",
		},
		{"unit never used", []tweak{surfaces(unitIn("inactive", "dead", "success", 0), func(n *facts.Node) {
			n.Systemd.Value.Kubelet.Enabled, n.Certificates = "disabled", facts.Reading[[]kubelet.Certificate]{Skipped: true}
		}), noKubelet}, ""},
		{"disabled on a node", []tweak{surfaces(unitIn("inactive", "dead", "success", 0),
			func(n *facts.Node) { n.Systemd.Value.Kubelet.Enabled = "disabled" }), noKubelet}, "KubeletDown critical"},
		{"a unit of another name, stopped", []tweak{
			surfaces(noUnit), noKubelet,
			func(f *facts.Input) { refused(f.Node) },
		}, "KubeletDown critical"},
		{"a unit of another name, and somebody answers", []tweak{surfaces(noUnit), noKubelet, func(f *facts.Input) {
			f.Node.Health = good(kubelet.Health{Ping: &kubelet.Answer{
				URL:    "http://127.0.0.1:10248/healthz",
				Status: 200,
			}})
		}}, ""},
		{
			"no unit, no kubelet",
			[]tweak{surfaces(func(n *facts.Node) { n.Systemd.Value.Kubelet = nil }), noKubelet},
			"",
		},
		{"no systemd, port refused, settings there", []tweak{surfaces(refused,
			func(n *facts.Node) {
				n.Systemd = facts.Reading[host.Systemd]{
					Skipped: true,
					Missing: "no systemd",
				}
			}), func(f *facts.Input) {
			f.Kubelet, f.Processes = nil, []host.Process{daemonProcess()}
		}}, "KubeletDown critical"},
		{"no systemd, and no kubelet", []tweak{surfaces(), noKubelet, func(f *facts.Input) {
			f.Node.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: "no systemd"}
		}}, "KubeletDown critical"},
		{"no systemd, and a kubelet elsewhere answers", []tweak{surfaces(), func(f *facts.Input) {
			health := f.Node.Health
			noKubelet(f)
			f.Node.Health, f.Node.Systemd = health, facts.Reading[host.Systemd]{Skipped: true, Missing: "no systemd"}
		}}, ""},
		{"no systemd, and no node", []tweak{surfaces(), noKubelet, func(f *facts.Input) {
			f.Node.Systemd, f.Node.Certificates = facts.Reading[host.Systemd]{
				Skipped: true,
				Missing: "no systemd",
			}, facts.Reading[[]kubelet.Certificate]{Skipped: true}
		}}, ""},
		{"down, and the lease is old", []tweak{surfaces(unitIn("failed", "failed", "exit-code", time.Hour),
			func(n *facts.Node) { n.Server.Value.LeaseAge = time.Hour }), func(f *facts.Input) {
			f.Kubelet, f.Processes = nil, []host.Process{daemonProcess()}
		}}, "KubeletDown critical; APIServerUnreachable critical < KubeletDown"},

		{"about to be restarted, twice so far", []tweak{restarts(2, "activating", "auto-restart", time.Second)}, ""},
		{"about to be restarted, the third time", []tweak{
			restarts(3, "activating", "auto-restart", time.Second),
			noKubelet,
		}, "KubeletCrashLooping critical"},
		{"restarted often, up for a minute", []tweak{
			restarts(9, "active", "running", time.Minute),
			young(time.Minute),
		}, "KubeletCrashLooping critical"},
		{"restarted often, up for long", []tweak{restarts(9, "active", "running", facts.LoopFresh)}, ""},
		{"given up after a loop", []tweak{
			surfaces(unitIn("failed", "failed", "start-limit-hit", time.Minute)),
			noKubelet, said(
				signs(signature.UnitRestarted, 5, 4*time.Minute, time.Minute, scheduled,
					"kubelet.service"), signs(signature.KubeletFatal, 5, 4*time.Minute, time.Minute, fatalSwap),
			),
		}, "KubeletCrashLooping critical; KubeletDown critical < KubeletCrashLooping"},

		{"PLEG at the threshold", []tweak{surfaces(lastSeen(3 * time.Minute))}, ""},
		{
			"PLEG over the threshold",
			[]tweak{surfaces(lastSeen(3*time.Minute + time.Second))},
			"KubeletStalled critical",
		},
		{"PLEG over the threshold, and a call hangs", []tweak{
			surfaces(lastSeen(11 * time.Minute)),
			statusHangs("container1-0"),
		}, "InspectHang critical"},
		{"PLEG never seen", []tweak{surfaces(health(func(h *kubelet.Health) {
			h.Metrics.PLEGLastSeen = time.Unix(0,
				0)
		}))}, ""},
		{
			"loop stands still",
			[]tweak{surfaces(health(func(h *kubelet.Health) { h.SyncLoop.Status = 500 }))},
			"KubeletStalled critical",
		},
		{"loop not asked", []tweak{surfaces(health(func(h *kubelet.Health) {
			h.SyncLoop = &kubelet.Answer{
				Status: 401,
				Denied: true,
			}
		}))}, ""},
		{
			"loop stands still, the runtime is not ready",
			[]tweak{
				surfaces(health(func(h *kubelet.Health) { h.SyncLoop.Status = 500 })),
				condition(0, false),
			},
			"RuntimeNotReady critical",
		},
		{"stopped", []tweak{surfaces(func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{kubeletProcess('T')} })}, "KubeletStalled critical"},
		{
			"ping hangs",
			[]tweak{surfaces(health(func(h *kubelet.Health) { *h.Ping = kubelet.Answer{Hung: true} }))},
			"KubeletStalled critical",
		},
		{"still starting", []tweak{surfaces(refused), young(facts.KubeletStartup - time.Second)}, ""},
		{"never came up", []tweak{surfaces(refused), young(facts.KubeletStartup)}, "KubeletStalled critical"},
		{
			"never came up, the runtime hangs",
			[]tweak{surfaces(refused), hangs(everyRPC()...)},
			"RuntimeHung critical; KubeletStalled critical < RuntimeHung",
		},

		{"lease in time", []tweak{lease(facts.LeaseGrace)}, ""},
		{"lease too old", []tweak{lease(facts.LeaseGrace + time.Second)}, "APIServerUnreachable critical"},
		{"server away", []tweak{away}, "APIServerUnreachable critical"},
		{"server away, the kubelet does not mind", []tweak{away, said(signs(signature.SyncLoopActive, 30, time.Minute,
			time.Second, "SyncLoop"))}, "APIServerUnreachable warning"},
		{"server away, and the kubelet says nothing at all", []tweak{away, quiet}, "APIServerUnreachable warning"},
		{
			"server away, and the kubelet is refused as well",
			[]tweak{away, said(signs(signature.Unauthorized, 2, time.Minute, 30*time.Second,
				"Unauthorized"))},
			"APIServerUnreachable critical",
		},
		{
			"server away, and the kubelet has had no time to notice",
			[]tweak{away, quiet, young(facts.APIFresh - time.Second)},
			"APIServerUnreachable critical",
		},
		{
			"server away, and the kubelet has had time",
			[]tweak{away, quiet, young(facts.APIFresh)},
			"APIServerUnreachable warning",
		},
		{
			"server away, and the age of the kubelet is not known",
			[]tweak{away, quiet, func(f *facts.Input) { f.Processes[1].Started = time.Time{} }},
			"APIServerUnreachable warning",
		},
		{"server away, and the kubelet is stopped", []tweak{
			away, quiet,
			func(f *facts.Input) { f.Node.Tasks.Value.Stopped = []host.Process{kubeletProcess('T')} },
		}, "KubeletStalled critical; APIServerUnreachable critical"},
		{
			"server away, and the kubelet cannot ask it who we are",
			[]tweak{away, func(f *facts.Input) { cannotAsk(f.Node) }},
			"APIServerUnreachable critical",
		},
		{
			"the kubelet may not list something, and renews its lease",
			[]tweak{surfaces(), said(signs(signature.APIServerFailed, 40, 14*time.Minute, 3*time.Second,
				"failed to list *v1.ConfigMap"))},
			"",
		},
		{"server says 401 to us", []tweak{surfaces(func(n *facts.Node) {
			n.Server.Value.Status,
				n.Server.Value.LeaseRead = 401, false
		})}, ""},

		{"client certificate in its last second", []tweak{surfaces(expires(0, -time.Hour, 0))}, ""},
		{
			"client certificate over",
			[]tweak{surfaces(expires(0, -time.Hour, -time.Second))},
			"CertificateExpired critical",
		},
		{
			"client certificate of tomorrow",
			[]tweak{surfaces(expires(0, time.Hour, 9*time.Hour))},
			"CertificateExpired critical",
		},
		{"another client certificate holds", []tweak{surfaces(expires(0, -time.Hour, -time.Second),
			func(n *facts.Node) {
				n.Certificates.Value = append(n.Certificates.Value,
					kubelet.Certificate{
						Role: "client", NotBefore: now().Add(-time.Hour),
						NotAfter: now().Add(time.Hour),
					})
			})}, ""},
		{
			"serving certificate over",
			[]tweak{surfaces(expires(1, -time.Hour, -time.Second))},
			"CertificateExpired warning",
		},
		{
			"the kubelet's own serving certificate over",
			[]tweak{surfaces(expires(1, -time.Hour, -time.Second), func(n *facts.Node) {
				n.Certificates.Value[1].Path = "/var/lib/kubelet/pki/kubelet.crt"
			})},
			"",
		},
		{"certificate over, lease too old", []tweak{surfaces(expires(0, -time.Hour, -time.Second),
			func(n *facts.Node) { n.Server.Value.LeaseAge = time.Hour })}, "CertificateExpired critical; " +
			"APIServerUnreachable critical < CertificateExpired"},
		{
			"certificate over, and nobody listens there",
			[]tweak{away, func(f *facts.Input) {
				expires(0, -time.Hour,
					-time.Second)(f.Node)
			}},
			"CertificateExpired critical; APIServerUnreachable critical",
		},
		{
			"certificate over, and the kubelet ends for another reason",
			[]tweak{refusedLease, young(time.Minute), said(restarted(5, time.Minute, 10*time.Second))},
			"CertificateExpired critical; APIServerUnreachable critical < CertificateExpired; KubeletCrashLooping " +
				"critical",
		},
		{"certificate over, and the kubelet ends for it", []tweak{refusedLease, young(time.Minute), said(
			restarted(5, time.Minute, 10*time.Second), signs(signature.KubeletFatal, 5, 6*time.Minute, time.Minute,
				`"command failed" err="failed to run Kubelet: unable to load bootstrap kubeconfig"`),
		)}, "CertificateExpired critical; KubeletCrashLooping critical < CertificateExpired; APIServerUnreachable " +
			"critical < CertificateExpired"},
		{"certificate over, and no bootstrap", []tweak{surfaces(expires(0, -time.Hour, -time.Minute),
			unitIn("failed", "failed", "exit-code", time.Minute)), noKubelet, said(
			signs(signature.KubeletFatal, 1, time.Minute, time.Minute,
				`"command failed" err="failed to run Kubelet: unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file"`),
		)}, "CertificateExpired critical; KubeletDown critical < CertificateExpired"},

		{
			"drivers differ",
			[]tweak{surfaces(func(n *facts.Node) { n.Settings.Value.CgroupDriver = "cgroupfs" })},
			"CgroupDriverMismatch critical",
		},
		{
			"drivers differ, the other way",
			[]tweak{surfaces(func(n *facts.Node) { n.RuntimeDriver.Value = "cgroupfs" })},
			"CgroupDriverMismatch warning",
		},
		{
			"drivers differ, and the kubelet was seen to follow",
			[]tweak{surfaces(kubepods("/kubepods.slice"),
				func(n *facts.Node) { n.Settings.Value.CgroupDriver = "cgroupfs" })},
			"",
		},
		{
			"drivers differ, and the kubelet may not follow",
			[]tweak{surfaces(kubepods("/kubepods.slice"), func(n *facts.Node) {
				n.Settings.Value.CgroupDriver, n.Settings.Value.FeatureGates = "cgroupfs", map[string]bool{"KubeletCgroupDriverFromCRI": false}
			})},
			"CgroupDriverMismatch critical",
		},
		{"drivers differ, and the kubelet is told to follow", []tweak{surfaces(func(n *facts.Node) {
			n.Settings.Value.CgroupDriver, n.Settings.Value.FeatureGates = "cgroupfs", map[string]bool{"KubeletCgroupDriverFromCRI": true}
		})}, ""},
		{
			"drivers differ, and the groups of both are there",
			[]tweak{surfaces(kubepods("/kubepods", "/kubepods.slice"),
				func(n *facts.Node) { n.Settings.Value.CgroupDriver = "cgroupfs" })},
			"CgroupDriverMismatch critical",
		},
		{"a driver is not known", []tweak{surfaces(func(n *facts.Node) { n.RuntimeDriver = facts.Reading[string]{Missing: "Unimplemented"} })}, ""},
		{
			"a plugin is missing, and the network is ready",
			[]tweak{surfaces(func(n *facts.Node) { n.CNI.Value.Missing = []string{"calico"} })},
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, chain(node(tt.tweaks...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDriverOfNoKubelet holds that a runtime which says its driver is not blamed for a kubelet that does not.
func TestDriverOfNoKubelet(t *testing.T) {
	unread := func(n *facts.Node) { n.Settings.OK, n.Settings.Missing = false, "permission denied" }
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   checks.Status
		says   string
	}{
		{
			"no kubelet",
			[]tweak{surfaces(kubepods("/kubepods.slice")), noKubelet},
			checks.StatusSkipped,
			"no kubelet runs here",
		},
		{
			"its settings cannot be read",
			[]tweak{surfaces(kubepods("/kubepods.slice"), unread)},
			checks.StatusUnknown,
			"permission denied",
		},
		{"both say it", []tweak{surfaces()}, checks.StatusOK, "both use systemd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := lineOf(node(tt.tweaks...), "kubelet.cgroupdriver"); r.Status != tt.want ||
				!strings.Contains(r.Summary, tt.says) {
				t.Errorf("%s: %s", r.Status, r.Summary)
			}
		})
	}
}

// TestShimless holds sandboxes that the runtime calls ready and that no shim serves.
func TestShimless(t *testing.T) {
	with := func(served ...string) *facts.Input {
		f := node(surfaces())
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].State = crictl.SandboxReady
		}
		for i, id := range served {
			f.Processes = append(f.Processes, host.Process{
				PID: 5000 + i, Name: "containerd-shim",
				Role: host.RoleShim, ObjectID: id, State: 'S', Started: now().Add(-time.Hour),
			})
		}
		return f
	}
	status := func(f *facts.Input) checks.Status {
		i := slices.IndexFunc(Results(f), func(r checks.Result) bool { return r.ID == "host.shims" })
		return Results(f)[i].Status
	}
	one := with("sandbox0", "sandbox1")
	if got := chain(one); got != "" || status(one) != checks.StatusWarning {
		t.Errorf("one shim is not there: %q, %s", got, status(one))
	}
	statusHangs("sandbox2")(one)
	if got := chain(one); !strings.Contains(got, "ShimStuck warning") {
		t.Errorf("and its status hangs: %q", got)
	}
	if few := with("sandbox0"); status(few) != checks.StatusOK {
		t.Errorf("a runtime with few shims has them elsewhere: %s", status(few))
	}
	conmon := with("sandbox0", "sandbox1")
	conmon.Processes[len(conmon.Processes)-1].Name = "conmon"
	if status(conmon) != checks.StatusOK {
		t.Errorf("CRI-O's sandboxes need no process: %s", status(conmon))
	}
}

// TestWaits tells what a task waits for.
func TestWaits(t *testing.T) {
	for _, tt := range []struct {
		wchan string
		stack []string
		want  facts.Wait
	}{
		{"", nil, facts.WaitUnknown},
		{"rwsem_down_write_slowpath", nil, facts.WaitUnknown},
		{"rpc_wait_bit_killable", nil, facts.WaitNetworkFS},
		{"folio_wait_bit_common", []string{"folio_wait_bit_common", "nfs_wb_folio"}, facts.WaitNetworkFS},
		{"request_wait_answer", []string{"request_wait_answer", "fuse_simple_request"}, facts.WaitFUSE},
		{"wait_for_vfork_done", nil, facts.WaitChild},
		{"kernel_clone", []string{"kernel_clone", "__do_sys_clone", "do_syscall_64"}, facts.WaitChild},
		{"schedule_preempt_disabled", []string{
			"copy_net_ns", "create_new_namespaces", "copy_process",
			"kernel_clone",
		}, facts.WaitNetns},
		{"rwsem_down_write", []string{"rwsem_down_write", "copy_process", "kernel_clone"}, facts.WaitUnknown},
		{"rwsem_down_read_slowpath", []string{"rwsem_down_read_slowpath", "cgroup_attach_task"}, facts.WaitCgroup},
		{"__mutex_lock", []string{"__mutex_lock", "copy_net_ns"}, facts.WaitNetns},
		{"jbd2_log_wait_commit", nil, facts.WaitDisk},
		{"io_schedule", []string{"io_schedule", "mem_cgroup_oom_synchronize"}, facts.WaitMemory},
		{"fanotify_handle_event", nil, facts.WaitWatcher},
		{"__refrigerator", []string{"__refrigerator", "nfs_wait"}, facts.WaitFrozen},
		{"wb_wait_for_completion", []string{"wb_wait_for_completion", "deactivate_locked_super"}, facts.WaitDisk},
		{"generic_shutdown_super", nil, facts.WaitUnmount},
	} {
		if got := facts.WaitOf(host.BlockedTask{Wchan: tt.wchan, Stack: tt.stack}); got != tt.want ||
			got.String() == "" {
			t.Errorf("%s %v: %q, want %q", tt.wchan, tt.stack, got, tt.want)
		}
	}
}

// TestSimulationHasNoNode puts a very sick host beside a simulated runtime: they have nothing to do with each other.
func TestSimulationHasNoNode(t *testing.T) {
	for name, f := range gallery() {
		sick := node(askedBy(crictl.SourceSimulated))
		sick.Node = f.Node
		if got := chain(sick); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestCausesLearnFromTheNode reads what existing causes say with the looks at the node.
func TestCausesLearnFromTheNode(t *testing.T) {
	unit := func(n *facts.Node) {
		u := n.Systemd.Value.Runtime
		u.Active, u.Sub, u.Result, u.Restarts, u.Since = "failed", "failed", "oom-kill", 4, now().Add(-time.Minute)
	}
	down := only(t, node(socket(crictl.ConnectRefused, "refused"), surfaces(unit), processesOf(kubeletProcess('S'))),
		causes.RuntimeDown)
	if !mentions(down.Evidence.For,
		"containerd.service is failed (failed, oom-kill) since 03:08:26, restarted 4 times") {
		t.Errorf("RuntimeDown: %q", down.Evidence.For)
	}
	other := only(t, node(socket(crictl.ConnectRefused, "refused"),
		surfaces(unit, func(n *facts.Node) { n.Systemd.Value.Runtime.Name = "crio.service" }), processesOf(kubeletProcess('S'))), causes.RuntimeDown)
	if mentions(other.Evidence.For, "systemd") {
		t.Errorf("the unit of another runtime: %q", other.Evidence.For)
	}
	network := only(t, node(condition(1, false), surfaces(func(n *facts.Node) {
		n.CNI.Value = kubelet.CNI{
			ConfDir: "/etc/cni/net.d", File: "10-calico.conflist",
			Problem: "10-calico.conflist: names no plugin",
		}
	})), causes.NetworkNotReady)
	if !strings.Contains(network.Summary, "no configuration in /etc/cni/net.d can be used") ||
		len(network.Evidence.Missing) > 0 {
		t.Errorf("NetworkNotReady: %q, %q", network.Summary, network.Evidence.Missing)
	}
	hung := only(t, node(hangs(everyRPC()...), surfaces()), causes.RuntimeHung)
	if !mentions(hung.Evidence.For, "pressure in the last 10 s: CPU some 4%, memory full 0% and io full 1%") ||
		mentions(hung.Evidence.Missing, "pressure") {
		t.Errorf("RuntimeHung: %q, %q", hung.Evidence.For, hung.Evidence.Missing)
	}
	inspect := only(t, node(statusHangs("container1-0"), surfaces(lastSeen(4*time.Minute))), causes.InspectHang)
	if !mentions(inspect.Evidence.For, "the last good relist by the metric: 4m ago") {
		t.Errorf("InspectHang: %q", inspect.Evidence.For)
	}
}
