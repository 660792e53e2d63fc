package signature

// storageEntries are the kernel's complaints about file systems and disks.
func storageEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: NFSNotResponding, Lane: Kernel, Marker: Error,
				Title: "a file server does not answer",
				Means: "Every process that touches the mount hangs: shims, the kubelet's own statistics, df. Do not restart the kubelet before the mount is " +
					"gone: it may not come up.",
				Versions: "All; NFS, and SMB in its words.",
				Implies:  []string{"FilesystemHung"},
				Sources:  []string{"net/sunrpc/clnt.c", "fs/smb/client/connect.c", "fs/ceph/mds_client.c"},
			},
			forms: join(
				[]form{{has: "not responding, ", or: []string{"still trying", "timed out"}, and: []string{"nfs"}}},
				[]form{{has: "has not responded in", and: []string{"seconds"}, or: []string{"CIFS", "VFS"}}},
				all("mds0 caps stale"),
			),
			reads: readServer,
		},
		{
			Signature: Signature{
				Code: NFSRecovered, Lane: Kernel, Marker: Recovery,
				Title:    "a file server answers again",
				Means:    "Processes that hung on the mount go on.",
				Versions: "All.",
				Sources:  []string{"net/sunrpc/clnt.c"},
			},
			forms: []form{{has: "nfs: server ", and: []string{" OK"}}}, reads: readServer,
		},
		{
			Signature: Signature{
				Code: FilesystemError, Lane: Kernel, Marker: Error,
				Title:    "a file system is damaged or shut down",
				Means:    "Writes fail from here on. If it holds the runtime's or the kubelet's data, nothing can be started or removed.",
				Versions: "ext4, XFS, btrfs.",
				Implies:  []string{"IOStall"},
				Sources:  []string{"fs/ext4/super.c", "fs/xfs/xfs_fsops.c", "fs/btrfs/messages.c"},
			},
			forms: join(
				all("EXT4-fs error", "emounting filesystem read-only", "hutting down filesystem", "xfs_do_force_shutdown",
					"Internal error xfs", "Internal error XFS", "etadata I/O error",
					"BTRFS error (device", "BTRFS critical", "lease unmount the filesystem", "Detected aborted journal"),
				[]form{{has: "Corruption detected", and: []string{"XFS"}}},
			),
			reads: readDevice,
		},
		{
			Signature: Signature{
				Code: BlockIOError, Lane: Kernel, Marker: Error,
				Title:    "a disk failed or timed out",
				Means:    "The device under a file system returned an error, or did not answer. Writers hang or fail.",
				Versions: "All.",
				Implies:  []string{"IOStall"},
				Sources:  []string{"block/blk-core.c", "fs/buffer.c", "drivers/nvme/host/pci.c"},
			},
			forms: join(
				all("Buffer I/O error on", "I/O error, dev ", "medium error, dev ", "target error, dev "),
				[]form{
					{has: " timeout, aborting", and: []string{"nvme"}},
					{has: " timeout, reset controller", and: []string{"nvme"}},
					{has: " timeout, completion polled", and: []string{"nvme"}},
					{has: " timeout, disable controller", and: []string{"nvme"}},
				},
			),
			reads: readDevice,
		},
	}
}
