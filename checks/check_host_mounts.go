package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostMounts() Check {
	return Check{
		ID:    "host.mounts",
		Title: "every mount answers, and there are not too many",
		Text: "Counts the host's mounts, and asks those below the kubelet's folder and all that come over the network or from a FUSE process for an answer, each in a child process that can be left behind. " +
			"One that hangs takes with it whoever touches it.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.MountTable] { return n.Mounts }, f.judgeMounts)
		},
	}
}

func (f *Facts) judgeMounts(t host.MountTable) Result {
	l := f.nodeLimits()
	if dead := f.deadMounts(); len(dead) > 0 {
		status := StatusWarning
		if dead[0].Hung && f.hurts(dead[0]) {
			status = StatusCritical
		}
		return result(status, "%s", f.mountLine(dead[0]))
	}
	switch {
	case t.Total >= l.MountsCritical:
		return result(StatusCritical, "%s", units.Count(t.Total, "mount"))
	case t.Total >= l.Mounts:
		return result(StatusWarning, "%s", units.Count(t.Total, "mount"))
	case t.Total == 0:
		return result(StatusUnknown, "no mount was seen")
	case t.Left > 0:
		return result(StatusUnknown, "%s of %s not asked, the others answered", units.Number(t.Left), units.Count(t.Total, "mount"))
	}
	if len(t.Probed) == 0 {
		return result(StatusOK, "%s, none of a pod or over the network", units.Count(t.Total, "mount"))
	}
	return result(StatusOK, "%s, %s asked and answered", units.Count(t.Total, "mount"), units.Number(len(t.Probed)))
}
