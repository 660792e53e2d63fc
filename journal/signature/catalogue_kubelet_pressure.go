package signature

// collectEntries are about the kubelet's fight for memory and disk.
func collectEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: EvictionPressure, Lane: Kubelet, Marker: Warning,
				Title:    "the node is short of memory, disk or PIDs",
				Means:    "The kubelet evicts pods, or reports pressure. It often comes before runtime trouble and explains it.",
				Versions: "All.",
				Implies:  []string{"MemoryPressure", "DiskFull", "InodesExhausted", "PIDsExhausted"},
				Sources:  []string{"pkg/kubelet/eviction/eviction_manager.go", "pkg/kubelet/nodestatus/setters.go"},
			},
			forms: all("viction manager: attempting to reclaim", "viction manager: must evict", "viction manager: pods ranked",
				"viction manager: pod evicted", "EvictionThresholdMet",
				"KubeletHasDiskPressure", "KubeletHasInsufficientMemory", "KubeletHasInsufficientPID", "NodeHasDiskPressure",
				"NodeHasInsufficientMemory",
				"NodeHasInsufficientPID", "was low on resource"),
			reads: readObject,
		},
		{
			Signature: Signature{
				Code: EvictionBlind, Lane: Kubelet, Marker: Warning,
				Title:    "eviction cannot see",
				Means:    "Without statistics the kubelet does not evict: memory or disk may run out unseen while the runtime hangs.",
				Versions: "All. Once at every start without an error from the runtime; that one is left out.",
				Implies:  []string{"RuntimeHung", "ImageServiceHung"},
				Sources:  []string{"pkg/kubelet/eviction/eviction_manager.go"},
			},
			forms: []form{{has: "ailed to get summary stats", or: []string{"rpc error", "deadline", "onnect"}}}, reads: readCall,
		},
	}
}
