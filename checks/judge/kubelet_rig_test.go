package judge

import (
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// The processes that the pictures of this file share.
func kubeletProcess(state byte) host.Process {
	return host.Process{PID: 812, PPID: 1, Name: "kubelet", Role: host.RoleKubelet, State: state, Wchan: "futex_wait_queue", Started: now().Add(-72 * time.Hour)}
}

func shimProcess(state byte) host.Process {
	return host.Process{PID: 5000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox1", State: state, Started: now().Add(-24 * time.Hour)}
}

func daemonProcess() host.Process {
	return host.Process{PID: 4711, PPID: 1, Name: "containerd", Role: host.RoleRuntime, State: 'S', Wchan: "ep_poll", Started: now().Add(-72 * time.Hour)}
}

// surfaces gives the node a kubelet whose own surfaces are well, and applies changes.
func surfaces(changes ...func(*facts.Node)) tweak {
	well := func(n *facts.Node) {
		n.Systemd.Value.Counted, n.Systemd.Value.BusAnswered = true, true
		n.Systemd.Value.Kubelet = &host.Unit{Name: "kubelet.service", Load: "loaded", Active: "active", Sub: "running", Result: "success", Since: now().Add(-72 * time.Hour), MainPID: 812, Enabled: "enabled"}
		n.Systemd.Value.Runtime = &host.Unit{Name: "containerd.service", Load: "loaded", Active: "active", Sub: "running", Result: "success", Since: now().Add(-72 * time.Hour), MainPID: 4711, Enabled: "enabled"}
		n.Settings = good(kubelet.Settings{PID: 812, Files: []string{"/var/lib/kubelet/config.yaml"}, CgroupDriver: "systemd", RotateClient: true, HealthzAddress: "127.0.0.1:10248"})
		n.RuntimeDriver = good("systemd")
		n.Health = good(kubelet.Health{
			Ping:     &kubelet.Answer{URL: "http://127.0.0.1:10248/healthz", Status: 200, Took: time.Millisecond},
			SyncLoop: &kubelet.Answer{URL: "https://127.0.0.1:10250/healthz/syncloop", Status: 200, Took: 3 * time.Millisecond},
			Metrics:  &kubelet.Metrics{PLEGLastSeen: now().Add(-2 * time.Second), Relists: 90000, RelistSeconds: 1800}, Credential: "token",
		})
		n.Certificates = good([]kubelet.Certificate{
			{Role: "client", Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Subject: "system:node:node-7", NotBefore: now().Add(-90 * 24 * time.Hour), NotAfter: now().Add(275 * 24 * time.Hour)},
			{Role: "serving", Path: "/var/lib/kubelet/pki/kubelet-server-current.pem", Subject: "node-7", NotBefore: now().Add(-90 * 24 * time.Hour), NotAfter: now().Add(275 * 24 * time.Hour)},
		})
		n.Server = good(kubelet.Server{URL: "https://10.0.0.1:6443", Reachable: true, Took: 9 * time.Millisecond, Status: 200, SkewKnown: true, LeaseAge: 6 * time.Second, LeaseRead: true})
		n.CNI = good(kubelet.CNI{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, File: "10-calico.conflist", Name: "k8s-pod-network", Plugins: []string{"calico", "portmap"}})
	}
	return func(f *facts.Input) {
		f.Processes = append(f.Processes, kubeletProcess('S'))
		seen(append([]func(*facts.Node){well}, changes...)...)(f)
	}
}

// noKubelet takes the kubelet away, and with it what only a kubelet that runs is asked.
func noKubelet(f *facts.Input) {
	f.Kubelet = nil
	f.Processes = []host.Process{daemonProcess()}
	if f.Node != nil {
		skipped := "no kubelet runs here"
		f.Node.Settings = facts.Reading[kubelet.Settings]{Skipped: true, Missing: skipped}
		f.Node.Health = facts.Reading[kubelet.Health]{Skipped: true, Missing: skipped}
		f.Node.Server = facts.Reading[kubelet.Server]{Skipped: true, Missing: skipped}
	}
}

// unitIn puts the kubelet's unit into a state since a moment.
func unitIn(active, sub, result string, since time.Duration) func(*facts.Node) {
	return func(n *facts.Node) {
		u := n.Systemd.Value.Kubelet
		u.Active, u.Sub, u.Result, u.Since, u.MainPID = active, sub, result, now().Add(-since), 0
	}
}

// blocked adds tasks in uninterruptible sleep in both looks.
func blocked(tasks ...host.BlockedTask) func(*facts.Node) {
	return func(n *facts.Node) { n.Tasks.Value.Blocked = append(n.Tasks.Value.Blocked, tasks...) }
}

// onNFS is a process of web/checkout-1 that waits for its file server.
func onNFS() host.BlockedTask {
	return host.BlockedTask{
		PID: 7011, TID: 7014, Name: "java", Wchan: "rpc_wait_bit_killable", Stack: []string{"rpc_wait_bit_killable", "__rpc_execute", "nfs4_call_sync", "nfs_getattr"},
		Started: now().Add(-20 * time.Hour), Owner: host.Owner{ObjectID: "container1-0", PodUID: "uid-1"},
	}
}

// deadMount is a mount of web/checkout-1 that does not answer.
func deadMount(n *facts.Node) {
	m := &n.Mounts.Value.Probed[0]
	m.Hung, m.Waiting, m.Took = true, 45*time.Second, 0
}

// homeFolder is a mount that users of the host have and no pod, and that does not answer.
func homeFolder(n *facts.Node) {
	n.Mounts.Value.Probed[0] = host.Mount{Point: "/home", Type: "nfs4", Source: "filer:/home", Network: true, Asked: true, Hung: true, Waiting: 45 * time.Second}
}

// frozenPod is the group of web/checkout-1, frozen.
func frozenPod() host.FrozenCgroup {
	return host.FrozenCgroup{
		Path: `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid\x2d1.slice/cri-containerd-container1-0.scope`, Self: true, Tasks: 14,
		Owner: host.Owner{ObjectID: "container1-0", PodUID: "uid-1"},
	}
}

// expires sets the validity of one of the kubelet's certificates, as seen from now.
func expires(which int, from, to time.Duration) func(*facts.Node) {
	return func(n *facts.Node) {
		n.Certificates.Value[which].NotBefore, n.Certificates.Value[which].NotAfter = now().Add(from), now().Add(to)
	}
}

// kubepods adds the control groups of all pods.
func kubepods(paths ...string) func(*facts.Node) {
	return func(n *facts.Node) {
		for _, p := range paths {
			n.PIDs.Value.Cgroups = append(n.PIDs.Value.Cgroups, host.CgroupUsage{Path: p})
		}
	}
}
