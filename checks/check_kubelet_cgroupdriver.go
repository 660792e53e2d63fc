package checks

func kubeletCgroupDriver() Check {
	return Check{
		ID:    "kubelet.cgroupdriver",
		Title: "kubelet and runtime use the same cgroup driver",
		Text:  "Compares the kubelet's cgroupDriver with what the runtime says to RuntimeConfig (containerd 2.0, CRI-O 1.28). Where they differ, containers do not start, or run beside the control groups of their pods.",
		read:  readKubeletCgroupDriver,
	}
}

func readKubeletCgroupDriver(f *Facts) Result {
	return readLook(f, func(n *Node) Look[string] { return n.RuntimeDriver }, func(string) Result {
		kubelet, runtime, known := f.cgroupDrivers()
		settings := f.seen().Settings
		switch {
		case settings.Skipped:
			return result(StatusSkipped, "%s", settings.why())
		case !settings.OK:
			return result(StatusUnknown, "the kubelet's driver is not known: %s", settings.why())
		case !known && kubelet == "":
			return result(StatusUnknown, "the kubelet's driver is not known")
		case !known:
			return result(StatusUnknown, "the runtime did not say which driver it uses")
		case f.otherEndpoint():
			return result(StatusSkipped, "%s", f.endpointProblem())
		case kubelet != runtime:
			return result(StatusCritical, "the kubelet uses %s and the runtime %s", kubelet, runtime)
		}
		return result(StatusOK, "both use %s", kubelet)
	})
}
