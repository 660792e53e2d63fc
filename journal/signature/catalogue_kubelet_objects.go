package signature

// objectCallEntries are the kubelet's failing calls on one container, sandbox or pod.
func objectCallEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: InspectFailed, Lane: Kubelet, Marker: Error,
				Title: "inspection of one object failed",
				Means: "The status of one container or sandbox could not be had. Each hung call costs the relist two minutes; the line names the culprit. " +
					"NotFound is left out: a race with removal.",
				Versions: "All. Ignoring events to 1.2x, Write status from 1.22; the client prints the same error once a minute at most.",
				Implies:  []string{"InspectHang", "ShimStuck", "TaskStuck"},
				Sources: []string{
					"pkg/kubelet/pleg/generic.go", "pkg/kubelet/kuberuntime/kuberuntime_manager.go",
					"staging/src/k8s.io/cri-client/pkg/remote_runtime.go",
				},
			},
			forms: unless(append(removed(), "err=null", "(err: <nil>)", "err=\"<nil>\""), join(
				calls("ContainerStatus", "PodSandboxStatus"),
				all("PodSandboxStatus of sandbox", "getPodContainerStatuses for pod", "PLEG: Ignoring events for pod", "PLEG: Write status"),
				[]form{{has: "failed reinspection", and: []string{"PLEG: pod"}}},
			)),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: StopFailed, Lane: Kubelet, Marker: Error,
				Title: "stopping a container or pod failed",
				Means: "StopContainer or StopPodSandbox failed: a process that cannot die, a shim that does not answer, or a CNI plugin that " +
					"hangs.",
				Versions: "All.",
				Implies:  []string{"ShimStuck", "TaskStuck", "CNIHung"},
				Sources: []string{
					"pkg/kubelet/kuberuntime/kuberuntime_container.go", "pkg/kubelet/kuberuntime/kuberuntime_gc.go",
					"pkg/kubelet/pod_workers.go",
				},
			},
			forms: unless(removed(), join(
				calls("StopContainer", "StopPodSandbox"),
				all("ailed to stop sandbox", "Kill container failed", "ontainer termination failed with gracePeriod", "killPodWithSyncResult failed",
					"KillPodSandboxError", "KillContainerError", "rror killing pod: "),
			)),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: RemoveFailed, Lane: Kubelet, Marker: Warning,
				Title: "removing a container or sandbox failed",
				Means: "Dead containers pile up until the lists become slow, or too large. NotFound is left out: it is gone already. Requests " +
					"that were not issued mean a flood: fifty wait already.",
				Versions: "All.",
				Implies:  []string{"TooManyExited"},
				Sources:  []string{"pkg/kubelet/kuberuntime/kuberuntime_gc.go", "pkg/kubelet/pod_container_deletor.go"},
			},
			forms: unless(removed(), join(
				calls("RemoveContainer", "RemovePodSandbox"),
				all("ailed to remove sandbox", "ailed to remove container", "DeleteContainer returned error",
					"ailed to issue the request to remove container"),
			)),
			reads: readCall | readObject,
		},
	}
}

// objectWorkEntries are failing calls that make, change or enter objects, and pods that get nowhere because of them.
func objectWorkEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: CreateFailed, Lane: Kubelet, Marker: Error,
				Title: "creating a sandbox or container failed",
				Means: "RunPodSandbox, CreateContainer or StartContainer failed. A deadline (four minutes for a sandbox) points to slow disks or CNI; " +
					"other errors are often the pod's own.",
				Versions: "All.",
				Implies:  []string{"RuntimeSlow", "CNIHung", "IOStall"},
				Sources:  []string{"pkg/kubelet/kuberuntime/kuberuntime_sandbox.go", "pkg/kubelet/kuberuntime/kuberuntime_manager.go"},
			},
			forms: join(
				calls("RunPodSandbox", "CreateContainer", "StartContainer"),
				all("CreatePodSandbox for pod", "CreatePodSandboxError", "ailed to create sandbox for pod", "with RunContainerError",
					"with CreateContainerError"),
			),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: UpdateFailed, Lane: Kubelet, Marker: Error,
				Title:    "changing a container's resources failed",
				Means:    "In containerd an update holds the container's status lock until the shim answers: ListContainers hangs behind it.",
				Versions: "All.",
				Implies:  []string{"ListHang", "ShimStuck"},
				Sources:  []string{"staging/src/k8s.io/cri-client/pkg/remote_runtime.go"},
			},
			forms: unless(removed(), calls("UpdateContainerResources", "UpdatePodSandboxResources")), reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: ExecFailed, Lane: Kubelet, Marker: Warning,
				Title: "exec in a container failed",
				Means: "Exec probes, hooks or kubectl exec could not be run. Many at once often come hours before PLEG trouble: the exec path " +
					"goes through the shim.",
				Versions: "All. A probe's error is an info line with -v=1.",
				Implies:  []string{"ShimStuck", "PIDsExhausted"},
				Sources:  []string{"staging/src/k8s.io/cri-client/pkg/remote_runtime.go", "pkg/kubelet/prober/prober.go"},
			},
			forms: unless(removed(), join(
				calls("ExecSync", "Exec", "Attach", "PortForward"),
				[]form{{has: "Probe errored", and: []string{"rpc error"}}},
			)),
			reads: readCall | readObject,
		},
		{
			Signature: Signature{
				Code: PodSyncFailed, Lane: Kubelet, Marker: Warning,
				Title: "syncing a pod failed",
				Means: "A pod worker gave up until its next turn. The error names the step. Restart back-off, image pulls and configuration of the pod " +
					"are left out.",
				Versions: "All.",
				Sources:  []string{"pkg/kubelet/pod_workers.go"},
			},
			forms: unless(
				[]string{
					"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "ErrImageNeverPull",
					"code = NotFound",
				},
				all("rror syncing pod"),
			),
			reads: readCall | readObject,
		},
	}
}
