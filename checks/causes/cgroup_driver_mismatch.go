package causes

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CgroupDriverMismatch is the code of this cause.
const CgroupDriverMismatch = "CgroupDriverMismatch"

var cgroupDriverMismatch = Definition{
	Code:      CgroupDriverMismatch,
	Claims:    []string{"kubelet.cgroupdriver"},
	Recognise: recogniseCgroupDriverMismatch,
}

// CgroupDrivers returns the drivers of kubelet and runtime, and whether both are known and of the two that there are.
func CgroupDrivers(f *facts.Facts) (kubelet, runtime string, known bool) {
	n := f.Seen
	drivers := []string{"systemd", "cgroupfs"}
	kubelet, runtime = n.Settings.Value.CgroupDriver, n.RuntimeDriver.Value
	if followsRuntime(f, runtime) {
		kubelet = runtime
	}
	return kubelet, runtime, n.Settings.OK && n.RuntimeDriver.OK && slices.Contains(drivers, kubelet) && slices.Contains(drivers, runtime)
}

// kubepods returns the drivers that made the control groups of all pods, by their names: both, where the driver was changed since
// the node booted.
func kubepods(f *facts.Facts) []string {
	var made []string
	for _, g := range f.Seen.PIDs.Value.Cgroups {
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
func followsRuntime(f *facts.Facts, runtime string) bool {
	on, set := f.Seen.Settings.Value.FeatureGates["KubeletCgroupDriverFromCRI"]
	made := kubepods(f)
	return on || !set && len(made) > 0 && !slices.ContainsFunc(made, func(driver string) bool { return driver != runtime })
}

func recogniseCgroupDriverMismatch(f *facts.Facts) *Finding {
	kubelet, runtime, known := CgroupDrivers(f)
	if !known || kubelet == runtime || f.Target.OtherEndpoint {
		return nil
	}
	var e checks.Evidence
	Addf(&e.For, "the kubelet's settings say %s (%s)", kubelet, cmp.Or(facts.Clean(strings.Join(f.Seen.Settings.Value.Files, ", ")), "its flags and defaults"))
	Addf(&e.For, "the runtime says %s when it is asked (RuntimeConfig)", runtime)
	severity, what := checks.Critical, "no container starts"
	if kubelet == "systemd" && f.Target.Unit != "crio" {
		severity, what = checks.Warning, "containers run beside their pods' control groups, not in them, so that limits of pods do not hold"
	}
	step := checks.Certain
	if made := kubepods(f); len(made) > 0 {
		Addf(&e.For, "the control groups of all pods were made the way of %s", units.List(made))
	} else {
		step = checks.Fair
		Addf(&e.Missing, "the control group of all pods, whose name tells what the kubelet does: from Kubernetes 1.31 on it asks the runtime, whatever its settings say")
	}
	c := newFinding(severity, step, fmt.Sprintf("the kubelet uses the cgroup driver %s and %s uses %s: %s", kubelet, f.Target.Name, runtime, what), e)
	c.Subject = facts.KubeletSubject(f)
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, "grep -i cgroupDriver /var/lib/kubelet/config.yaml", "What does the kubelet's file say? Without the line it is cgroupfs.")
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "info")+" | grep -iE 'systemdCgroup|cgroup'", "What does the runtime's configuration say?")
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No pod should start here until both agree.")
		s.Add(checks.TouchesNode, `kubectl drain "$(hostname)" --ignore-daemonsets --delete-emptydir-data --timeout=5m`, "Pods keep the control groups that they have: change the setting on an empty node, then restart the runtime, then the kubelet.")
		return s.Done()
	}
	return c
}
