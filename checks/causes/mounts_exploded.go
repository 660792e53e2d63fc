package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// MountsExploded is the code of this cause.
const MountsExploded = "MountsExploded"

var mountsExploded = Definition{
	Code:      MountsExploded,
	Claims:    []string{"host.mounts"},
	Recognise: recogniseMountsExploded,
}

func recogniseMountsExploded(f *facts.Facts) *Finding {
	l, t := f.Limits.Node, f.Seen.Mounts.Value
	if t.Total < l.Mounts {
		return nil
	}
	var e checks.Evidence
	severity := checks.Warning
	if t.Total >= l.MountsCritical {
		severity = checks.Critical
	}
	Addf(&e.For, "%s in the host's table, %s of them below the kubelet's folder", units.Count(t.Total, "mount"), units.Number(t.Kubelet))
	types := slices.SortedFunc(maps.Keys(t.ByType), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.ByType[b], t.ByType[a]), cmp.Compare(a, b))
	})
	for _, name := range types[:min(len(types), facts.MostNamed)] {
		Addf(&e.For, "%s of type %s", units.Number(t.ByType[name]), cmp.Or(facts.Clean(name), "unknown"))
	}
	if s := f.Seen.Systemd.Value; s.Answered && s.Took < l.SlowSystemd {
		Addf(&e.Against, "systemd answers within %s", units.Duration(s.Took))
	}
	summary := fmt.Sprintf("%s: a full node has one to two thousand", units.Count(t.Total, "mount"))
	if t.Kubelet > t.Total/2 {
		summary += "; most are below the kubelet's folder"
	}
	c := newFinding(severity, checks.Strong, summary, e)
	c.Subject = &checks.Subject{Kind: "Node", Name: "mount table"}
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, "awk '{print $5}' /proc/1/mountinfo | cut -d/ -f1-6 | sort | uniq -c | sort -rn | head", "Below which folder are they, so whose are they?")
		s.Add(checks.TouchesNothing, "awk '{print $5}' /proc/1/mountinfo | sort | uniq -c | sort -rn | head", "Which place is mounted many times over? That is a leak.")
		s.Add(checks.TouchesNothing, "ps -o pid,pcpu,etime,comm -p 1", "How much of a CPU does systemd use to read them?")
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod adds mounts, and each mount makes all of them be read again.")
		return s.Done()
	}
	return c
}
