package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// MountsExploded is the code of this cause.
const MountsExploded = "MountsExploded"

func recogniseMountsExploded(f *facts.Facts) *Finding {
	l, t := f.Limits.Node, f.Seen.Mounts.Value
	if t.Total < l.Mounts {
		return nil
	}
	var e checks.Evidence
	Addf(&e.For, "%s in the host's table, %s of the kubelet", units.Count(t.Total, "mount"), units.Number(t.Kubelet))
	addMost(&e.For, "%s of type %s", t.ByType)
	if s := f.Seen.Systemd.Value; s.Answered && s.Took < l.SlowSystemd {
		Addf(&e.Against, "systemd answers within %s", s.Took)
	}
	summary := textf("%s: a full node has one to two thousand", units.Count(t.Total, "mount"))
	severity := criticalIf(t.Total >= l.MountsCritical)
	return newFinding(severity, checks.Strong, summary, e, ofNode("mount table")).advise(func(s *Steps, _ string) {
		s.Look("awk '{print $5}' /proc/1/mountinfo | cut -d/ -f1-6 | sort | uniq -c | sort -rn | head",
			"Find the folders with most mounts.")
		s.Look("awk '{print $5}' /proc/1/mountinfo | sort | uniq -c | sort -rn | head",
			"List what is mounted many times over.")
		s.Look("ps -o pid,pcpu,etime,comm -p 1", "Check how much CPU systemd uses to read them.")
		s.cordon()
	})
}
