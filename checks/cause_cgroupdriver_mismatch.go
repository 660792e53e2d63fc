package checks

import (
	"fmt"
	"slices"
	"strings"
)

func cgroupDriverMismatch() Definition {
	return Definition{
		Code:  codeCgroupDriverMismatch,
		Title: "kubelet and runtime use different cgroup drivers",
		Means: "The kubelet makes a control group for each pod, and the runtime puts the containers into it. Both must do so in the same way: by systemd's slices and scopes (systemd), or by making folders (cgroupfs).\n\n" +
			"Kubelet cgroupfs and runtime systemd: no container starts, runc says \"expected cgroupsPath to be of format slice:prefix:name\"; CRI-O refuses either mixture itself. Kubelet systemd and containerd cgroupfs: containers start, but beside " +
			"their pods and not in them. Limits of pods do not hold, what containers use is not counted, eviction sees too little. Since Kubernetes 1.28 a kubelet may ask the runtime (KubeletCgroupDriverFromCRI) and follows its answer.",
		Confirm: []string{
			"grep cgroupDriver /var/lib/kubelet/config.yaml; without the line it is cgroupfs.",
			"crictl info | grep -i systemdCgroup; CRI-O: crio status config | grep cgroup_manager.",
			"ls -d /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*slice:cri-containerd*: names with colons are containers beside their pods.",
		},
		Fix: []string{
			"Choose systemd for both where systemd runs the host: SystemdCgroup = true in containerd's config.toml (runc options), cgroup_manager = \"systemd\" for CRI-O, cgroupDriver: systemd for the kubelet.",
			"Drain the node before: pods that run keep the control groups that they have, and must be made anew. Then restart the runtime, and the kubelet after it.",
		},
		Mistaken: "RuntimeNotReady: there the runtime says so itself. A kubelet that asks the runtime has no mismatch, whatever its file says.",
		Sources: []string{
			"kubelet: pkg/kubelet/kubelet.go (getCgroupDriverFromCRI), CRI RuntimeConfig",
			"containerd: internal/cri/server (getCgroupsPath), opencontainers/runc: libcontainer/specconv (slice:prefix:name)",
		},
		recognise: recogniseCgroupDriverMismatch,
	}
}

// cgroupDrivers returns the drivers of kubelet and runtime, and whether both are known and of the two that there are.
func (f *Facts) cgroupDrivers() (kubelet, runtime string, known bool) {
	n := f.seen()
	drivers := []string{"systemd", "cgroupfs"}
	kubelet, runtime = n.Settings.Value.CgroupDriver, n.RuntimeDriver.Value
	return kubelet, runtime, n.Settings.OK && n.RuntimeDriver.OK && slices.Contains(drivers, kubelet) && slices.Contains(drivers, runtime)
}

func recogniseCgroupDriverMismatch(f *Facts) *Cause {
	kubelet, runtime, known := f.cgroupDrivers()
	if !known || kubelet == runtime || f.otherEndpoint() {
		return nil
	}
	var e Evidence
	addf(&e.For, "the kubelet's settings say %s (%s)", kubelet, or(clean(strings.Join(f.seen().Settings.Value.Files, ", ")), "its flags and defaults"))
	addf(&e.For, "the runtime says %s when it is asked (RuntimeConfig)", runtime)
	severity, what := Critical, "no container starts"
	if kubelet == "systemd" && f.unit() != "crio" {
		severity, what = Warning, "containers run beside their pods' control groups, not in them, so that limits of pods do not hold"
	}
	c := newCause(codeCgroupDriverMismatch, severity, Certain, fmt.Sprintf("the kubelet uses the cgroup driver %s and %s uses %s: %s", kubelet, f.runtimeName(), runtime, what), e)
	c.Subject = f.kubeletSubject()
	var s steps
	s.add(TouchesNothing, "grep -i cgroupDriver /var/lib/kubelet/config.yaml", "What does the kubelet's file say? Without the line it is cgroupfs.")
	s.add(TouchesNothing, f.crictlCommand("info")+" | grep -iE 'systemdCgroup|cgroup'", "What does the runtime's configuration say?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No pod should start here until both agree.")
	s.add(TouchesNode, `kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, "Pods keep the control groups that they have: change the setting on an empty node, then restart the runtime, then the kubelet.")
	c.NextSteps = s.done()
	return c
}
