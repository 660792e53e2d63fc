package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostMounts() Check {
	return Check{
		ID:    "host.mounts",
		Title: "every mount answers, and there are not too many",
		Text: "Counts the host's mounts, and asks those below the kubelet's folder and all that come over the network or from a FUSE process for an answer, each in a child process that can be left behind. " +
			"One that hangs takes with it whoever touches it.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.MountTable] { return n.Mounts }, func(v0 host.MountTable) checks.Result { return judgeMounts(f, v0) })
		},
	}
}

func judgeMounts(f *facts.Facts, t host.MountTable) checks.Result {
	l := f.Limits.Node
	if dead := f.Disk.DeadMounts; len(dead) > 0 {
		status := checks.StatusWarning
		if dead[0].Hung && causes.Hurts(f, dead[0]) {
			status = checks.StatusCritical
		}
		return result(status, "%s", causes.MountLine(f, dead[0]))
	}
	switch {
	case t.Total >= l.MountsCritical:
		return result(checks.StatusCritical, "%s", units.Count(t.Total, "mount"))
	case t.Total >= l.Mounts:
		return result(checks.StatusWarning, "%s", units.Count(t.Total, "mount"))
	case t.Total == 0:
		return result(checks.StatusUnknown, "no mount was seen")
	case t.Left > 0:
		return result(checks.StatusUnknown, "%s of %s not asked, the others answered", units.Number(t.Left), units.Count(t.Total, "mount"))
	}
	if len(t.Probed) == 0 {
		return result(checks.StatusOK, "%s, none of a pod or over the network", units.Count(t.Total, "mount"))
	}
	return result(checks.StatusOK, "%s, %s asked and answered", units.Count(t.Total, "mount"), units.Number(len(t.Probed)))
}
