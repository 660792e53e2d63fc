package signature

// limitEntries are resources of the node that ran out, in the words of any program.
func limitEntries() []entry {
	inotify := []string{"inotify", "fsnotify"}
	return []entry{
		{
			Signature: Signature{
				Code: DiskFull, Lane: Node, Marker: Error,
				Title: "no space left on a device",
				Means: "A write failed: blocks or inodes of some file system are used up. The path names it. Watches of inotify, which fail " +
					"with the same words, are left out.",
				Versions: "All programs.",
				Implies:  []string{"DiskFull", "InodesExhausted"},
				Sources:  []string{"errno ENOSPC"},
			},
			forms: unless(inotify, all("o space left on device")), reads: readPath,
		},
		{
			Signature: Signature{
				Code: FilesExhausted, Lane: Node, Marker: Error,
				Title: "too many open files",
				Means: "A process, or the node, is at its limit of open files. The runtime takes no new connections; a snapshotter may hold " +
					"its lock for good.",
				Versions: "All programs.",
				Implies:  []string{"FilesExhausted"},
				Sources:  []string{"errno EMFILE, ENFILE"},
			},
			forms: unless(inotify, all("oo many open files")), reads: readPath,
		},
		{
			Signature: Signature{
				Code: InotifyExhausted, Lane: Node, Marker: Error,
				Title: "inotify is used up",
				Means: "fs.inotify.max_user_instances or max_user_watches is reached; each shim needs an instance. The CRI plugin may not " +
					"load, log streams stop.",
				Versions: "All programs.",
				Implies:  []string{"InotifyExhausted"},
				Sources:  []string{"inotify_init(2), inotify_add_watch(2)"},
			},
			forms: []form{
				{has: "oo many open files", or: inotify},
				{has: "o space left on device", or: inotify},
				{has: "inotify watch limit reached"},
				{has: "number of inotify watches was reached"},
			},
			reads: readPath,
		},
		{
			Signature: Signature{
				Code: ForkFailed, Lane: Node, Marker: Error,
				Title:    "no new process or thread",
				Means:    "fork or clone failed: limit of PIDs, threads or memory. The runtime cannot run runc, probes fail.",
				Versions: "All programs.",
				Implies:  []string{"PIDsExhausted", "MemoryPressure"},
				Sources:  []string{"fork(2)", "runtime/os_linux.go (Go)"},
			},
			forms: []form{
				{has: "esource temporarily unavailable", or: []string{"fork", "clone", "exec", "thread"}},
				{has: "ailed to create new OS thread"},
				{has: "pthread_create failed"},
				{has: "annot allocate memory", or: []string{"fork", "clone", "exec"}},
			},
			reads: readPath,
		},
	}
}
