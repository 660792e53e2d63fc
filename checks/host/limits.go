package host

// A Usage is how much of a limit is used. Max 0 is no limit.
type Usage struct {
	Current, Max uint64
}

// PIDs is how many processes and threads there are, against the limits of the kernel and of cgroups.
type PIDs struct {
	Tasks      int           // all threads of the host
	PIDMax     uint64        // kernel.pid_max
	ThreadsMax uint64        // kernel.threads-max
	Cgroups    []CgroupUsage // pids controller: units of the runtime and the kubelet, kubepods, and pods near their limit
}

// A CgroupUsage is the use of a limit in one cgroup.
type CgroupUsage struct {
	Path   string // below the controller's root, such as /system.slice/containerd.service
	Events uint64 // pids.events max: how often the limit refused a fork
	Usage
	Owner
}

// Files is open file descriptors against the limits of the kernel and of the processes that matter.
type Files struct {
	System    Usage          // fs.file-nr
	Processes []ProcessFiles // runtime and kubelet
}

// A ProcessFiles is the open files of one process; Max is its soft limit (RLIMIT_NOFILE).
type ProcessFiles struct {
	PID  int
	Name string
	Role Role
	Usage
	Hard uint64
}

// Inotify is the use of inotify by user, against fs.inotify.max_user_instances and max_user_watches.
type Inotify struct {
	MaxInstances, MaxWatches uint64
	Users                    []InotifyUser // most instances first
	Unread                   int           // processes whose descriptors could not be read
}

// An InotifyUser is what the processes of one user hold. Instances are counted per user of the initial user namespace.
type InotifyUser struct {
	UID                int
	Instances, Watches int
	Top                []InotifyProcess // most instances first, bounded
}

// An InotifyProcess is a process with inotify instances.
type InotifyProcess struct {
	PID       int
	Name      string
	Instances int
	Owner
}

// Conntrack is the table of tracked connections (net.netfilter.nf_conntrack_*); Max 0 where the module is not loaded.
type Conntrack struct{ Usage }
