package judge

import (
	"reflect"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// good is a look that brought its value.
func good[T any](v T) facts.Reading[T] {
	return facts.Reading[T]{Value: v, OK: true, Took: 3 * time.Millisecond}
}

// disk is the file system under the folders of the runtime, the kubelet and the logs.
func disk() host.Space {
	return host.Space{
		Folders: []host.Folder{
			{Path: "/var/log/pods", Role: host.FolderLogs},
			{Path: "/var/lib/containerd", Role: host.FolderRuntime},
			{Path: "/var/lib/kubelet", Role: host.FolderKubelet},
		},
		Mount: "/var", Type: "xfs", Source: "/dev/nvme1n1", Size: 200 << 30, Free: 120 << 30, Inodes: 100_000_000, InodesFree: 98_000_000,
	}
}

// some is an average that has lasted for a minute.
func some(percent float64) host.Averages {
	return host.Averages{Avg10: percent, Avg60: percent, Avg300: percent / 2}
}

// seen gives the node the recorded host that is well, and applies changes.
func seen(changes ...func(*facts.Node)) tweak { return onHost("host_healthy", changes) }

// surfaces gives the node a kubelet whose own surfaces are well besides, and applies changes.
func surfaces(changes ...func(*facts.Node)) tweak {
	return func(f *facts.Input) {
		f.Processes = append(f.Processes, kubeletProcess('S'))
		onHost("kubelet_healthy", changes)(f)
	}
}

func onHost(name string, changes []func(*facts.Node)) tweak {
	return func(f *facts.Input) {
		f.Node = recordedCase(name).Node
		f.Node.Pressure.Value.Memory = &host.Stall{}
		for _, change := range changes {
			change(f.Node)
		}
	}
}

// times10 is ten writes of the same time.
func times10(d time.Duration) []time.Duration {
	out := make([]time.Duration, 10)
	for i := range out {
		out[i] = d
	}
	return out
}

// notSeen gives the node looks that brought nothing: as a user without rights has them, or on a kernel without these
// files.
func notSeen(f *facts.Input) {
	f.Node = &facts.Node{}
	walkStrings(reflect.ValueOf(f.Node).Elem(), func(field string, v reflect.Value) {
		if field == "Missing" {
			v.SetString("permission denied")
		}
	})
}

// walkStrings visits every string below a value, with the name of its field. Values of maps are left alone.
func walkStrings(v reflect.Value, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkStrings(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkStrings(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.String && f.CanSet() {
				visit(v.Type().Field(i).Name, f)
			} else if f.CanSet() {
				walkStrings(f, visit)
			}
		}
	}
}

func kubeletProcess(state byte) host.Process {
	return host.Process{
		PID: 812, PPID: 1, Name: "kubelet", Role: host.RoleKubelet, State: state,
		Wchan: "futex_wait_queue", Started: now().Add(-72 * time.Hour),
	}
}

func shimProcess(state byte) host.Process {
	return host.Process{
		PID: 5000, PPID: 1, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox1",
		State: state, Started: now().Add(-24 * time.Hour),
	}
}

func daemonProcess() host.Process {
	return host.Process{
		PID: 4711, PPID: 1, Name: "containerd", Role: host.RoleRuntime, State: 'S', Wchan: "ep_poll",
		Started: now().Add(-72 * time.Hour),
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
		u.Active, u.Sub, u.Result, u.Since = active, sub, result, now().Add(-since)
	}
}

// blocked adds tasks in uninterruptible sleep in both looks.
func blocked(tasks ...host.BlockedTask) func(*facts.Node) {
	return func(n *facts.Node) { n.Tasks.Value.Blocked = append(n.Tasks.Value.Blocked, tasks...) }
}

// onNFS is a process of web/checkout-1 that waits for its file server.
func onNFS() host.BlockedTask {
	return host.BlockedTask{
		PID: 7011, TID: 7014, Name: "java", Wchan: "rpc_wait_bit_killable",
		Stack:   []string{"rpc_wait_bit_killable", "__rpc_execute", "nfs4_call_sync", "nfs_getattr"},
		Started: now().Add(-20 * time.Hour), Owner: host.Owner{ObjectID: "container1-0", PodUID: "uid-1"},
	}
}

// deadMount is a mount of web/checkout-1 that does not answer.
func deadMount(n *facts.Node) {
	m := &n.Mounts.Value.Probed[0]
	m.Hung, m.Waiting = true, 45*time.Second
}

// homeFolder is a mount that users of the host have and no pod, and that does not answer.
func homeFolder(n *facts.Node) {
	n.Mounts.Value.Probed[0] = host.Mount{
		Point: "/home", Type: "nfs4", Source: "filer:/home", Network: true,
		Asked: true, Hung: true, Waiting: 45 * time.Second,
	}
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
