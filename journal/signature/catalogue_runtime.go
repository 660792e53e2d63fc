package signature

// runtimeEntries are about the runtime daemon as a whole.
func runtimeEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: RuntimeStarted, Lane: Runtime, Marker: Start,
				Title:    "runtime started",
				Means:    "A new process of the runtime. Containers live on; calls that were under way are lost.",
				Versions: "containerd, docker, CRI-O, cri-dockerd; k3s and RKE2 start their own containerd.",
				Sources:  []string{"cmd/containerd/command/main.go (containerd)", "cmd/dockerd/daemon.go (moby)", "cmd/crio/main.go (CRI-O)"},
			},
			forms: join(
				all("containerd successfully booted", "aemon has completed initialization", "Starting CRI-O, version",
					"Start docker client with request timeout",
					"Running containerd -c", "ontainerd is now running"),
				[]form{{has: "starting containerd", and: []string{"revision"}}},
			),
		},
		{
			Signature: Signature{
				Code: RuntimeStopped, Lane: Runtime, Marker: Stop,
				Title:    "runtime stopped",
				Means:    "The runtime was told to stop. Until it is back every call of the kubelet is refused.",
				Versions: "containerd, docker.",
				Implies:  []string{"RuntimeDown"},
				Sources:  []string{"internal/cri/server/service.go (containerd)", "daemon/daemon.go (moby)"},
			},
			forms: all("Stop CRI service", "Processing signal 'terminated'", "Processing signal 'interrupt'"),
		},
		{
			Signature: Signature{
				Code: RuntimeRecovering, Lane: Runtime, Marker: Warning,
				Title:    "runtime is still loading its state",
				Means:    "containerd listens already but has not read its containers yet. With many containers or a slow disk that lasts minutes.",
				Versions: "containerd 1.1 on.",
				Implies:  []string{"RuntimeNotReady", "IOStall"},
				Sources:  []string{"internal/cri/instrument/instrumented_service.go (containerd)"},
			},
			forms: all("server is not initialized yet"), reads: readCall,
		},
		{
			Signature: Signature{
				Code: RuntimeStalled, Lane: Runtime, Marker: Error,
				Title:    "CRI-O is stuck in one step of a creation",
				Means:    "A sandbox or container takes longer than the kubelet waits. The stage that the record gives is the slow step.",
				Versions: "CRI-O 1.23 on.",
				Implies:  []string{"IOStall", "RuntimeSlow", "CNIHung"},
				Sources:  []string{"server/server.go (CRI-O)", "internal/resourcestore/resourcestore.go (CRI-O)"},
			},
			forms: all("not yet finished. Currently at stage", "may be retrying requests that are timing out",
				"context was either canceled or the deadline was exceeded"),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: GoroutineDump, Lane: Runtime, Marker: Warning,
				Title: "a Go program printed its goroutines",
				Means: "Somebody asked a daemon for its stacks, or it crashed, or systemd's watchdog killed it (SIGABRT). What follows shows where it hung. " +
					"The record's own unit says whether it is the runtime or the kubelet.",
				Versions: "All Go programs; BEGIN and END marks are containerd's and docker's.",
				Implies:  []string{"RuntimeHung", "KubeletStalled"},
				Sources:  []string{"runtime/panic.go (Go)", "cmd/containerd/command/main_unix.go (containerd)"},
			},
			forms: all("BEGIN goroutine stack dump", "goroutine stacks written to", "SIGABRT: abort", "SIGQUIT: quit",
				"panic: runtime error", "fatal error: all goroutines", "fatal error: concurrent map",
				"goroutine 1 ["),
		},
	}
}
