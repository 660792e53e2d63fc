package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostShims() Check {
	return Check{
		ID:    "host.shims",
		Title: "shims run, and match what the runtime lists",
		Text: "Compares the shims among the processes with the sandboxes and containers in the runtime's lists. A stopped shim of this runtime is a warning; a shim that is not listed may be left over, or docker's, nerdctl's or podman's; a ready sandbox " +
			"without a shim is dead and nobody has noticed.",
		read: readHostShims,
	}
}

func readHostShims(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Tasks] { return n.Tasks }, func(host.Tasks) Result {
		shims := len(f.processes(host.RoleShim))
		if c := recogniseShimStuck(f); c != nil {
			return result(StatusWarning, "%s", c.Summary)
		}
		gap, compared := f.shimGap()
		foreign := f.everyStoppedShim() // none of this runtime is stopped
		switch {
		case f.HostMissing != "":
			return result(StatusUnknown, "processes were not read: %s", clean(f.HostMissing))
		case shims == 0:
			return result(StatusSkipped, "no shim was seen on this host")
		case !compared && f.otherEndpoint():
			return result(StatusUnknown, "%s, none stopped; not compared with the lists, which are of another runtime than the kubelet's", units.Count(shims, "shim"))
		case !compared:
			return result(StatusUnknown, "%s, none stopped; the runtime's lists, to compare with, did not come whole", units.Count(shims, "shim"))
		case len(gap.Shimless) > 0:
			return result(StatusWarning, "the sandbox of %s is ready, and no shim of it was seen", f.ownerLabel(host.Owner{ObjectID: gap.Shimless[0].ID}))
		case len(foreign) > 0:
			return result(StatusOK, "%s, none of this runtime's stopped; %s stopped, another tool's or left over: the runtime does not list what %s serves",
				units.Count(shims, "shim"), verb(len(foreign), "one is", units.Number(len(foreign))+" are"), processLabel(foreign[0]))
		case len(gap.Orphans) > 0:
			return result(StatusOK, "%s, none stopped; %s the runtime does not list, another tool's or left over: %s", units.Count(shims, "shim"), units.Number(len(gap.Orphans)), processLabel(gap.Orphans[0]))
		}
		return result(StatusOK, "%s, none stopped, all listed", units.Count(shims, "shim"))
	})
}
