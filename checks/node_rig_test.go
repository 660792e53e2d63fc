package checks

import (
	"reflect"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// good is a look that brought its value.
func good[T any](v T) Look[T] { return Look[T]{Value: v, OK: true, Took: 3 * time.Millisecond} }

// disk is the file system under the folders of the runtime, the kubelet and the logs.
func disk() host.Space {
	return host.Space{
		Folders: []host.Folder{
			{Path: "/var/log/pods", Role: host.FolderLogs}, {Path: "/var/lib/containerd", Role: host.FolderRuntime}, {Path: "/var/lib/kubelet", Role: host.FolderKubelet},
		},
		Mount: "/var", Type: "xfs", Source: "/dev/nvme1n1", Size: 200 << 30, Free: 120 << 30, Inodes: 100_000_000, InodesFree: 98_000_000,
	}
}

// some is an average that has lasted for a minute.
func some(percent float64) host.Averages {
	return host.Averages{Avg10: percent, Avg60: percent, Avg300: percent / 2}
}

// seen gives the node a host that is well, and applies changes.
func seen(changes ...func(*Node)) tweak {
	return func(f *Facts) {
		n := &Node{
			Pressure: good(host.Pressure{CPU: &host.Stall{Some: some(4)}, Memory: &host.Stall{}, IO: &host.Stall{Some: some(2), Full: some(1)}}),
			Memory:   good(host.Memory{Total: 32 << 30, Available: 20 << 30, Free: 4 << 30}),
			Spaces: good([]host.Space{
				disk(),
				{Folders: []host.Folder{{Path: "/", Role: host.FolderRoot}}, Mount: "/", Type: "squashfs", Source: "/dev/nvme0n1p2", Size: 1 << 30, ReadOnly: true},
			}),
			Writes:  good([]host.Writes{{Folder: disk().Folders[1], Mount: "/var", Times: times10(3 * time.Millisecond)}}),
			Disks:   good([]host.Disk{{Name: "nvme1n1", Utilisation: 0.99, WriteAwait: 2 * time.Millisecond, InFlight: 1, Folders: disk().Folders, Over: time.Second}}),
			Writers: good([]host.Writer{}),
			Mounts: good(host.MountTable{Total: 1200, ByType: map[string]int{"overlay": 200, "tmpfs": 500}, Kubelet: 600, Probed: []host.Mount{
				{Point: "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~nfs/data", Type: "nfs4", Source: "filer:/export", Network: true, PodUID: "uid-1", Volume: "data", Driver: "kubernetes.io~nfs", Asked: true, Took: time.Millisecond},
			}}),
			Tasks: good(host.Tasks{Processes: 300, Threads: 1500}),
			PIDs: good(host.PIDs{Tasks: 1500, PIDMax: 32768, ThreadsMax: 255000, Cgroups: []host.CgroupUsage{
				{Path: "/system.slice/containerd.service", Usage: host.Usage{Current: 200}, Owner: host.Owner{Unit: "containerd.service", Role: host.RoleRuntime}},
			}}),
			Files: good(host.Files{System: host.Usage{Current: 9000, Max: 3_000_000}, Processes: []host.ProcessFiles{
				{PID: 4711, Name: "containerd", Role: host.RoleRuntime, Usage: host.Usage{Current: 120, Max: 1024}, Hard: 524288},
			}}),
			Inotify:   good(host.Inotify{MaxInstances: 128, MaxWatches: 65536, Users: []host.InotifyUser{{UID: 0, Instances: 40, Watches: 900}}}),
			Conntrack: good(host.Conntrack{Usage: host.Usage{Current: 900, Max: 262144}}),
			Cgroups:   good(host.Cgroups{Version: 2, Total: 700, Dying: 30}),
			Clock:     good(host.Clock{Synchronised: true, MaxError: 20 * time.Millisecond, Suspended: 9 * time.Hour, Over: 2 * time.Second}),
			Systemd:   good(host.Systemd{Answered: true, Took: 4 * time.Millisecond, Version: "257", State: "running", Units: 400, Scopes: 20}),
			Settings:  good(kubelet.Settings{PID: 812}),
			Holders:   Look[host.Consumers]{Skipped: true, Missing: "neither memory nor processes are short"},
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

// unseen gives the node looks that brought nothing: as a user without rights has them, or on a kernel without these files.
func unseen(f *Facts) {
	f.Node = &Node{}
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
func poisonNode(n *Node) {
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

// hostGallery is one picture of each cause that the host tells.
func hostGallery() map[string]*Facts {
	full := func(free uint64) func(*Node) {
		return func(n *Node) { n.Spaces.Value[0].Free = free }
	}
	owner := host.Owner{PodUID: "uid-2", ObjectID: "container2-0"}
	const podGroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_1.slice"
	return map[string]*Facts{
		"host-healthy": node(seen()),
		"host-unseen":  node(unseen),
		"disk-full": node(seen(full(300<<20), func(n *Node) {
			n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "write /var/lib/containerd: no space left on device"}
		})),
		"disk-below-eviction": node(seen(full(20 << 30))),
		"inodes-exhausted":    node(seen(func(n *Node) { n.Spaces.Value[0].InodesFree = 12 })),
		"io-stall": node(takes(2*time.Second, everyRPC()...), seen(func(n *Node) {
			n.Pressure.Value.IO = &host.Stall{Some: some(91), Full: some(74)}
			n.Writes.Value[0].Times = times10(1400 * time.Millisecond)
			n.Disks.Value[0].WriteAwait, n.Disks.Value[0].InFlight = 610*time.Millisecond, 43
			n.Writers.Value = []host.Writer{{PID: 7001, Name: "fluentd", ObjectID: owner.ObjectID, PodUID: owner.PodUID, BytesPerSecond: 88 << 20}}
			n.Tasks.Value.BlockedMoments = 19
		})),
		"io-read-only": node(seen(func(n *Node) {
			n.Spaces.Value[0].ReadOnly = true
			n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "open /var/lib/containerd: read-only file system"}
		})),
		"filesystem-hung": node(statusHangs("container1-0"), seen(func(n *Node) {
			m := &n.Mounts.Value.Probed[0]
			m.Hung, m.Waiting, m.Took = true, 45*time.Second, 0
			n.Tasks.Value.Blocked = []host.BlockedTask{{PID: 5001, TID: 5001, Name: "containerd-shim", Wchan: "rpc_wait_bit_killable", Owner: host.Owner{Role: host.RoleShim, PodUID: "uid-1", ObjectID: "sandbox1"}}}
		})),
		"filesystem-stale": node(seen(func(n *Node) { n.Mounts.Value.Probed[0].Err = "stale file handle" })),
		"memory-pressure": node(takes(3*time.Second, everyRPC()...), seen(func(n *Node) {
			n.Memory.Value.Available = 90 << 20
			n.Pressure.Value.Memory = &host.Stall{Some: some(60), Full: some(38)}
			n.Holders = good(host.Consumers{
				Memory: []host.Consumer{
					{Path: podGroup, Dir: "/sys/fs/cgroup" + podGroup, Usage: host.Usage{Current: 14 << 30, Max: 16 << 30}, Owner: host.Owner{PodUID: "uid-1"}},
					{Path: "/system.slice/fluentd.service", Dir: "/sys/fs/cgroup/system.slice/fluentd.service", Usage: host.Usage{Current: 4 << 30}, Owner: host.Owner{Unit: "fluentd.service"}},
					{Path: "/kubepods.slice/kubepods-poduid_9.slice", Dir: "/sys/fs/cgroup/kubepods.slice/kubepods-poduid_9.slice", Usage: host.Usage{Current: 2 << 30}, Files: 3 << 29, Owner: host.Owner{PodUID: "uid-9"}},
					{Path: "/system.slice/containerd.service", Dir: "/sys/fs/cgroup/system.slice/containerd.service", Usage: host.Usage{Current: 300 << 20}, Owner: host.Owner{Unit: "containerd.service"}},
				},
				Resident: []host.ResidentMemory{
					{PID: 7011, Name: "java", Bytes: 13 << 30, Owner: host.Owner{ObjectID: "container1-0", PodUID: "uid-1"}},
					{PID: 640, Name: "fluentd", Bytes: 3 << 30, Owner: host.Owner{Unit: "fluentd.service"}},
				},
			})
		})),
		"memory-in-tmpfs": node(seen(func(n *Node) {
			n.Memory.Value = host.Memory{Total: 32 << 30, Available: 90 << 20, Shmem: 20 << 30, SlabUnreclaimable: 4 << 30}
			n.Pressure.Value.Memory = &host.Stall{Some: some(60), Full: some(6)}
			n.Cgroups.Value.Version = 1
			n.Holders = good(host.Consumers{Memory: []host.Consumer{
				{Path: "/kubepods/poduid-9", Dir: "/sys/fs/cgroup/memory/kubepods/poduid-9", Usage: host.Usage{Current: 21 << 30}, Shmem: 20 << 30, Owner: host.Owner{PodUID: "uid-9"}},
			}})
		})),
		"memory-at-a-limit": node(seen(func(n *Node) {
			n.Pressure.Value.Memory = &host.Stall{Some: some(60), Full: some(38)}
			n.Holders = good(host.Consumers{Stalled: []host.StalledGroup{
				{Path: podGroup, Dir: "/sys/fs/cgroup" + podGroup, Full: some(96), Owner: host.Owner{PodUID: "uid-1"}},
				{Path: "/system.slice/cron.service", Dir: "/sys/fs/cgroup/system.slice/cron.service", Full: some(2), Owner: host.Owner{Unit: "cron.service"}},
			}})
		})),
		"cpu-throttled": node(takes(3*time.Second, everyRPC()...), seen(func(n *Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{{
				Path: "/system.slice/containerd.service", Quota: 0.2, Periods: 20, Throttled: 19, Lost: 1600 * time.Millisecond, Over: 2 * time.Second,
				Owner: host.Owner{Unit: "containerd.service", Role: host.RoleRuntime},
			}}
		})),
		"cpu-crowded": node(takes(3*time.Second, everyRPC()...), seen(func(n *Node) { n.Pressure.Value.CPU.Some = some(97) })),
		"pids-exhausted": node(seen(func(n *Node) {
			n.PIDs.Value.Tasks = 32100
			n.Tasks.Value.Zombies = 29000
			n.Tasks.Value.ZombiesByParent = []host.ZombieParent{{PID: 8100, Name: "node", Count: 28990, Owner: owner}}
			n.Holders = good(host.Consumers{
				PIDs: []host.Consumer{
					{Path: "/kubepods/poduid-2", Dir: "/sys/fs/cgroup/kubepods/poduid-2", Usage: host.Usage{Current: 29040}, Owner: host.Owner{PodUID: "uid-2"}},
					{Path: podGroup, Dir: "/sys/fs/cgroup" + podGroup, Usage: host.Usage{Current: 800, Max: 4096}, Owner: host.Owner{PodUID: "uid-1"}},
				},
				ProcessGroups: []host.ProcessGroup{{Name: "sh", Processes: 28990, Threads: 28990, PID: 8100, Parent: "node", Owner: owner}},
			})
		})),
		"pids-fork-bomb": node(seen(func(n *Node) {
			n.PIDs.Value.Tasks = 32100
			n.Holders = good(host.Consumers{
				PIDs:          []host.Consumer{{Path: "/user.slice/user-1000.slice/session-3.scope", Dir: "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", Usage: host.Usage{Current: 30000}, Owner: host.Owner{Unit: "session-3.scope"}}},
				ProcessGroups: []host.ProcessGroup{{Name: "bash", Processes: 29990, Threads: 29990}},
			})
		})),
		"pids-pod": node(seen(func(n *Node) {
			n.PIDs.Value.Cgroups = append(n.PIDs.Value.Cgroups, host.CgroupUsage{Path: "/kubepods/poduid-2", Usage: host.Usage{Current: 1024, Max: 1024}, Events: 311, Owner: host.Owner{PodUID: "uid-2"}})
			n.Holders = good(host.Consumers{
				PIDs:          []host.Consumer{{Path: "/kubepods/poduid-2/container2-0", Dir: "/sys/fs/cgroup/kubepods/poduid-2/container2-0", Usage: host.Usage{Current: 1023}, Owner: owner}},
				ProcessGroups: []host.ProcessGroup{{Name: "java", Processes: 1, Threads: 1000, PID: 7020, Owner: owner}},
			})
		})),
		"files-exhausted": node(seen(func(n *Node) { n.Files.Value.Processes[0].Current = 1020 })),
		"inotify-exhausted": node(seen(func(n *Node) {
			n.Inotify.Value.Users[0].Instances = 128
			n.Inotify.Value.Users[0].Top = []host.InotifyProcess{{PID: 8200, Name: "promtail", Instances: 61, Owner: owner}}
			n.Inotify.Value.Unread = 1
		})),
		"mounts-exploded": node(seen(func(n *Node) { n.Mounts.Value.Total, n.Mounts.Value.Kubelet = 36_887, 36_000 })),
		"cgroups-leaked":  node(seen(func(n *Node) { n.Cgroups.Value.Total, n.Cgroups.Value.Dying = 12_000, 51_000 })),
		"clock-jumped":    node(seen(func(n *Node) { n.Clock.Value.Jumped, n.Clock.Value.Synchronised = -90*time.Second, false })),
	}
}
