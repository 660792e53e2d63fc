package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

func kubeletCgroupDriver() Check {
	return Check{
		ID:    "kubelet.cgroupdriver",
		Title: "kubelet and runtime use the same cgroup driver",
		Text:  "Compares the kubelet's cgroupDriver with what the runtime says to RuntimeConfig (containerd 2.0, CRI-O 1.28). Where they differ, containers do not start, or run beside the control groups of their pods.",
		read:  readKubeletCgroupDriver,
	}
}

func readKubeletCgroupDriver(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[string] { return n.RuntimeDriver }, func(string) checks.Result {
		kubelet, runtime, known := causes.CgroupDrivers(f)
		settings := f.Seen.Settings
		switch {
		case settings.Skipped:
			return result(checks.StatusSkipped, "%s", settings.Why())
		case !settings.OK:
			return result(checks.StatusUnknown, "the kubelet's driver is not known: %s", settings.Why())
		case !known && kubelet == "":
			return result(checks.StatusUnknown, "the kubelet's driver is not known")
		case !known:
			return result(checks.StatusUnknown, "the runtime did not say which driver it uses")
		case f.Target.OtherEndpoint:
			return result(checks.StatusSkipped, "%s", facts.EndpointProblem(f))
		case kubelet != runtime:
			return result(checks.StatusCritical, "the kubelet uses %s and the runtime %s", kubelet, runtime)
		}
		return result(checks.StatusOK, "both use %s", kubelet)
	})
}
