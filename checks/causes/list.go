package causes

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/facts"
)

// All returns every cause that kdiag knows, in the order of kdiag explain and docs/causes.md.
func All() []Definition { return slices.Clone(definitions) }

// definitions are the causes by area, as their pages name it.
var definitions = []Definition{
	{
		Code: RuntimeDown, Claims: []string{"runtime.connect"}, StopsRelists: true,
		OnPurpose: func(f *facts.Facts) bool { return stoppedInOrder(f.Target.RuntimeUnit) },
		Recognise: recogniseRuntimeDown, FromLog: loggedRuntimeDown,
	},
	{
		Code:  RuntimeHung,
		Calls: AllCalls, StopsRelists: true,
		OnPurpose: func(f *facts.Facts) bool {
			p := cmp.Or(f.Target.Docker.Stopped, f.Target.Daemon.Process)
			return p != nil && facts.IsStopped(p)
		},
		Recognise: recogniseRuntimeHung, FromLog: loggedRuntimeHung, LateCalls: true,
	},
	{Code: RuntimeSlow, Recognise: recogniseRuntimeSlow, FromLog: loggedRuntimeSlow, LateCalls: true},
	{
		Code: RuntimeNotReady, Claims: []string{"runtime.status"},
		Recognise: recogniseRuntimeNotReady, FromLog: loggedRuntimeNotReady,
	},
	{Code: RuntimeUnsupported, Recognise: recogniseRuntimeUnsupported, FromLog: loggedRuntimeUnsupported},
	{
		Code: NetworkNotReady, Claims: []string{"runtime.network"},
		Recognise: recogniseNetworkNotReady, FromLog: loggedNetworkNotReady,
	},
	{Code: CNIHung, Calls: []string{facts.RPCStatus}, Recognise: recogniseCNIHung, FromLog: loggedCNIHung},
	{
		Code: ListHang, Claims: []string{"runtime.lists"},
		Calls:        []string{facts.RPCSandboxes, facts.RPCContainers, "StreamPodSandboxes", "StreamContainers"},
		StopsRelists: true,
		Recognise:    recogniseListHang, FromLog: loggedListHang, LateCalls: true,
	},
	{
		Code: InspectHang, Claims: []string{"runtime.inspect"},
		Calls: []string{"PodSandboxStatus", "ContainerStatus"}, StopsRelists: true, SeenLate: true,
		Recognise: recogniseInspectHang, FromLog: loggedInspectHang, LateCalls: true,
	},
	{
		Code: ImageServiceHung, Claims: []string{"image.service"},
		Calls:     []string{facts.RPCImages, facts.RPCImageFs, "StreamImages"},
		Recognise: recogniseImageServiceHung,
	},
	{
		Code:      PluginHung,
		OnPurpose: func(f *facts.Facts) bool { return slices.ContainsFunc(badPlugins(f), peerStopped) },
		Recognise: recognisePluginHung,
	},
	{
		Code: TooManyExited, Claims: []string{"relist.exited"},
		Recognise: recogniseTooManyExited, FromLog: loggedTooManyExited,
	},
	{
		Code: ListTooLarge, Claims: []string{"relist.size"}, StopsRelists: true,
		Recognise: recogniseListTooLarge, FromLog: loggedListTooLarge,
	},
	{
		Code: RelistOverloaded, Claims: []string{"relist.projection"},
		Recognise: recogniseRelistOverloaded, FromLog: loggedRelistOverloaded, LateCalls: true,
	},
	{Code: PodsNotStarting, SeenLate: true, Recognise: recognisePodsNotStarting},
	{Code: PodsNotStopping, SeenLate: true, Recognise: recognisePodsNotStopping},
	{
		Code: KubeletDown, Claims: []string{"kubelet.unit"},
		// One that runs is only impaired, and no cause here explains that.
		OnPurpose: func(f *facts.Facts) bool { return f.KubeletState.Runs || stoppedInOrder(f.KubeletState.Unit) },
		Recognise: recogniseKubeletDown,
	},
	{
		Code: KubeletCrashLooping, Claims: []string{"journal.kubelet"},
		Recognise: recogniseKubeletCrashLooping, FromLog: loggedKubeletCrashLooping,
	},
	{
		Code: KubeletStalled, Claims: []string{"kubelet.server"}, StopsRelists: true, SeenLate: true,
		OnPurpose: func(f *facts.Facts) bool { return f.KubeletState.Stopped != nil },
		Recognise: recogniseKubeletStalled, FromLog: loggedKubeletStalled,
	},
	{
		Code: PLEGUnhealthy, Claims: []string{"journal.pleg"}, StopsRelists: true, SeenLate: true, Hidden: hidesPLEG,
		Recognise: recognisePLEGUnhealthy,
	},
	{
		Code: CertificateExpired, Claims: []string{"kubelet.certificates"},
		Recognise: recogniseCertificateExpired, FromLog: loggedCertificateExpired,
	},
	{Code: APIServerUnreachable, Claims: []string{"kubelet.apiserver"}, Recognise: recogniseAPIServerUnreachable},
	{Code: DiskFull, Claims: []string{"host.space"}, Recognise: recogniseDiskFull, FromLog: loggedDiskFull},
	{Code: InodesExhausted, Claims: []string{"host.inodes"}, Recognise: recogniseInodesExhausted},
	{Code: IOStall, Claims: []string{"host.writes"}, Recognise: recogniseIOStall, FromLog: loggedIOStall},
	{
		Code: FilesystemHung, Claims: []string{"host.mounts"},
		Recognise: recogniseFilesystemHung, FromLog: loggedFilesystemHung,
	},
	{Code: MemoryPressure, Claims: []string{"host.memory"}, Recognise: recogniseMemoryPressure},
	{
		Code: OOMKilled, Claims: []string{"journal.kernel"}, Past: true,
		Recognise: recogniseOOMKilled, FromLog: loggedOOMKilled,
	},
	{Code: CPUStarved, Claims: []string{"host.throttling"}, Recognise: recogniseCPUStarved},
	{
		Code: PIDsExhausted, Claims: []string{"host.pids"},
		Recognise: recognisePIDsExhausted, FromLog: loggedPIDsExhausted,
	},
	{
		Code: FilesExhausted, Claims: []string{"host.files"},
		Recognise: recogniseFilesExhausted, FromLog: loggedFilesExhausted,
	},
	{
		Code: InotifyExhausted, Claims: []string{"host.inotify"},
		Recognise: recogniseInotifyExhausted, FromLog: loggedInotifyExhausted,
	},
	{Code: TaskStuck, Claims: []string{"host.tasks"}, Recognise: recogniseTaskStuck, FromLog: loggedTaskStuck},
	{
		Code: OpensIntercepted, Claims: []string{"host.tasks"}, Calls: AllCalls, StopsRelists: true,
		Recognise: recogniseOpensIntercepted,
	},
	{
		Code: ShimStuck, Claims: []string{"host.shims"},
		OnPurpose: func(f *facts.Facts) bool { return len(f.Shims.Stopped) > 0 },
		Recognise: recogniseShimStuck, FromLog: loggedShimStuck, LateCalls: true,
	},
	{Code: CgroupFrozen, Claims: []string{"host.freezer"}, Recognise: recogniseCgroupFrozen},
	{
		Code: SystemdWedged, Claims: []string{"systemd.answer", "systemd.units"},
		Recognise: recogniseSystemdWedged, FromLog: loggedSystemdWedged,
	},
	{
		Code: HardwareFault, Claims: []string{"journal.kernel"},
		Recognise: recogniseHardwareFault, FromLog: loggedHardwareFault,
	},
	{
		Code: KernelHung, Claims: []string{"journal.kernel"}, Past: true,
		Recognise: recogniseKernelHung, FromLog: loggedKernelHung,
	},
	{Code: CgroupDriverMismatch, Claims: []string{"kubelet.cgroupdriver"}, Recognise: recogniseCgroupDriverMismatch},
	{Code: MountsExploded, Claims: []string{"host.mounts"}, Recognise: recogniseMountsExploded},
	{Code: CgroupsLeaked, Claims: []string{"host.cgroups"}, Recognise: recogniseCgroupsLeaked},
	{Code: ClockJumped, Claims: []string{"host.clock"}, Recognise: recogniseClockJumped, FromLog: loggedClockJumped},
}
