package host

import "time"

// A Folder is a place that matters to the node, and why.
type Folder struct {
	Path string // as the host sees it, such as /var/lib/containerd
	Role string // runtime, kubelet, logs, root, temporary
}

// A Space is the file system under one or more folders.
type Space struct {
	Folders    []Folder // that lie on it
	Mount      string   // its mount point
	Type       string   // ext4, xfs, overlay, tmpfs, ...
	Source     string   // device, or what was mounted
	Size, Free uint64   // bytes; Free is what root may still use for others: statfs's f_bavail
	Inodes     uint64   // 0 where the file system has no fixed number (btrfs, some xfs)
	InodesFree uint64
	ReadOnly   bool
	Err        string        // why statfs brought nothing; empty when it did
	Hung       bool          // statfs did not answer
	Waiting    time.Duration // for how long a hung look has been waiting, earlier runs of kdiag included
}

// Writes are timed writes of 4 KiB with fsync into a new, unlinked file in a folder, one after the other.
type Writes struct {
	Folder  Folder
	Mount   string
	Times   []time.Duration // in the order in which they were made
	Err     string
	Hung    bool // one did not end in time
	Waiting time.Duration
}
