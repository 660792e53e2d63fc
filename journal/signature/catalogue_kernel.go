package signature

// kernelEntries are the kernel's own complaints about tasks and memory.
func kernelEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: HungTask, Lane: Kernel, Marker: Error,
				Title: "a task is blocked in the kernel",
				Means: "The task slept uninterruptibly for longer than hung_task_timeout_secs: disk, network file system, or a lock in the " +
					"kernel. Calls that need it hang too.",
				Versions: "Linux 2.6.30 on, if khungtaskd is on; ten reports per boot unless hung_task_warnings says otherwise.",
				Implies:  []string{"KernelHung", "TaskStuck", "IOStall", "FilesystemHung"},
				Sources:  []string{"kernel/hung_task.c"},
			},
			forms: []form{{has: " blocked for more than ", and: []string{"task "}, not: []string{"etected process"}}}, reads: readTask,
		},
		{
			Signature: Signature{
				Code: SoftLockup, Lane: Kernel, Marker: Error,
				Title:    "a CPU is locked up",
				Means:    "A CPU ran kernel code for longer than the watchdog allows, or took no interrupts. Everything on it stands still.",
				Versions: "All.",
				Implies:  []string{"KernelHung", "CPUStarved"},
				Sources:  []string{"kernel/watchdog.c"},
			},
			forms: all("soft lockup - CPU#", "detected hard LOCKUP", "Hard LOCKUP on cpu"), reads: readTask,
		},
		{
			Signature: Signature{
				Code: RCUStall, Lane: Kernel, Marker: Error,
				Title:    "RCU stall",
				Means:    "A CPU or task holds up the whole kernel's bookkeeping: a loop in the kernel, or a virtual machine that gets no CPU.",
				Versions: "All.",
				Implies:  []string{"KernelHung", "CPUStarved"},
				Sources:  []string{"kernel/rcu/tree_stall.h"},
			},
			forms: all("self-detected stall on CPU", "detected stalls on CPUs", "detected expedited stalls", " kthread starved for ",
				"timer wakeup didn't happen for"),
		},
		{
			Signature: Signature{
				Code: OOMKill, Lane: Kernel, Marker: Error,
				Title: "the kernel killed a task for memory",
				Means: "Memory cgroup: a container ran into its own limit, which is the pod's matter, unless it hit the runtime or a shim. Otherwise the " +
					"whole node was out of memory.",
				Versions: "All.",
				Implies:  []string{"OOMKilled", "MemoryPressure"},
				Sources:  []string{"mm/oom_kill.c"},
			},
			forms: all("ut of memory: Kill", "ut of memory (oom_kill_allocating_task): Kill"), reads: readVictim,
		},
		{
			Signature: Signature{
				Code: OOMInvoked, Lane: Kernel, Marker: Warning,
				Title:    "the OOM killer was called",
				Means:    "The task that asked for memory, and what was short: a cgroup or the node. The victim stands in the kill's own line.",
				Versions: "All; the line with the constraint from Linux 4.19.",
				Implies:  []string{"MemoryPressure"},
				Sources:  []string{"mm/oom_kill.c"},
			},
			forms: all("invoked oom-killer", "oom-kill:constraint="), reads: readVictim,
		},
		{
			Signature: Signature{
				Code: NetdeviceLeak, Lane: Kernel, Marker: Warning,
				Title: "a network device is not let go",
				Means: "Removing a network namespace waits for the last user of its device. Creating and deleting pods hang behind a lock " +
					"meanwhile.",
				Versions: "All.",
				Implies:  []string{"KernelHung", "CNIHung"},
				Sources:  []string{"net/core/dev.c"},
			},
			forms: all("unregister_netdevice: waiting for"), reads: readDevice,
		},
		{
			Signature: Signature{
				Code: ForkRejected, Lane: Kernel, Marker: Error,
				Title:    "a cgroup is at its limit of PIDs",
				Means:    "A fork was refused. In a pod's cgroup it is the pod's matter; in the runtime's or kubelet's it stops the node.",
				Versions: "Linux 4.3 on; once per cgroup.",
				Implies:  []string{"PIDsExhausted"},
				Sources:  []string{"kernel/cgroup/pids.c"},
			},
			forms: all("fork rejected by pids controller"), reads: readPath,
		},
	}
}
