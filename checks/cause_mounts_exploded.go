package checks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks/units"
)

func mountsExploded() Definition {
	return Definition{
		Code:  codeMountsExploded,
		Title: "there are so many mounts that systemd, the kubelet and runc crawl",
		Means: "Each change of a mount table makes systemd and udisks read all of it again, for every instance of systemd that runs; runc and the kubelet read it for every container and every volume. That is quadratic: at a " +
			"thousand mounts it is a core under churn (systemd/systemd#37642), at tens of thousands runc does not get done (containerd/containerd#5113), and at 100,000 (fs.mount-max) the next mount fails with \"no space left on device\".\n\n" +
			"A full node of 110 pods has one to two thousand. More is a leak: mounts that are shared into a folder that is itself mounted below them double at each restart of whatever does it (a CSI driver, a backup agent, a " +
			"container with / of the host and bidirectional propagation); or a volume that is mounted anew and never unmounted.",
		Confirm: []string{
			"wc -l < /proc/1/mountinfo",
			"awk '{print $5}' /proc/1/mountinfo | cut -d/ -f1-6 | sort | uniq -c | sort -rn | head: below which folder?",
			"awk '{print $5}' /proc/1/mountinfo | sort | uniq -d | head: the same place mounted several times is the mark of a leak.",
			"top: systemd (pid 1) and systemd --user with a core each.",
		},
		Fix: []string{
			"Find whose folder it is, and stop the pod that makes them before anything is unmounted.",
			"Unmount what is left over, the newest first. Some thousand at a time: each makes systemd read the table again.",
			"Correct the pod: no bidirectional propagation of a folder that contains its own mounts.",
			"A reboot clears them all, and what makes them starts again.",
		},
		Mistaken: "CgroupsLeaked: the same crawl, of cAdvisor and systemd, for control groups. SystemdWedged: often what follows from this.",
		Sources: []string{
			"systemd/systemd#37642, #16728, #8703 (the whole table at each change), containerd/containerd#5113 (36,887 mounts)",
			"IBM/ibm-spectrum-scale-csi#721 (a mount that doubles at each restart)",
			"kernel: Documentation/admin-guide/sysctl/fs.rst (mount-max)",
		},
		RootOf:    []string{codeSystemdWedged, codeCPUStarved, codeRuntimeSlow, codeRelistOverloaded, codeKubeletStalled},
		recognise: recogniseMountsExploded,
	}
}

// mountsExplodedExplains reports whether there are enough mounts to slow down whoever reads the table.
func mountsExplodedExplains(f *Facts, _ string) bool {
	return f.seen().Mounts.Value.Total >= f.nodeLimits().Mounts
}

func recogniseMountsExploded(f *Facts) *Cause {
	l, t := f.nodeLimits(), f.seen().Mounts.Value
	if t.Total < l.Mounts {
		return nil
	}
	var e Evidence
	severity := Warning
	if t.Total >= l.MountsCritical {
		severity = Critical
	}
	addf(&e.For, "%s in the host's table, %s of them below the kubelet's folder", units.Count(t.Total, "mount"), units.Number(t.Kubelet))
	types := slices.SortedFunc(maps.Keys(t.ByType), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.ByType[b], t.ByType[a]), cmp.Compare(a, b))
	})
	for _, name := range types[:min(len(types), topHeaps)] {
		addf(&e.For, "%s of type %s", units.Number(t.ByType[name]), or(clean(name), "unknown"))
	}
	if s := f.seen().Systemd.Value; s.Answered && s.Took < l.SlowSystemd {
		addf(&e.Against, "systemd answers within %s", units.Duration(s.Took))
	}
	summary := fmt.Sprintf("%s: a full node has one to two thousand", units.Count(t.Total, "mount"))
	if t.Kubelet > t.Total/2 {
		summary += "; most are below the kubelet's folder"
	}
	c := newCause(codeMountsExploded, severity, Strong, summary, e)
	c.Subject = &Subject{Kind: "Node", Name: "mount table"}
	var s steps
	s.add(TouchesNothing, "awk '{print $5}' /proc/1/mountinfo | cut -d/ -f1-6 | sort | uniq -c | sort -rn | head", "Below which folder are they, so whose are they?")
	s.add(TouchesNothing, "awk '{print $5}' /proc/1/mountinfo | sort | uniq -c | sort -rn | head", "Which place is mounted many times over? That is a leak.")
	s.add(TouchesNothing, "ps -o pid,pcpu,etime,comm -p 1", "How much of a CPU does systemd use to read them?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod adds mounts, and each mount makes all of them be read again.")
	c.NextSteps = s.done()
	return c
}
