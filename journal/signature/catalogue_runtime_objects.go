package signature

// runtimeObjectEntries are the runtime's troubles with one container or sandbox.
func runtimeObjectEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: RuntimeCallFailed, Lane: Runtime, Marker: Warning,
				Title:    "the runtime failed a call",
				Means:    "The runtime's side of a call that the kubelet reports as failed. It gives the error from below: shim, CNI, snapshotter.",
				Versions: "containerd, docker.",
				Implies:  []string{"ShimStuck", "RuntimeSlow"},
				Sources:  []string{"internal/cri/instrument/instrumented_service.go (containerd)", "api/server/server.go (moby)"},
			},
			forms: join(
				unless(removed(), []form{
					{has: "failed\" error=", rpcs: serverCalls()},
					{has: "failed\\\" error=", rpcs: serverCalls()},
					{has: "failed, error\" error=", rpcs: serverCalls()},
					{has: "failed, error\\\" error=", rpcs: serverCalls()},
				}),
				[]form{{has: "Handler for ", and: []string{"returned error:"}, or: []string{
					"deadline", "broken pipe", "anceled", "timeout",
					"reset by peer",
				}}},
			),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: NameReserved, Lane: Runtime, Marker: Warning,
				Title: "name is still reserved",
				Means: "An earlier attempt to create the same container or sandbox is still under way after the kubelet gave up: slow disk, snapshotter " +
					"or CNI. It is no fault of the name.",
				Versions: "containerd, CRI-O.",
				Implies:  []string{"IOStall", "RuntimeSlow"},
				Sources:  []string{"internal/cri/server/container_create.go (containerd)", "server/container_create.go (CRI-O)"},
			},
			forms: all("ailed to reserve container name", "ailed to reserve sandbox name", "rror reserving ctr name",
				"rror reserving pod name"), reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: ShimDisconnected, Lane: Runtime, Marker: Error,
				Title: "a shim or monitor is gone",
				Means: "The connection to a shim broke, cleaning up after one failed, or conmon died under its container. A plain \"shim " +
					"disconnected\", normal at every exit, is left out.",
				Versions: "containerd, CRI-O.",
				Implies:  []string{"ShimStuck", "OOMKilled"},
				Sources:  []string{"core/runtime/v2/shim.go (containerd)", "internal/oci/runtime_oci.go (CRI-O)"},
			},
			forms: all("ailed to clean up after shim disconnected", "ttrpc: closed", "ttrpc connection closed",
				"is stopped, although the container is running"), reads: readCall | readObject,
		},
	}
}

// shimEntries are the runtime's troubles with the processes behind its objects.
func shimEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: ShimUnresponsive, Lane: Runtime, Marker: Error,
				Title:    "a shim does not answer",
				Means:    "containerd asked a shim and had no answer in time. Its container cannot be inspected, stopped or removed.",
				Versions: "containerd.",
				Implies:  []string{"ShimStuck", "InspectHang", "TaskStuck"},
				Sources:  []string{"core/runtime/v2/shim.go (containerd)", "plugins/services/tasks/local.go (containerd)"},
			},
			forms: []form{
				{has: "get state for ", or: []string{"deadline exceeded", "ttrpc", "timeout", "unavailable"}},
				{has: "ailed to connect to shim"},
				{has: "ailed to get task state", or: []string{"deadline exceeded", "ttrpc"}},
			},
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: ExitEventFailed, Lane: Runtime, Marker: Error,
				Title: "handling a container's exit failed",
				Means: "The container is dead, but the runtime still says that it runs, until cleaning up succeeds. Slow unmounts on a busy " +
					"disk are the usual reason.",
				Versions: "containerd, CRI-O.",
				Implies:  []string{"IOStall", "ShimStuck"},
				Sources:  []string{"internal/cri/server/events.go (containerd)", "internal/oci/runtime_oci.go (CRI-O)"},
			},
			forms: join(
				all("ailed to handle container TaskExit event", "ailed to handle sandbox TaskExit event", "ailed to handle backOff event",
					"is in backoff, enqueue event",
					"ailed to find container exit file", "ailed to update container state"),
				[]form{{has: "ailed to handle event", and: []string{"TaskExit"}}},
			),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: KillFailed, Lane: Runtime, Marker: Error,
				Title:    "a container does not die",
				Means:    "SIGKILL was sent and the process lives: it sleeps in the kernel, or its exit was lost.",
				Versions: "containerd, docker, CRI-O.",
				Implies:  []string{"TaskStuck", "ShimStuck"},
				Sources: []string{
					"internal/cri/server/container_stop.go (containerd)", "daemon/kill.go (moby)",
					"internal/oci/runtime_oci.go (CRI-O)",
				},
			},
			forms: join(
				unless(removed(), all("ailed to kill container", "error occurs during waiting for container",
					"error occurs during waiting for sandbox", "timed out. Killing", "ailed to exit within")),
				[]form{{has: "Killing container ", and: []string{"failed: "}}},
			),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: ProcessBlocked, Lane: Runtime, Marker: Error,
				Title:    "a container's process is blocked in the kernel",
				Means:    "CRI-O found the process in uninterruptible sleep while it tried to kill it: hung mount, disk, or a fault of the kernel.",
				Versions: "CRI-O 1.30 on.",
				Implies:  []string{"TaskStuck", "FilesystemHung"},
				Sources:  []string{"internal/oci/container.go (CRI-O)"},
			},
			forms: []form{
				{has: "blocked in uninterruptible sleep for more than"},
				{has: " blocked for more than ", and: []string{"etected process"}},
			},
			reads: readTask | readObject,
		},
	}
}

// serverCalls are the calls whose failure containerd reports and that a relist, a stop or a start waits for.
func serverCalls() []string {
	return []string{
		"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer",
		"StartContainer", "StopContainer",
		"RemoveContainer", "ListContainers", "ContainerStatus", "UpdateContainerResources", "ExecSync", "ContainerStats", "ListContainerStats",
		"ListPodSandboxStats", "PodSandboxStats", "ListImages", "ImageFsInfo", "ReopenContainerLog",
	}
}
