package signature

// plegEntries are what the sync loop says when it stands still, by runtimeState.runtimeErrors of the kubelet.
func plegEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: PLEGNotHealthy, Lane: Kubelet, Marker: Error,
				Title: "PLEG is not healthy",
				Means: "The last good relist began longer ago than the threshold, or none has succeeded yet. The sync loop stands still, and the node " +
					"becomes NotReady. The time of the record minus the age in it is when that relist began.",
				Versions: "1.6 on. To 1.13 in brackets, reasons separated by a space; 1.14 with full stops; to 1.16 as an info line; structured from 1.21. " +
					"Before 1.13 a kubelet without any relist says 2562047h47m16.854775807s.",
				Implies: []string{"PLEGUnhealthy"},
				Sources: []string{
					"pkg/kubelet/runtime.go", "pkg/kubelet/kubelet.go", "pkg/kubelet/pleg/generic.go",
					"pkg/kubelet/nodestatus/setters.go",
				},
			},
			forms: all("PLEG is not healthy"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: EventedPLEGFull, Lane: Kubelet, Marker: Error,
				Title:    "evented PLEG's channel is full",
				Means:    "The sync loop does not take events away: it is blocked. The relists themselves may be fine.",
				Versions: "1.26 on, with the feature gate EventedPLEG.",
				Implies:  []string{"KubeletStalled"},
				Sources:  []string{"pkg/kubelet/pleg/evented.go"},
			},
			forms: all("pleg event channel capacity is full"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: RuntimeIsDown, Lane: Kubelet, Marker: Error,
				Title: "container runtime is down",
				Means: "No Status call has succeeded for 30 seconds. Beside PLEG it means that the whole runtime hangs or is gone; without it " +
					"PLEG alone is late.",
				Versions: "All. Before 1.13 also right after the start of the kubelet, where later versions say that the status check may not have " +
					"completed yet.",
				Implies: []string{"RuntimeDown", "RuntimeHung", "CNIHung"},
				Sources: []string{"pkg/kubelet/runtime.go"},
			},
			forms: all("container runtime is down"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: StatusCheckPending, Lane: Kubelet, Marker: Warning,
				Title: "runtime not yet asked for its status",
				Means: "The kubelet has started and has had no answer to Status yet. Normal for a second; beside an age it says that the " +
					"kubelet was restarted while the runtime hung.",
				Versions: "1.13 on.",
				Sources:  []string{"pkg/kubelet/runtime.go"},
			},
			forms: all("status check may not have completed yet"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: RuntimeNotReadyReported, Lane: Kubelet, Marker: Error,
				Title:    "runtime reports RuntimeReady=false",
				Means:    "The runtime answers, and says itself that it is not ready.",
				Versions: "1.16 on among the reasons of the sync loop. An error line to 1.35, an info line in 1.36.",
				Implies:  []string{"RuntimeNotReady"},
				Sources:  []string{"pkg/kubelet/runtime.go", "pkg/kubelet/kubelet.go"},
			},
			forms: all("ontainer runtime not ready", "RuntimeReady=false"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: NetworkNotReady, Lane: Kubelet, Marker: Warning,
				Title: "network of pods not ready",
				Means: "The runtime has no usable CNI configuration. The node is NotReady, but the sync loop runs, and pods on the host's " +
					"network too.",
				Versions: "All. To 1.20 \"runtime network not ready\", later \"container runtime network not ready\".",
				Implies:  []string{"NetworkNotReady"},
				Sources:  []string{"pkg/kubelet/kubelet.go", "pkg/kubelet/kubelet_network.go"},
			},
			forms: all("untime network not ready", "NetworkPluginNotReady", "etwork is not ready: ",
				"etwork plugin is not ready"), reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: PLEGChannelFull, Lane: Kubelet, Marker: Error,
				Title: "PLEG's channel is full",
				Means: "A thousand events, or two hundred relist requests, wait: the sync loop does not take them, or PLEG does not. Events " +
					"are lost.",
				Versions: "Event channel 1.16 on; relist requests 1.36 on.",
				Implies:  []string{"KubeletStalled"},
				Sources:  []string{"pkg/kubelet/pleg/generic.go"},
			},
			forms: all("vent channel is full, discard", "elist request channel full"),
		},
	}
}
