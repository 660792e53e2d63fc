package facts

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// Corroboration is a sign, beside two looks, that a task is stuck and not only busy; empty for none.
func Corroboration(f *Facts, t host.BlockedTask) string {
	if slices.ContainsFunc(f.Log.HungTasks,
		func(k LogTask) bool { return k.PID > 0 && (k.PID == t.PID || k.PID == t.TID) }) {
		return "the kernel reports it as blocked for more than 120 s"
	}
	if i, ok := HeldBy(f, t); ok {
		return "the status of " + Label(i) + " hangs with it"
	}
	switch w := WaitOf(t); {
	case w == WaitThaw:
		return "a write waits there only while its file system is frozen"
	case t.MapLocked:
		return "its command line cannot be read, since its memory map is locked: ps, top and the like hang on it too"
	case t.Role == host.RoleRuntime && f.Pattern.Hang != HangNone:
		return "the runtime answers nothing"
	case t.Role == host.RoleCNI && f.RPC[RPCStatus].Outcome == Hung:
		return "Status, which waits for CNI operations, hangs"
	case w == WaitWatcher:
		return watcherDelays(f, t)
	case (w == WaitNetworkFS || w == WaitFUSE || w == WaitUnmount) && f.Seen.SilentMount():
		return "a mount does not answer"
	case (w == WaitDisk || w == WaitUnmount) && f.Seen.hungWrite():
		return "a write to the disk does not end"
	}
	for _, p := range OldProcesses(f, host.RoleOCI, LongOCI) {
		if p.PID == t.PID {
			return "it should have ended after a second or two, and has been at work for " + units.Duration(AgeOf(f, p))
		}
	}
	return ""
}

// SilentMount reports whether any look at the file systems hung.
func (n *Node) SilentMount() bool {
	return slices.ContainsFunc(n.Mounts.Value.Probed, func(m host.Mount) bool { return m.Hung }) ||
		slices.ContainsFunc(n.Spaces.Value, func(s host.Space) bool { return s.Hung }) || n.hungWrite()
}

// hungWrite reports whether a write did not end in time.
func (n *Node) hungWrite() bool {
	return slices.ContainsFunc(n.Writes.Value, func(w host.Writes) bool { return w.Hung })
}

// HeldBy returns the hung status call about the object or pod of a task. Where the shim of that pod is stopped, it is
// the shim that the call waits for, and not what a process of the container does.
func HeldBy(f *Facts, t host.BlockedTask) (plegbench.Inspection, bool) {
	i, ok := HungObjectOf(f, t.Owner)
	stopped := slices.ContainsFunc(f.Shims.Stopped, func(p host.Process) bool { return serves(OwnerOf(p), i) })
	return i, ok && (t.Role != "" || !stopped)
}

// stuckTasks returns the blocked tasks of runtime, kubelet, shims and containers that something else calls stuck as
// well, those first with which most waits. Those that wait for a listener of fanotify are apart. A frozen task is none:
// it is the freeze that holds it.
func stuckTasks(f *Facts) (stuck, intercepted []host.BlockedTask) {
	stuck = filter(f.Seen.Tasks.Value.Blocked, func(t host.BlockedTask) bool {
		return IsOurs(t.Owner) && WaitOf(t) != WaitFrozen && !isFrozen(f, t) && Corroboration(f, t) != ""
	})
	weights := []host.Role{"", host.RoleCNI, host.RoleShim, host.RoleOCI, host.RoleKubelet, host.RoleRuntime}
	slices.SortStableFunc(stuck, func(a, b host.BlockedTask) int {
		return cmp.Compare(slices.Index(weights, b.Role), slices.Index(weights, a.Role))
	})
	watched := func(t host.BlockedTask) bool { return WaitOf(t) == WaitWatcher }
	intercepted = filter(stuck, watched)
	return slices.DeleteFunc(stuck, watched), intercepted
}

// isFrozen reports whether a task lies in a frozen control group. Since Linux 6.1 one that was asleep stays where it
// slept, in state D, and no function of its stack shows it (kernel/freezer.c). In a group that has not stopped whole,
// one that waits for something known holds that up.
func isFrozen(f *Facts, t host.BlockedTask) bool {
	return slices.ContainsFunc(f.Seen.Cgroups.Value.Frozen, func(g host.FrozenCgroup) bool {
		switch {
		case g.Freezing && WaitOf(t) != WaitUnknown:
			return false
		case g.ObjectID != "":
			return g.ObjectID == t.ObjectID
		case g.PodUID != "":
			return g.PodUID == t.PodUID
		case t.ObjectID != "" || t.PodUID != "":
			return HoldsAllPods(g.Path)
		}
		return g.Unit != "" && g.Unit == t.Unit || slices.Contains(g.Daemons, t.PID)
	})
}

// A Wait is the thing that a task in uninterruptible sleep waits for, as far as its kernel functions show.
type Wait uint8

// The waits.
const (
	WaitUnknown Wait = iota
	WaitFrozen
	WaitNetworkFS
	WaitFUSE
	WaitWatcher
	WaitChild
	WaitNetns
	WaitMemory
	WaitDisk
	WaitUnmount
	WaitCgroup
	WaitThaw
	WaitAutofs
)

// waits holds, in the order of the constants, the things waited for and the beginnings of the kernel functions that
// show them. Functions further down a stack come first: a file system that waits for a block device waits in the
// functions of both. The functions in netdev_run_ and netdev_wait_ (net/core/dev.c) wait for references to a network
// device.
var waits = []struct{ what, functions string }{
	{"something that its kernel functions do not tell", ""},
	{"the end of a freeze", "__refrigerator refrigerator do_freezer_trap cgroup_enter_frozen"},
	{
		"a network file system",
		"nfs_ nfs3_ nfs4_ nfsd_ rpc_ __rpc_ xprt_ cifs_ smb2_ smb_ ceph_ p9_ v9fs_ afs_ ocfs2_ dlm_ gfs2_",
	},
	{"the process that serves a FUSE mount", "fuse_ __fuse_ request_wait_answer virtio_fs_"},
	{"a program that must allow the opening of a file (fanotify)", "fanotify_"},
	{"a child that has not begun its program (vfork)", "wait_for_vfork_done"},
	{
		"a lock of the kernel's network namespaces",
		"copy_net_ns setup_net cleanup_net netdev_run_ netdev_wait_ unregister_netdevice " +
			"rtnl_lock rtnetlink_rcv",
	},
	{"memory to be freed", "mem_cgroup_ try_charge try_to_free_ throttle_direct_reclaim do_try_to_free shrink_"},
	{
		"a disk", "jbd2_ ext4_ xfs_ xlog_ btrfs_ blk_ blkdev_ bio_ io_schedule bit_wait_io folio_wait_ wait_on_page_ " +
			"__wait_on_buffer balance_dirty_pages wb_wait wbt_ rq_qos_ sync_inodes_ ovl_sync dm_ md_ scsi_ nvme_ " +
			"submit_bio",
	},
	{
		"a mount that is being taken away",
		"do_umount path_umount namespace_unlock deactivate_ generic_shutdown_super cleanup_mnt",
	},
	{"a lock of the kernel's control groups", "cgroup_ kernfs_ cpuset_ css_"},
	{"a frozen file system (fsfreeze)", "percpu_rwsem_wait"}, // sb_start_write in include/linux/fs.h
	{"an automount that nobody makes (autofs)", "autofs_"},
}

// String names the thing waited for.
func (w Wait) String() string { return waits[w].what }

// WaitOf finds what a task waits for.
func WaitOf(t host.BlockedTask) Wait {
	functions := append([]string{t.Wchan}, t.Stack...)
	for w := range waits {
		for prefix := range strings.FieldsSeq(waits[w].functions) {
			if slices.ContainsFunc(functions, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
				return Wait(w)
			}
		}
	}
	return WaitUnknown
}

// WaitsForThaw reports whether a task of the runtime or the kubelet waits for the end of fsfreeze.
func WaitsForThaw(t host.BlockedTask) bool {
	return (t.Role == host.RoleRuntime || t.Role == host.RoleKubelet) && WaitOf(t) == WaitThaw
}

// FrozenDisks returns the file systems of which one is frozen and holds a task up: those whose device is suspended,
// else all that it may write to.
func FrozenDisks(t host.BlockedTask) []host.TaskDisk {
	suspended := filter(t.Disks, func(d host.TaskDisk) bool { return d.Suspended })
	if len(suspended) > 0 {
		return suspended
	}
	return t.Disks
}

// A Freeze is a control group that is frozen itself, and those with tasks that stand still with it.
type Freeze struct {
	host.FrozenCgroup                     // Tasks are those of all
	Held              []host.FrozenCgroup // perhaps itself
}

// frozenCgroups returns the freezes that matter to the node: those that hold pods, the runtime or the kubelet, by their
// units or in a group of any name. Of a tree only the top is named. Those that hold daemons come first.
func frozenCgroups(f *Facts) []Freeze {
	var out []Freeze
	all := f.Seen.Cgroups.Value.Frozen
	for _, g := range all {
		for _, p := range f.Processes { // without those of another runtime
			if slices.Contains(g.Daemons, p.PID) {
				g.Role = p.Role
			}
		}
		ours := IsOurs(g.Owner) || strings.Contains(g.Path, "kubepods") || UnitRole(g.Unit) != RoleOther
		top, ok := freezerOf(all, g)
		if g.Tasks == 0 || !ours || !ok || isForeign(f, g) || isForeign(f, top) {
			continue
		}
		i := slices.IndexFunc(out, func(z Freeze) bool { return z.Path == top.Path })
		if i < 0 {
			if top.Path == g.Path {
				top.Role = g.Role
			}
			i, top.Tasks = len(out), 0
			out = append(out, Freeze{FrozenCgroup: top})
		}
		out[i].Tasks += g.Tasks
		out[i].Held = append(out[i].Held, g)
	}
	slices.SortStableFunc(out, func(a, b Freeze) int { return first(a.HoldsDaemons(), b.HoldsDaemons()) })
	return out
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// freezerOf returns the highest group that is frozen itself and holds another, or is it.
func freezerOf(all []host.FrozenCgroup, g host.FrozenCgroup) (top host.FrozenCgroup, ok bool) {
	for _, above := range all {
		holds := above.Path == g.Path || strings.HasPrefix(g.Path, strings.TrimSuffix(above.Path, "/")+"/")
		if above.Self && holds && (!ok || len(above.Path) < len(top.Path)) {
			top, ok = above, true
		}
	}
	return top, ok
}

// isForeign reports whether a group is of another runtime: its container or pod is in none of the lists (docker's own,
// say, which a person may pause, or a node's that is a container here), or its unit is that of another daemon.
func isForeign(f *Facts, g host.FrozenCgroup) bool {
	if unit := strings.TrimSuffix(g.Unit, ".service"); UnitRole(g.Unit) == RoleRuntime && f.Target.Daemon.PID != 0 {
		known := slices.ContainsFunc(strings.Fields(f.Target.Unit), func(pattern string) bool {
			ok, err := path.Match(strings.Trim(pattern, "'"), unit)
			return ok && err == nil
		})
		return !known
	}
	ofOther := func(p host.Process) bool { return p.PID == g.Shim }
	return slices.ContainsFunc(f.Others, ofOther) || isStranger(f, g.Owner)
}

// HoldsDaemons reports whether the runtime, the kubelet, or all pods stand still: the node is then at stake.
func (z Freeze) HoldsDaemons() bool {
	return z.HoldsAllPods() ||
		slices.ContainsFunc(z.Held, func(g host.FrozenCgroup) bool { return CgroupRole(g.Owner) != RoleOther })
}

// HoldsAllPods reports whether the group above those of all pods is the frozen one, or lies in it.
func (z Freeze) HoldsAllPods() bool {
	return slices.ContainsFunc(z.Held, func(g host.FrozenCgroup) bool {
		for ; len(g.Path) > 1 && len(g.Path) >= len(z.Path); g.Path = path.Dir(g.Path) {
			if HoldsAllPods(g.Path) {
				return true
			}
		}
		return false
	})
}

// HoldsAllPods reports whether a group is the one above those of all pods; below --cgroup-root it has another name in
// front.
func HoldsAllPods(group string) bool {
	base := path.Base(group)
	return base == "kubepods" || base == "kubepods.slice" || strings.HasSuffix(base, "-kubepods.slice")
}

// CgroupRole is the daemon that this group is of. A group of a shim or a container is a pod's.
func CgroupRole(g host.Owner) Role {
	switch {
	case g.ObjectID != "" || g.PodUID != "":
		return RoleOther
	case g.Role == host.RoleRuntime:
		return RoleRuntime
	case g.Role == host.RoleKubelet:
		return RoleKubelet
	}
	return UnitRole(g.Unit)
}
