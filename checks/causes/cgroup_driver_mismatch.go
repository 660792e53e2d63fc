package causes

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// CgroupDriverMismatch is the code of this cause.
const CgroupDriverMismatch = "CgroupDriverMismatch"

// CgroupDrivers returns the drivers of kubelet and runtime, and whether both are known and of the two that there are.
func CgroupDrivers(f *facts.Facts) (kubelet, runtime string, known bool) {
	n := f.Seen
	drivers := []string{"systemd", "cgroupfs"}
	kubelet, runtime = n.Settings.Value.CgroupDriver, n.RuntimeDriver.Value
	whole := len(n.Settings.Value.Problems) == 0 // K3s hands the driver to its kubelet inside the process
	known = n.Settings.OK && whole && n.RuntimeDriver.OK && slices.Contains(drivers, kubelet) &&
		slices.Contains(drivers, runtime)
	if follows, sure := followsRuntime(f); follows {
		kubelet = runtime
	} else if !sure && kubelet != runtime {
		known = false
	}
	return kubelet, runtime, known
}

// kubepods returns the drivers that made the control groups of all pods, by their names: both, where the driver was
// changed since the node booted. A group without processes may be left from an earlier driver.
func kubepods(f *facts.Facts) []string {
	var made []string
	for _, g := range f.Seen.PIDs.Value.Cgroups {
		if g.Current > 0 && facts.HoldsAllPods(g.Path) {
			made = append(made, ifElse(path.Base(g.Path) == "kubepods", "cgroupfs", "systemd"))
		}
	}
	return made
}

// followsRuntime reports whether the kubelet uses the runtime's driver whatever its settings are, and whether that is
// sure. Kubernetes 1.31 and later do so with a runtime that answers RuntimeConfig, which containerd 1 does not.
func followsRuntime(f *facts.Facts) (follows, sure bool) {
	if runtime := facts.RuntimeOf(f); runtime.Name == "containerd" &&
		strings.HasPrefix(strings.TrimPrefix(runtime.Version, "v"), "1.") {
		return false, true
	}
	if on, set := f.Seen.Settings.Value.FeatureGates["KubeletCgroupDriverFromCRI"]; set {
		return on, true
	}
	if f.KubeletState.Minor > 0 {
		return f.KubeletState.Minor >= 31, true
	}
	made := kubepods(f)
	own := slices.Contains(made, f.Seen.Settings.Value.CgroupDriver)
	return len(made) > 0 && !own, own
}

// mismatchFresh is the maximum age of the newest sandbox that failed for the drivers: the kubelet tries again about
// every 15 s for each pod.
const mismatchFresh = 90 * time.Second

func recogniseCgroupDriverMismatch(f *facts.Facts) *Finding {
	kubelet, runtime, known := CgroupDrivers(f)
	fails := f.Log.SameRuntime && facts.Fresh(f, facts.LastOf(f, signature.CgroupDriverMismatch), mismatchFresh)
	if f.Target.OtherEndpoint || !fails && (!known || kubelet == runtime) {
		return nil
	}
	var e checks.Evidence
	severity, what := checks.Critical, "no new pod starts"
	if kubelet == "systemd" && f.Target.Unit != "crio" && !fails {
		severity, what = checks.Warning, "containers run beside their pods' control groups: pods' limits do not hold"
	}
	summary := textf("kubelet and %s use different cgroup drivers: %s", f.Target.Name, what)
	if known && kubelet != runtime {
		summary = textf("the kubelet's cgroup driver is %s, %s uses %s: %s", kubelet, f.Target.Name, runtime, what)
		Addf(&e.For, "the kubelet's driver is %s (%s), the runtime's is %s", kubelet,
			cmp.Or(facts.Clean(strings.Join(f.Seen.Settings.Value.Files, ", ")), "its flags and defaults"), runtime)
	}
	if fails {
		logEvidence(f, &e, signature.CgroupDriverMismatch)
	}
	if made := kubepods(f); len(made) > 0 {
		Addf(&e.For, "the control groups of the pods that run were made by %s", units.List(made))
	}
	return newFinding(severity, checks.Certain, summary, e, *facts.KubeletSubject(f)).advise(func(s *Steps, _ string) {
		s.Look("grep -i cgroupDriver /var/lib/kubelet/config.yaml", "Read the kubelet's setting (default cgroupfs).")
		s.Look(facts.CrictlCommand(f, "info")+" | grep -iE 'systemdCgroup|cgroup'", "Read the runtime's setting.")
		s.cordon()
		s.drain("Then change one of the two, and restart the runtime and the kubelet.")
	})
}
