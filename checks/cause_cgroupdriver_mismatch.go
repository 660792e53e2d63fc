package checks

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
)

func cgroupDriverMismatch() Definition {
	return Definition{
		Code:  codeCgroupDriverMismatch,
		Title: "kubelet and runtime use different cgroup drivers",
		Means: "The kubelet makes a control group for each pod, and the runtime puts the containers into it. Both must do so in the same way: by systemd's slices and scopes (systemd), or by making folders (cgroupfs).\n\n" +
			"Kubelet cgroupfs and runtime systemd: no container starts, runc says \"expected cgroupsPath to be of format slice:prefix:name\"; CRI-O refuses either mixture itself. Kubelet systemd and containerd cgroupfs: containers start, but beside " +
			"their pods and not in them. Limits of pods do not hold, what containers use is not counted, eviction sees too little. From Kubernetes 1.31 on, and from 1.28 with the gate KubeletCgroupDriverFromCRI, a kubelet asks the runtime at its start and follows " +
			"its answer, whatever its settings say. What it does is seen by the control group that it makes for all pods: kubepods.slice or kubepods.",
		Confirm: []string{
			"grep cgroupDriver /var/lib/kubelet/config.yaml; without the line it is cgroupfs.",
			"crictl info | grep -i systemdCgroup; CRI-O: crio status config | grep cgroup_manager.",
			"ls -d /sys/fs/cgroup/kubepods*; find /sys/fs/cgroup -maxdepth 6 -name '*slice:cri-containerd*': names with colons are containers beside their pods, mostly in the runtime's own group.",
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
	if f.followsRuntime(runtime) {
		kubelet = runtime
	}
	return kubelet, runtime, n.Settings.OK && n.RuntimeDriver.OK && slices.Contains(drivers, kubelet) && slices.Contains(drivers, runtime)
}

// kubepods returns the drivers that made the control groups of all pods, by their names: both, where the driver was changed since
// the node booted.
func (f *Facts) kubepods() []string {
	var made []string
	for _, g := range f.seen().PIDs.Value.Cgroups {
		switch base := path.Base(g.Path); {
		case base == "kubepods":
			made = append(made, "cgroupfs")
		case base == "kubepods.slice", strings.HasSuffix(base, "-kubepods.slice"): // the second below --cgroup-root
			made = append(made, "systemd")
		}
	}
	return made
}

// followsRuntime reports whether the kubelet uses the driver that the runtime says, whatever its settings say: it is told to, or it is seen
// to have.
func (f *Facts) followsRuntime(runtime string) bool {
	on, set := f.seen().Settings.Value.FeatureGates["KubeletCgroupDriverFromCRI"]
	made := f.kubepods()
	return on || !set && len(made) > 0 && !slices.ContainsFunc(made, func(driver string) bool { return driver != runtime })
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
	step := Certain
	if made := f.kubepods(); len(made) > 0 {
		addf(&e.For, "the control groups of all pods were made the way of %s", units.List(made))
	} else {
		step = Fair
		addf(&e.Missing, "the control group of all pods, whose name tells what the kubelet does: from Kubernetes 1.31 on it asks the runtime, whatever its settings say")
	}
	c := newCause(codeCgroupDriverMismatch, severity, step, fmt.Sprintf("the kubelet uses the cgroup driver %s and %s uses %s: %s", kubelet, f.runtimeName(), runtime, what), e)
	c.Subject = f.kubeletSubject()
	var s steps
	s.add(TouchesNothing, "grep -i cgroupDriver /var/lib/kubelet/config.yaml", "What does the kubelet's file say? Without the line it is cgroupfs.")
	s.add(TouchesNothing, f.crictlCommand("info")+" | grep -iE 'systemdCgroup|cgroup'", "What does the runtime's configuration say?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No pod should start here until both agree.")
	s.add(TouchesNode, `kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, "Pods keep the control groups that they have: change the setting on an empty node, then restart the runtime, then the kubelet.")
	c.NextSteps = s.done()
	return c
}
