package facts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// Corroboration is what says, beside two looks, that a task is stuck and not only busy; empty for none.
func Corroboration(f *Facts, t host.BlockedTask) string {
	n := f.Seen
	for _, k := range f.Log.HungTasks {
		if k.PID > 0 && (k.PID == t.PID || k.PID == t.TID) {
			return "the kernel reports it as blocked for more than 120 s"
		}
	}
	if i, ok := HeldBy(f, t); ok {
		return "the status of " + Label(i) + " hangs with it"
	}
	switch w := WaitOf(t); {
	case t.Role == host.RoleRuntime && f.Pattern.Hang != HangNone:
		return "the runtime answers nothing"
	case t.Role == host.RoleCNI && f.RPC[RPCStatus].Outcome == Hung:
		return "Status, which waits for CNI operations, hangs"
	case (w == WaitNetworkFS || w == WaitFUSE || w == WaitUnmount) && n.SilentMount():
		return "a mount does not answer"
	case (w == WaitDisk || w == WaitUnmount) && n.silentDisk():
		return "a write to the disk does not end"
	}
	for _, p := range OldProcesses(f, host.RoleOCI, LongOCI) {
		if p.PID == t.PID {
			return "it should have ended after a second or two, and has been at work for " + units.Duration(AgeOf(f, p))
		}
	}
	return ""
}

// HeldBy returns the hung status call about the object or pod of a task. Where the shim of that pod is stopped, it is the shim that the
// call waits for, and not what a process of the container does.
func HeldBy(f *Facts, t host.BlockedTask) (plegbench.Inspection, bool) {
	i, ok := HungObjectOf(f, t.Owner)
	stopped := slices.ContainsFunc(f.Shims.Stopped, func(p host.Process) bool { return serves(OwnerOf(p), i) })
	return i, ok && (t.Role != "" || !stopped)
}

// taskWeight orders tasks by how much waits with them.
func taskWeight(t host.BlockedTask) int {
	i := slices.Index([]host.Role{host.RoleRuntime, host.RoleKubelet, host.RoleOCI, host.RoleShim, host.RoleCNI}, t.Role)
	if i < 0 {
		return 5
	}
	return i
}

// stuckTasks returns the blocked tasks of runtime, kubelet, shims and containers that something else calls stuck as well, those
// first with which most waits. A frozen task is none: it is the freeze that holds it.
func stuckTasks(f *Facts) []host.BlockedTask {
	var stuck []host.BlockedTask
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if IsOurs(t.Owner) && WaitOf(t) != WaitFrozen && !isFrozen(f, t) && Corroboration(f, t) != "" {
			stuck = append(stuck, t)
		}
	}
	slices.SortStableFunc(stuck, func(a, b host.BlockedTask) int { return cmp.Compare(taskWeight(a), taskWeight(b)) })
	return stuck
}

// isFrozen reports whether a task lies in a frozen control group. Since Linux 6.1 one that was asleep stays where it slept, in state D, and no
// function of its stack tells (kernel/freezer.c). In a group that has not stopped whole, one that waits for something known holds that up.
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
			return HoldsAllPods(g)
		}
		return g.Unit != "" && g.Unit == t.Unit
	})
}

// A wait is what a task in uninterruptible sleep waits for, as far as the kernel functions that it is in tell.
type Wait uint8

const (
	WaitUnknown Wait = iota
	WaitNetworkFS
	WaitFUSE
	WaitFrozen
	WaitWatcher
	WaitChild
	WaitNetns
	WaitCgroup
	WaitMemory
	WaitDisk
	WaitUnmount
)

// String says what is waited for.
func (w Wait) String() string {
	return []string{
		"something that its kernel functions do not tell", "a network file system", "the process that serves a FUSE mount",
		"the end of a freeze", "a program that must allow the opening of a file (fanotify)", "a child that has not begun its program (vfork)",
		"a lock of the kernel's network namespaces", "a lock of the kernel's control groups", "memory to be freed", "a disk",
		"a mount that is being taken away",
	}[w]
}

// waits lists the beginnings of kernel functions that tell what a task waits for. What is further down a stack comes first: a file
// system that waits for a block device waits in the functions of both.
func waits() []struct {
	wait     Wait
	prefixes []string
} {
	return []struct {
		wait     Wait
		prefixes []string
	}{
		{WaitFrozen, []string{"__refrigerator", "refrigerator", "do_freezer_trap", "cgroup_enter_frozen"}},
		{WaitNetworkFS, []string{"nfs_", "nfs3_", "nfs4_", "nfsd_", "rpc_", "__rpc_", "xprt_", "cifs_", "smb2_", "smb_", "ceph_", "p9_", "v9fs_", "afs_", "ocfs2_", "dlm_", "gfs2_"}},
		{WaitFUSE, []string{"fuse_", "__fuse_", "request_wait_answer", "virtio_fs_"}},
		{WaitWatcher, []string{"fanotify_"}},
		{WaitChild, []string{"wait_for_vfork_done"}},
		// netdev_run_todo is a function of the kernel (net/core/dev.c): it waits for what still refers to a network device.
		{WaitNetns, []string{"copy_net_ns", "setup_net", "cleanup_net", "netdev_run_todo", "netdev_wait_allrefs", "unregister_netdevice", "rtnl_lock", "rtnetlink_rcv"}},
		{WaitMemory, []string{"mem_cgroup_", "try_charge", "try_to_free_", "throttle_direct_reclaim", "do_try_to_free", "shrink_"}},
		{WaitDisk, []string{
			"jbd2_", "ext4_", "xfs_", "xlog_", "btrfs_", "blk_", "blkdev_", "bio_", "io_schedule", "bit_wait_io", "folio_wait_", "wait_on_page_", "__wait_on_buffer",
			"balance_dirty_pages", "wb_wait", "wbt_", "rq_qos_", "sync_inodes_", "ovl_sync", "dm_", "md_", "scsi_", "nvme_", "submit_bio",
		}},
		{WaitUnmount, []string{"do_umount", "path_umount", "namespace_unlock", "deactivate_", "generic_shutdown_super", "cleanup_mnt"}},
		{WaitCgroup, []string{"cgroup_", "kernfs_", "cpuset_", "css_"}},
	}
}

// WaitOf tells what a task waits for.
func WaitOf(t host.BlockedTask) Wait {
	functions := append([]string{t.Wchan}, t.Stack...)
	for _, w := range waits() {
		for _, prefix := range w.prefixes {
			if slices.ContainsFunc(functions, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
				return w.wait
			}
		}
	}
	if waitsInFork(t) {
		return WaitChild
	}
	return WaitUnknown
}

// waitsInFork reports whether a task waits in the function that forks itself: only vfork does, where the compiler has made one function
// of it and wait_for_vfork_done. A lock that a fork waits for has functions of its own.
func waitsInFork(t host.BlockedTask) bool {
	innermost := t.Wchan
	if len(t.Stack) > 0 {
		innermost = t.Stack[0]
	}
	return slices.Contains([]string{"kernel_clone", "_do_fork", "do_fork"}, innermost)
}

// IsKillable reports whether a task waits so that SIGKILL, and no other signal, reaches it: the kernel's functions for it say so in
// their names (TASK_KILLABLE; state D in /proc all the same).
func IsKillable(t host.BlockedTask) bool {
	return strings.HasSuffix(t.Wchan, "_killable") || t.Wchan == "wait_for_vfork_done" || waitsInFork(t)
}

// WaitsIn says in which kernel functions a task waits, innermost first.
func WaitsIn(t host.BlockedTask) string {
	const most = 6
	switch {
	case len(t.Stack) > 0:
		return Clean(strings.Join(t.Stack[:min(len(t.Stack), most)], " < "))
	case t.Wchan != "" && t.Wchan != "0":
		return Clean(t.Wchan)
	}
	return ""
}
