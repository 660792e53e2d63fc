package causes

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CgroupDriverMismatch is the code of this cause.
const CgroupDriverMismatch = "CgroupDriverMismatch"

var cgroupDriverMismatch = cause(CgroupDriverMismatch, recogniseCgroupDriverMismatch, nil, "kubelet.cgroupdriver")

// CgroupDrivers returns the drivers of kubelet and runtime, and whether both are known and of the two that there are.
func CgroupDrivers(f *facts.Facts) (kubelet, runtime string, known bool) {
	n := f.Seen
	drivers := []string{"systemd", "cgroupfs"}
	kubelet, runtime = n.Settings.Value.CgroupDriver, n.RuntimeDriver.Value
	if followsRuntime(f, runtime) {
		kubelet = runtime
	}
	return kubelet, runtime, n.Settings.OK && n.RuntimeDriver.OK && slices.Contains(drivers, kubelet) &&
		slices.Contains(drivers, runtime)
}

// kubepods returns the drivers that made the control groups of all pods, by their names: both, where the driver was
// changed since the node booted.
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

// followsRuntime reports whether the kubelet uses the runtime's driver, whatever its settings are: it is told to, or
// it is seen to have.
func followsRuntime(f *facts.Facts, runtime string) bool {
	on, set := f.Seen.Settings.Value.FeatureGates["KubeletCgroupDriverFromCRI"]
	made := kubepods(f)
	return on || !set && len(made) > 0 && !slices.ContainsFunc(made,
		func(driver string) bool { return driver != runtime })
}

func recogniseCgroupDriverMismatch(f *facts.Facts) *Finding {
	kubelet, runtime, known := CgroupDrivers(f)
	if !known || kubelet == runtime || f.Target.OtherEndpoint {
		return nil
	}
	var e checks.Evidence
	Addf(&e.For, "the kubelet's driver is %s (%s), the runtime's is %s (RuntimeConfig)", kubelet,
		cmp.Or(facts.Clean(strings.Join(f.Seen.Settings.Value.Files, ", ")), "its flags and defaults"), runtime)
	severity, what := checks.Critical, "no container starts"
	if kubelet == "systemd" && f.Target.Unit != "crio" {
		severity, what = checks.Warning, "containers run beside their pods' control groups, so pods' limits do not hold"
	}
	step := checks.Certain
	if made := kubepods(f); len(made) > 0 {
		Addf(&e.For, "the control groups of all pods were made by %s", units.List(made))
	} else {
		step = checks.Fair
		Addf(&e.Missing, "the name of the pods' control group: from Kubernetes 1.31 on the kubelet asks the runtime")
	}
	summary := textf("the kubelet's cgroup driver is %s, %s uses %s: %s", kubelet, f.Target.Name, runtime, what)
	return newFinding(severity, step, summary, e, *facts.KubeletSubject(f)).advise(func(s *Steps, _ string) {
		s.Look("grep -i cgroupDriver /var/lib/kubelet/config.yaml", "What is in its file? The default is cgroupfs.")
		s.Look(facts.CrictlCommand(f, "info")+" | grep -iE 'systemdCgroup|cgroup'", "What has the runtime configured?")
		s.cordon()
		s.drain("Change the setting on an empty node, then restart the runtime, then the kubelet.")
	})
}
