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
			{Path: "/var/log/pods", Role: host.FolderLogs}, {
				Path: "/var/lib/containerd",
				Role: host.FolderRuntime,
			}, {Path: "/var/lib/kubelet", Role: host.FolderKubelet},
		},
		Mount: "/var", Type: "xfs", Source: "/dev/nvme1n1", Size: 200 << 30, Free: 120 << 30, Inodes: 100_000_000, InodesFree: 98_000_000,
	}
}

// some is an average that has lasted for a minute.
func some(percent float64) host.Averages {
	return host.Averages{Avg10: percent, Avg60: percent, Avg300: percent / 2}
}

// seen gives the node a host that is well, and applies changes.
func seen(changes ...func(*facts.Node)) tweak {
	return func(f *facts.Input) {
		n := &facts.Node{
			Pressure: good(host.Pressure{
				CPU: &host.Stall{Some: some(4)}, Memory: &host.Stall{},
				IO: &host.Stall{Some: some(2), Full: some(1)},
			}),
			Memory: good(host.Memory{Total: 32 << 30, Available: 20 << 30, Free: 4 << 30}),
			Spaces: good([]host.Space{
				disk(),
				{
					Folders: []host.Folder{{Path: "/", Role: host.FolderRoot}}, Mount: "/", Type: "squashfs",
					Source: "/dev/nvme0n1p2", Size: 1 << 30, ReadOnly: true,
				},
			}),
			Writes: good([]host.Writes{{
				Folder: disk().Folders[1], Mount: "/var",
				Times: times10(3 * time.Millisecond),
			}}),
			Disks: good([]host.Disk{{
				Name: "nvme1n1", Utilisation: 0.99, WriteAwait: 2 * time.Millisecond,
				InFlight: 1, Folders: disk().Folders, Over: time.Second,
			}}),
			Writers: good([]host.Writer{}),
			Mounts: good(host.MountTable{
				Total: 1200, ByType: map[string]int{"overlay": 200, "tmpfs": 500},
				Kubelet: 600, Probed: []host.Mount{
					{
						Point: "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~nfs/data", Type: "nfs4",
						Source: "filer:/export", Network: true, PodUID: "uid-1", Volume: "data",
						Driver: "kubernetes.io~nfs", Asked: true, Took: time.Millisecond,
					},
				},
			}),
			Tasks: good(host.Tasks{Processes: 300, Threads: 1500}),
			PIDs: good(host.PIDs{Tasks: 1500, PIDMax: 32768, ThreadsMax: 255000, Cgroups: []host.CgroupUsage{
				{
					Path: "/system.slice/containerd.service", Usage: host.Usage{Current: 200},
					Owner: host.Owner{Unit: "containerd.service", Role: host.RoleRuntime},
				},
			}}),
			Files: good(host.Files{System: host.Usage{Current: 9000, Max: 3_000_000}, Processes: []host.ProcessFiles{
				{
					PID: 4711, Name: "containerd", Role: host.RoleRuntime, Usage: host.Usage{Current: 120, Max: 1024},
					Hard: 524288,
				},
			}}),
			Inotify: good(host.Inotify{
				MaxInstances: 128, MaxWatches: 65536,
				Users: []host.InotifyUser{{UID: 0, Instances: 40, Watches: 900}},
			}),
			Conntrack: good(host.Conntrack{Usage: host.Usage{Current: 900, Max: 262144}}),
			Cgroups:   good(host.Cgroups{Version: 2, Total: 700, Dying: 30}),
			Clock: good(host.Clock{
				Synchronised: true, MaxError: 20 * time.Millisecond, Suspended: 9 * time.Hour,
				Over: 2 * time.Second,
			}),
			Systemd: good(host.Systemd{
				Answered: true, Took: 4 * time.Millisecond, Version: "257", State: "running",
				Units: 400, Scopes: 20,
			}),
			Settings: good(kubelet.Settings{PID: 812}),
			Holders:  facts.Reading[host.Consumers]{Skipped: true, Missing: "neither memory nor processes are short"},
		}
		for _, change := range changes {
			change(n)
		}
		f.Node = n
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
	walkNode(reflect.ValueOf(f.Node).Elem(), func(field string, v reflect.Value) {
		if field == "Missing" {
			v.SetString("permission denied")
		}
	})
}

// walkNode visits every string below a value, with the name of its field. Values of maps are left alone.
func walkNode(v reflect.Value, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkNode(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkNode(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.String && f.CanSet() {
				visit(v.Type().Field(i).Name, f)
			} else if f.CanSet() {
				walkNode(f, visit)
			}
		}
	}
}

// poisonNode puts the hostile text wherever a node can put one. What code chooses from a list of its own is left.
func poisonNode(n *facts.Node) {
	if n == nil {
		return
	}
	walkNode(reflect.ValueOf(n).Elem(), func(field string, v reflect.Value) {
		switch field {
		case "Role":
		case "Wchan":
			v.SetString(v.String() + hostile)
		default:
			v.SetString(v.String() + hostile)
		}
	})
	if types := n.Mounts.Value.ByType; types != nil {
		types[hostile] = 1 << 20
	}
}

// sickHosts are hosts whose trouble makes the runtime slow, or a call hang.
func sickHosts() map[string]*facts.Input {
	slow := takes(3*time.Second, everyRPC()...)
	return map[string]*facts.Input{
		"io-stall": node(slow, seen(func(n *facts.Node) {
			n.Pressure.Value.IO = &host.Stall{Some: some(91), Full: some(74)}
			n.Writes.Value[0].Times = times10(1400 * time.Millisecond)
		})),
		"memory-pressure": node(slow, seen(func(n *facts.Node) {
			n.Memory.Value.Available = 90 << 20
			n.Pressure.Value.Memory = &host.Stall{Some: some(60), Full: some(38)}
		})),
		"cpu-throttled": node(slow, seen(func(n *facts.Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{{
				Path: "/system.slice/containerd.service", Quota: 0.2, Periods: 20, Throttled: 19, Lost: 1600 * time.Millisecond, Over: 2 * time.Second,
				Owner: host.Owner{Unit: "containerd.service", Role: host.RoleRuntime},
			}}
		})),
		"filesystem-hung": node(statusHangs("container1-0"), seen(func(n *facts.Node) {
			m := &n.Mounts.Value.Probed[0]
			m.Hung, m.Waiting, m.Took = true, 45*time.Second, 0
			shim := host.Owner{Role: host.RoleShim, PodUID: "uid-1", ObjectID: "sandbox1"}
			n.Tasks.Value.Blocked = []host.BlockedTask{{
				PID: 5001, TID: 5001, Name: "containerd-shim",
				Wchan: "rpc_wait_bit_killable", Owner: shim,
			}}
		})),
	}
}
