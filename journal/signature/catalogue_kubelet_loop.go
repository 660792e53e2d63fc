package signature

// loopEntries are about the sync loop's own pace.
func loopEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: HousekeepingSlow, Lane: Kubelet, Marker: Warning,
				Title: "housekeeping took too long",
				Means: "Housekeeping runs on the sync loop itself and lists pods twice: two minutes is a hung list, a few seconds a slow runtime or disk. " +
					"The loop stood still meanwhile.",
				Versions: "1.24 on; limit of 15 s, from 1.28 of 1 s.",
				Implies:  []string{"RuntimeSlow", "ListHang", "IOStall"},
				Sources:  []string{"pkg/kubelet/kubelet.go"},
			},
			forms: all("ousekeeping took longer than"), reads: readTook,
		},
		{
			Signature: Signature{
				Code: DiskScanSlow, Lane: Kubelet, Marker: Warning,
				Title:    "counting a container's files took long",
				Means:    "cAdvisor walks each container's folder. Many seconds for one mean a slow disk, or a container with very many files.",
				Versions: "All. To 1.9 \"du and find\".",
				Implies:  []string{"IOStall"},
				Sources:  []string{"github.com/google/cadvisor/container/common/fsHandler.go"},
			},
			forms: all("on following dirs took"), reads: readTook,
		},
		{
			Signature: Signature{
				Code: SyncLoopActive, Lane: Kubelet,
				Title:    "the sync loop handles something",
				Means:    "Proof that the sync loop runs. Frequent on healthy nodes; the first one after an episode is its end.",
				Versions: "All, with -v=2 or more. Structured from 1.21.",
				Sources:  []string{"pkg/kubelet/kubelet.go"},
			},
			forms: all(
				"SyncLoop ADD", "SyncLoop UPDATE", "SyncLoop REMOVE", "SyncLoop DELETE", "SyncLoop RECONCILE",
				"SyncLoop (PLEG", "SyncLoop (ADD", "SyncLoop (UPDATE", "SyncLoop (REMOVE", "SyncLoop (DELETE", "SyncLoop (RECONCILE",
				"SyncLoop (SYNC", "SyncLoop (housekeeping", "SyncLoop (probe", "SyncLoop (container",
			),
		},
		{
			Signature: Signature{
				Code: SyncLoopStarted, Lane: Kubelet, Marker: Start,
				Title:    "sync loop started",
				Means:    "The kubelet has come up to its main loop. PLEG records that follow at once belong to the start.",
				Versions: "All.",
				Sources:  []string{"pkg/kubelet/kubelet.go"},
			},
			forms: all("tarting kubelet main sync loop"),
		},
		{
			Signature: Signature{
				Code: WatchdogWithheld, Lane: Kubelet, Marker: Warning,
				Title: "kubelet does not feed systemd's watchdog",
				Means: "The kubelet finds itself unhealthy, usually because the sync loop was not entered for five minutes. systemd will kill " +
					"it soon.",
				Versions: "1.32 on, if the unit sets WatchdogSec.",
				Implies:  []string{"KubeletStalled"},
				Sources:  []string{"pkg/kubelet/watchdog/watchdog_linux.go"},
			},
			forms: all("o not notify watchdog this iteration"),
		},
	}
}
