package checks

import "strings"

// The cause codes of the contract that can be told from the runtime alone.
const (
	codeRuntimeDown        = "RuntimeDown"
	codeRuntimeHung        = "RuntimeHung"
	codeRuntimeSlow        = "RuntimeSlow"
	codeRuntimeNotReady    = "RuntimeNotReady"
	codeRuntimeUnsupported = "RuntimeUnsupported"
	codeNetworkNotReady    = "NetworkNotReady"
	codeCNIHung            = "CNIHung"
	codeListHang           = "ListHang"
	codeInspectHang        = "InspectHang"
	codeImageServiceHung   = "ImageServiceHung"
	codeTooManyExited      = "TooManyExited"
	codeListTooLarge       = "ListTooLarge"
	codeRelistOverloaded   = "RelistOverloaded"
)

// Those that are told by the node's own logs.
const (
	codeKubeletCrashLooping  = "KubeletCrashLooping"
	codePLEGUnhealthy        = "PLEGUnhealthy"
	codeAPIServerUnreachable = "APIServerUnreachable"
	codeOOMKilled            = "OOMKilled"
	codeKernelHung           = "KernelHung"
)

// Those that the kubelet's own surfaces and its unit tell.
const (
	codeKubeletDown          = "KubeletDown"
	codeKubeletStalled       = "KubeletStalled"
	codeCertificateExpired   = "CertificateExpired"
	codeCgroupDriverMismatch = "CgroupDriverMismatch"
)

// Those that the host tells.
const (
	codeDiskFull         = "DiskFull"
	codeInodesExhausted  = "InodesExhausted"
	codeIOStall          = "IOStall"
	codeFilesystemHung   = "FilesystemHung"
	codeMemoryPressure   = "MemoryPressure"
	codeCPUStarved       = "CPUStarved"
	codePIDsExhausted    = "PIDsExhausted"
	codeFilesExhausted   = "FilesExhausted"
	codeInotifyExhausted = "InotifyExhausted"
	codeTaskStuck        = "TaskStuck"
	codeShimStuck        = "ShimStuck"
	codeCgroupFrozen     = "CgroupFrozen"
	codeSystemdWedged    = "SystemdWedged"
	codeMountsExploded   = "MountsExploded"
	codeCgroupsLeaked    = "CgroupsLeaked"
	codeClockJumped      = "ClockJumped"
)

// Definitions returns every cause that kdiag knows, in the order of the contract.
func Definitions() []Definition {
	return []Definition{
		runtimeDown(),
		runtimeHung(),
		runtimeSlow(),
		runtimeNotReady(),
		runtimeUnsupported(),
		networkNotReady(),
		cniHung(),
		listHang(),
		inspectHang(),
		imageServiceHung(),
		tooManyExited(),
		listTooLarge(),
		relistOverloaded(),
		kubeletDown(),
		kubeletCrashLooping(),
		kubeletStalled(),
		plegUnhealthy(),
		certificateExpired(),
		apiServerUnreachable(),
		diskFull(),
		inodesExhausted(),
		ioStall(),
		filesystemHung(),
		memoryPressure(),
		oomKilled(),
		cpuStarved(),
		pidsExhausted(),
		filesExhausted(),
		inotifyExhausted(),
		taskStuck(),
		shimStuck(),
		cgroupFrozen(),
		systemdWedged(),
		kernelHung(),
		cgroupDriverMismatch(),
		mountsExploded(),
		cgroupsLeaked(),
		clockJumped(),
	}
}

// Lookup returns the definition of a code, in any case and with or without dashes: InspectHang, inspecthang and
// inspect-hang are the same.
func Lookup(code string) (Definition, bool) {
	plain := strings.ReplaceAll(strings.TrimSpace(code), "-", "")
	for _, d := range Definitions() {
		if strings.EqualFold(d.Code, plain) {
			return d, true
		}
	}
	return Definition{}, false
}
