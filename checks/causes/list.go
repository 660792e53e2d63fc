package causes

import "github.com/kdiag/kdiag/checks/facts"

// All returns every cause that kdiag knows, in the order in which they are documented and looked for.
func All() []Definition {
	return []Definition{
		cause(RuntimeDown, recogniseRuntimeDown, loggedRuntimeDown, "runtime.connect"),
		cause(RuntimeHung, recogniseRuntimeHung, loggedRuntimeHung),
		cause(RuntimeSlow, recogniseRuntimeSlow, loggedRuntimeSlow),
		cause(RuntimeNotReady, recogniseRuntimeNotReady, loggedRuntimeNotReady, "runtime.status"),
		cause(RuntimeUnsupported, recogniseRuntimeUnsupported, loggedRuntimeUnsupported),
		cause(NetworkNotReady, recogniseNetworkNotReady, loggedNetworkNotReady, "runtime.network"),
		cause(CNIHung, recogniseCNIHung, loggedCNIHung),
		cause(ListHang, recogniseListHang, loggedListHang, "runtime.lists"),
		cause(InspectHang, recogniseInspectHang, loggedInspectHang, "runtime.inspect"),
		cause(ImageServiceHung, recogniseImageServiceHung, nil, "image.service"),
		cause(TooManyExited, recogniseTooManyExited, loggedTooManyExited, "relist.exited"),
		cause(ListTooLarge, recogniseListTooLarge, loggedListTooLarge, "relist.size"),
		cause(RelistOverloaded, recogniseRelistOverloaded, loggedRelistOverloaded, "relist.projection"),
		cause(KubeletDown, recogniseKubeletDown, nil, "kubelet.unit"),
		cause(KubeletCrashLooping, recogniseKubeletCrashLooping, loggedKubeletCrashLooping, "journal.kubelet"),
		cause(KubeletStalled, recogniseKubeletStalled, loggedKubeletStalled, "kubelet.server"),
		cause(PLEGUnhealthy, recognisePLEGUnhealthy, nil, "journal.pleg"),
		cause(CertificateExpired, recogniseCertificateExpired, loggedCertificateExpired, "kubelet.certificates"),
		cause(APIServerUnreachable, recogniseAPIServerUnreachable, nil, "kubelet.apiserver"),
		cause(DiskFull, recogniseDiskFull, loggedDiskFull, "host.space"),
		cause(InodesExhausted, recogniseInodesExhausted, nil, "host.inodes"),
		cause(IOStall, recogniseIOStall, loggedIOStall, "host.writes"),
		cause(FilesystemHung, recogniseFilesystemHung, loggedFilesystemHung, "host.mounts"),
		cause(MemoryPressure, recogniseMemoryPressure, nil, "host.memory"),
		cause(OOMKilled, recogniseOOMKilled, loggedOOMKilled, "journal.kernel"),
		cause(CPUStarved, recogniseCPUStarved, nil, "host.throttling"),
		cause(PIDsExhausted, recognisePIDsExhausted, loggedPIDsExhausted, "host.pids"),
		cause(FilesExhausted, recogniseFilesExhausted, loggedFilesExhausted, "host.files"),
		cause(InotifyExhausted, recogniseInotifyExhausted, loggedInotifyExhausted, "host.inotify"),
		cause(TaskStuck, recogniseTaskStuck, loggedTaskStuck, "host.tasks"),
		cause(ShimStuck, recogniseShimStuck, loggedShimStuck, "host.shims"),
		cause(CgroupFrozen, recogniseCgroupFrozen, nil, "host.freezer"),
		cause(SystemdWedged, recogniseSystemdWedged, loggedSystemdWedged, "systemd.answer", "systemd.units"),
		cause(KernelHung, recogniseKernelHung, loggedKernelHung, "journal.kernel"),
		cause(CgroupDriverMismatch, recogniseCgroupDriverMismatch, nil, "kubelet.cgroupdriver"),
		cause(MountsExploded, recogniseMountsExploded, nil, "host.mounts"),
		cause(CgroupsLeaked, recogniseCgroupsLeaked, nil, "host.cgroups"),
		cause(ClockJumped, recogniseClockJumped, loggedClockJumped, "host.clock"),
	}
}

// cause returns a definition. fromLog is nil for a cause that no log shows; claims are the checks whose line it gives.
func cause(
	code string, recognise func(*facts.Facts) *Finding, fromLog func(*Incident) *LogFinding, claims ...string,
) Definition {
	return Definition{
		Code: code, Claims: claims, Roots: rootsOf(code), Hidden: hidden[code], OnPurpose: onPurpose[code],
		Past: code == OOMKilled || code == KernelHung, Recognise: recognise, FromLog: fromLog,
	}
}
