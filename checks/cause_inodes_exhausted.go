package checks

import "github.com/kdiag/kdiag/journal/signature"

func inodesExhausted() Definition {
	return Definition{
		Code:  codeInodesExhausted,
		Title: "a file system that the node needs has no inodes left",
		Means: "There is space, and no file can be made: ext4 and some XFS have a number of inodes that was fixed when they were made. Below inodesFree<5% the kubelet says DiskPressure and evicts pods. " +
			"With none left every file that the runtime or the kubelet wants to make fails with \"no space left on device\", which sends people to df -h, where all looks well.\n\n" +
			"Unpacked images are most of it: each layer has thousands of small files. Then come sandboxes and logs of dead pods, sessions and mail queues in emptyDir volumes, and builds.",
		Confirm: []string{
			"df -i /var/lib/containerd /var/lib/kubelet /var/log: IUse% near 100.",
			"kubectl describe node: DiskPressure with InodePressure or EvictionThresholdMet among the events.",
		},
		Fix: []string{
			"Count files by folder and find what grew.",
			"Remove dead containers, and images that no container uses; delete the pod whose volume holds the files.",
			"A file system made with more inodes (mkfs.ext4 -i), or XFS, which makes them as needed.",
		},
		Mistaken: "DiskFull: the same words in every log; df -i tells them apart. Watches of inotify fail with \"no space left on device\" too: InotifyExhausted.",
		Sources: []string{
			"kubelet: pkg/kubelet/apis/config/v1beta1/defaults_linux.go (nodefs.inodesFree<5%, imagefs.inodesFree<5%)",
			"statfs(2): f_files, f_ffree",
		},
		RootOf: []string{
			codeRuntimeDown, codeRuntimeHung, codeRuntimeNotReady, codeTooManyExited, codeKubeletDown, codeKubeletCrashLooping,
		},
		recognise: recogniseInodesExhausted,
	}
}

// inodesExhaustedExplains is diskFullExplains for inodes.
func inodesExhaustedExplains(f *Facts, consequence string) bool {
	return shortExplains(f.shortages(true), consequence)
}

func recogniseInodesExhausted(f *Facts) *Cause {
	c := f.shortCause(codeInodesExhausted, "inodes", true)
	if c == nil {
		return nil
	}
	f.heard(&c.Evidence, signature.DiskFull)
	main := f.shortages(true)[0]
	var s steps
	folder := main.folder()
	s.add(TouchesNothing, "df -i "+folder+"; df -h "+folder, "Inodes or space?")
	s.add(TouchesNothing, "ionice -c3 du --inodes -x --max-depth=3 "+folder+" | sort -n | tail -n 20", "Where are the files? It reads every directory: minutes on a large disk.")
	s.add(TouchesNothing, f.kdiagCommand("gc-exited"), "The plan for dead containers beyond the newest: what may go, and why.")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should be placed here while no file can be made.")
	c.NextSteps = s.done()
	return c
}
