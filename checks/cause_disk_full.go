package checks

import (
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

func diskFull() Definition {
	return Definition{
		Code:  codeDiskFull,
		Title: "a file system that the node needs has no space left",
		Means: "The runtime, the kubelet or the pods' logs have no room. Below nodefs.available<10% or imagefs.available<15% the kubelet says DiskPressure, removes images and dead containers, " +
			"evicts pods, and takes no new ones; that is a warning here, and the node stays Ready.\n\n" +
			"Critical is what comes after: a write is refused, or less than 1 % and less than 1 GiB is left. The runtime cannot commit to its database then. It answers what it holds in memory and fails everything " +
			"that changes something; after a restart it may not come up at all. The kubelet cannot write checkpoints or logs, and its collector cannot remove containers, since a removal is a write too.",
		Confirm: []string{
			"df -h /var/lib/containerd /var/lib/kubelet /var/log: which of them is full? (crio: /var/lib/containers)",
			"kubectl describe node: DiskPressure, and FreeDiskSpaceFailed or EvictionThresholdMet among the events.",
			"Space that is used and belongs to no file: a process holds deleted files open (lsof +L1).",
			"Free space that df shows and writes do not get: a quota (xfs_quota, ext4 project quota), or thin storage that is full below.",
		},
		Fix: []string{
			"See what grew before anything is removed: images, dead containers, logs, emptyDir volumes, core dumps.",
			"Remove dead containers and old logs; delete the pod that fills its emptyDir or its log.",
			"Remove images that no container uses. Pin the pause image first where the runtime does not (kubernetes-sigs/cri-tools#1356).",
			"Give the runtime and the logs a disk of their own; set containerLogMaxSize, ephemeral-storage limits and the image collector's thresholds.",
		},
		Mistaken: "InodesExhausted: df -h shows room and writes fail with the same words; df -i tells. IOStall: there writes come back late, not refused. A read-only remount after an error: the kernel's log says so.",
		Sources: []string{
			"kubelet: pkg/kubelet/apis/config/v1beta1/defaults_linux.go (DefaultEvictionHard), pkg/kubelet/eviction",
			"kubernetes.io: node-pressure eviction",
			"kubernetes-sigs/cri-tools#1356 (a prune that takes the pause image)",
		},
		RootOf: []string{
			codeRuntimeDown, codeRuntimeHung, codeRuntimeNotReady, codeImageServiceHung, codeTooManyExited, codeKubeletDown, codeKubeletCrashLooping,
		},
		recognise: recogniseDiskFull,
	}
}

// diskFullExplains reports whether a full disk is why: it must be the one on which the consequence's daemon writes.
func diskFullExplains(f *Facts, consequence string) bool {
	return shortExplains(f.shortages(false), consequence)
}

// shortExplains reports whether one of the file systems is full and holds the folder of the daemon that fails.
func shortExplains(short []shortage, consequence string) bool {
	role := host.FolderRuntime
	if consequence == codeKubeletDown || consequence == codeKubeletCrashLooping {
		role = host.FolderKubelet
	}
	return slices.ContainsFunc(short, func(s shortage) bool {
		return s.full && slices.ContainsFunc(s.space.Folders, func(o host.Folder) bool { return o.Role == role })
	})
}

func recogniseDiskFull(f *Facts) *Cause {
	c := f.shortCause(codeDiskFull, "space", false)
	if c == nil {
		return nil
	}
	f.heard(&c.Evidence, signature.DiskFull)
	main := f.shortages(false)[0]
	var s steps
	folder := main.folder()
	s.add(TouchesNothing, "df -h "+folder+"; df -i "+folder, "How much is left, and is it space or inodes?")
	s.add(TouchesNothing, "ionice -c3 du -xh --max-depth=3 "+folder+" | sort -h | tail -n 20", "What takes the space? It reads every directory: minutes on a large disk.")
	s.add(TouchesNothing, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F '(deleted)' | head -n 20", "Files that were deleted and are still open take space until their process lets go.")
	s.add(TouchesNothing, f.crictlCommand("imagefsinfo"), "How much of it are images?")
	s.add(TouchesNothing, f.kdiagCommand("gc-exited"), "The plan for dead containers beyond the newest: what may go, and why.")
	if slices.ContainsFunc(main.space.Folders, func(o host.Folder) bool { return o.Role == host.FolderLogs }) {
		s.add(TouchesExited, "journalctl --vacuum-size=500M", "Removes old records of the journal, the oldest first. Save what the diagnosis needs.")
	}
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should be placed here while there is no room.")
	c.NextSteps = s.done()
	return c
}
