package signature

// cniEntries are about the network of pods.
func cniEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: CNIFailed, Lane: Runtime, Marker: Warning,
				Title:    "setting up or tearing down a pod's network failed",
				Means:    "A CNI plugin failed or hung. A failing tear-down keeps dead sandboxes; a hanging plugin also blocks Status in containerd.",
				Versions: "All runtimes.",
				Implies:  []string{"CNIHung", "NetworkNotReady", "TooManyExited"},
				Sources: []string{
					"internal/cri/server/sandbox_run.go (containerd)", "server/sandbox_network.go (CRI-O)",
					"pkg/kubelet/dockershim/network/cni/cni.go",
				},
			},
			forms: all("ailed to destroy network for sandbox", "ailed to setup network for sandbox",
				"ailed to set up sandbox container", "ailed to teardown pod",
				"etworkPlugin cni failed", "CNI plugin unhealthy beyond grace period", "rror adding pod to CNI network",
				"rror deleting pod from CNI network",
				"ailed to create pod network sandbox"),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: CNINotInitialized, Lane: Runtime, Marker: Warning,
				Title:    "no CNI configuration",
				Means:    "The runtime has found no network configuration. Normal until the network's pod has started on a new node.",
				Versions: "All runtimes.",
				Implies:  []string{"NetworkNotReady"},
				Sources:  []string{"github.com/containerd/go-cni", "github.com/cri-o/ocicni", "internal/cri/server/service.go (containerd)"},
			},
			forms: all("cni config not initialized", "cni plugin not initialized", "cni config uninitialized",
				"ailed to load cni during init", "ailed to reload cni configuration",
				"o networks found in ", "o CNI configuration file in", "o valid networks found"),
		},
	}
}
