package signature

// startEntries are about how the kubelet comes up, or does not.
func startEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: KubeletStarted, Lane: Kubelet, Marker: Start,
				Title:    "kubelet started",
				Means:    "A new kubelet process. What an old one knew of a stall is gone; the first PLEG records after it are part of the start.",
				Versions: "All. A start prints up to three such lines.",
				Sources:  []string{"cmd/kubelet/app/server.go", "pkg/kubelet/server/server.go"},
			},
			forms: join(
				[]form{
					{has: "Started kubelet", not: []string{"Node Agent", ".service", "Lightweight Kubernetes"}},
					{has: "Kubelet version", or: []string{"kubeletVersion", "version: v1."}},
				},
				all("FLAG: --address="),
			),
		},
		{
			Signature: Signature{
				Code: RuntimeModulesStarted, Lane: Kubelet, Marker: Start,
				Title:    "modules that need the runtime started",
				Means:    "The kubelet starts its CPU manager only once the runtime has answered Status: the start has come through.",
				Versions: "1.8 on. \"[cpumanager] starting\" to 1.20, \"Starting CPU manager\" later, \"Starting\" with a policy in 1.36.",
				Sources:  []string{"pkg/kubelet/cm/cpumanager/cpu_manager.go", "pkg/kubelet/kubelet.go"},
			},
			forms: all("tarting CPU manager", "[cpumanager] starting", "\"Starting\" policy=", "\"Starting\",\"policy\":"),
		},
		{
			Signature: Signature{
				Code: KubeletFatal, Lane: Kubelet, Marker: Error,
				Title:    "kubelet gave up",
				Means:    "The kubelet ended itself, or could not start. The text says why.",
				Versions: "All. Fatal klog lines begin with F.",
				Implies:  []string{"KubeletCrashLooping", "KubeletDown"},
				Sources:  []string{"cmd/kubelet/app/server.go", "pkg/kubelet/kubelet.go"},
			},
			forms: join(
				all("ailed to run Kubelet", "ailed to run kubelet", "ailed to start ContainerManager", "ailed to start cAdvisor",
					"Kubelet failed to get node info", "ailed to load kubelet config file",
					"ailed to load Kubelet config file", "nable to load bootstrap kubeconfig", "unning with swap on is not supported",
					"validate service connection"),
				[]form{
					{has: "command failed", or: []string{"run.go", "run Kubelet", "kubelet"}, and: []string{"err"}},
					{has: "Failed to listen and serve", and: []string{"bind: "}},
				},
			),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: CgroupDriverMismatch, Lane: Kubelet, Marker: Error,
				Title:    "cgroup drivers differ",
				Means:    "The kubelet and the runtime do not use the same cgroup driver.",
				Versions: "All with dockershim; other runtimes fail in the containers.",
				Implies:  []string{"CgroupDriverMismatch"},
				Sources:  []string{"pkg/kubelet/dockershim/docker_service.go", "cmd/kubelet/app/server.go"},
			},
			forms: all("is different from docker cgroup driver", "misconfiguration: kubelet cgroup driver", "xpected cgroupsPath to be of format"),
		},
	}
}
