package checks

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
)

// A wait is what a task in uninterruptible sleep waits for, as far as the kernel functions that it is in tell.
type wait uint8

const (
	waitUnknown wait = iota
	waitNetworkFS
	waitFUSE
	waitFrozen
	waitWatcher
	waitChild
	waitNetns
	waitCgroup
	waitMemory
	waitDisk
	waitUnmount
)

// String says what is waited for.
func (w wait) String() string {
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
	wait     wait
	prefixes []string
} {
	return []struct {
		wait     wait
		prefixes []string
	}{
		{waitFrozen, []string{"__refrigerator", "refrigerator", "do_freezer_trap", "cgroup_enter_frozen"}},
		{waitNetworkFS, []string{"nfs_", "nfs3_", "nfs4_", "nfsd_", "rpc_", "__rpc_", "xprt_", "cifs_", "smb2_", "smb_", "ceph_", "p9_", "v9fs_", "afs_", "ocfs2_", "dlm_", "gfs2_"}},
		{waitFUSE, []string{"fuse_", "__fuse_", "request_wait_answer", "virtio_fs_"}},
		{waitWatcher, []string{"fanotify_"}},
		{waitChild, []string{"wait_for_vfork_done"}},
		// netdev_run_todo is a function of the kernel (net/core/dev.c): it waits for what still refers to a network device.
		{waitNetns, []string{"copy_net_ns", "setup_net", "cleanup_net", "netdev_run_todo", "netdev_wait_allrefs", "unregister_netdevice", "rtnl_lock", "rtnetlink_rcv"}},
		{waitMemory, []string{"mem_cgroup_", "try_charge", "try_to_free_", "throttle_direct_reclaim", "do_try_to_free", "shrink_"}},
		{waitDisk, []string{
			"jbd2_", "ext4_", "xfs_", "xlog_", "btrfs_", "blk_", "blkdev_", "bio_", "io_schedule", "bit_wait_io", "folio_wait_", "wait_on_page_", "__wait_on_buffer",
			"balance_dirty_pages", "wb_wait", "wbt_", "rq_qos_", "sync_inodes_", "ovl_sync", "dm_", "md_", "scsi_", "nvme_", "submit_bio",
		}},
		{waitUnmount, []string{"do_umount", "path_umount", "namespace_unlock", "deactivate_", "generic_shutdown_super", "cleanup_mnt"}},
		{waitCgroup, []string{"cgroup_", "kernfs_", "cpuset_", "css_"}},
	}
}

// waitOf tells what a task waits for.
func waitOf(t host.BlockedTask) wait {
	functions := append([]string{t.Wchan}, t.Stack...)
	for _, w := range waits() {
		for _, prefix := range w.prefixes {
			if slices.ContainsFunc(functions, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
				return w.wait
			}
		}
	}
	if waitsInFork(t) {
		return waitChild
	}
	return waitUnknown
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

// isKillable reports whether a task waits so that SIGKILL, and no other signal, reaches it: the kernel's functions for it say so in
// their names (TASK_KILLABLE; state D in /proc all the same).
func isKillable(t host.BlockedTask) bool {
	return strings.HasSuffix(t.Wchan, "_killable") || t.Wchan == "wait_for_vfork_done" || waitsInFork(t)
}

// where says in which kernel functions a task waits, innermost first.
func where(t host.BlockedTask) string {
	const most = 6
	switch {
	case len(t.Stack) > 0:
		return clean(strings.Join(t.Stack[:min(len(t.Stack), most)], " < "))
	case t.Wchan != "" && t.Wchan != "0":
		return clean(t.Wchan)
	}
	return ""
}
