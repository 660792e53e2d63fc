package signature

// serviceEntries are failing calls that serve statistics, images and logs.
func serviceEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: StatsFailed, Lane: Kubelet, Marker: Warning,
				Title:    "statistics of pods failed",
				Means:    "The runtime's statistics could not be read. It asks shims and disks, so it is often the first call to hang.",
				Versions: "All.",
				Implies:  []string{"RuntimeSlow", "RuntimeHung"},
				Sources:  []string{"staging/src/k8s.io/cri-client/pkg/remote_runtime.go", "pkg/kubelet/server/stats"},
			},
			forms: join(
				unless(removed(), calls("ContainerStats", "ListContainerStats", "PodSandboxStats", "ListPodSandboxStats", "ListPodSandboxMetrics")),
				all("ailed to list pod stats", "StreamContainerStats recv failed", "StreamPodSandboxStats recv failed",
					"StreamPodSandboxMetrics recv failed"),
				[]form{{has: "rror getting summary for", and: []string{"rpc error"}}},
			),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: ImageServiceFailed, Lane: Kubelet, Marker: Warning,
				Title: "image call failed",
				Means: "ListImages, ImageFsInfo or ImageStatus failed. Alone it means that the snapshotter or image store hangs while the " +
					"node stays Ready. Pulls count only if the runtime did not answer.",
				Versions: "All.",
				Implies:  []string{"ImageServiceHung"},
				Sources: []string{
					"staging/src/k8s.io/cri-client/pkg/remote_image.go", "pkg/kubelet/kuberuntime/kuberuntime_image.go",
					"pkg/kubelet/images/image_gc_manager.go",
				},
			},
			forms: join(
				unless(removed(), []form{
					{has: fromImages, rpcs: []string{"ListImages", "ImageFsInfo", "ImageStatus", "RemoveImage", "StreamImages"}},
					{has: fromImages, rpcs: []string{"PullImage"}, or: []string{
						"code = DeadlineExceeded", "code = Unavailable", "code = 4 ",
						"code = 14 ",
					}},
				}),
				all("ailed to list images", "ListImages failed", "ailed to update image list", "StreamImages recv failed",
					"ailed to get image stats"),
				[]form{{has: "rror getting image list"}},
			),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: LogRotateFailed, Lane: Kubelet, Marker: Warning,
				Title:    "rotating container logs failed",
				Means:    "Log rotation lists all containers and reopens their logs; it fails with the lists. Logs grow without bound meanwhile.",
				Versions: "1.11 on.",
				Implies:  []string{"RuntimeHung", "DiskFull"},
				Sources:  []string{"pkg/kubelet/logs/container_log_manager.go"},
			},
			forms: join(
				all("ailed to rotate container logs", "ailed to rotate log for container", "rotate log for container"),
				unless(removed(), calls("ReopenContainerLog")),
			),
			reads: readCall | readObject,
		},
	}
}

// collectionEntries are failures to collect garbage and to mount volumes.
func collectionEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: ContainerGCFailed, Lane: Kubelet, Marker: Warning,
				Title:    "container garbage collection failed",
				Means:    "Every minute the kubelet removes dead containers; it could not list or remove them. Lasting failure lets them pile up.",
				Versions: "All. Also as an event.",
				Implies:  []string{"RuntimeHung", "TooManyExited", "ListTooLarge"},
				Sources:  []string{"pkg/kubelet/kubelet.go"},
			},
			forms: all("ontainer garbage collection failed", "ContainerGCFailed"), reads: readCall,
		},
		{
			Signature: Signature{
				Code: ImageGCFailed, Lane: Kubelet, Marker: Warning,
				Title: "image garbage collection failed",
				Means: "The kubelet could not free images. \"Stats initialization may not have completed yet\", printed at every start, is " +
					"left out.",
				Versions: "All. Also as an event.",
				Implies:  []string{"DiskFull", "ImageServiceHung"},
				Sources:  []string{"pkg/kubelet/kubelet.go"},
			},
			forms: unless([]string{"tats initialization may not have completed yet"},
				all("mage garbage collection failed", "ImageGCFailed", "FreeDiskSpaceFailed")),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: MountFailed, Lane: Kubelet, Marker: Warning,
				Title: "mounting or unmounting a volume failed",
				Means: "Pods wait for storage. By itself it does not make the node NotReady; a hung mount can, through the shim or through " +
					"the kubelet.",
				Versions: "All.",
				Implies:  []string{"FilesystemHung"},
				Sources:  []string{"pkg/kubelet/kubelet.go", "pkg/volume/util/operationexecutor/operation_generator.go"},
			},
			forms: all("nable to attach or mount volumes", "nable to mount volumes for pod", "MountVolume.SetUp failed",
				"MountVolume.MountDevice failed", "UnmountVolume.TearDown failed",
				"UnmountDevice failed", "AttachVolume.Attach failed"),
			reads: readObject,
		},
	}
}
