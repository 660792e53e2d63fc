package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
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

func readHostShims(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, func(host.Tasks) checks.Result {
		shims := len(facts.ProcessesOf(f, host.RoleShim))
		if c := causes.RecogniseShimStuck(f); c != nil {
			return result(checks.StatusWarning, "%s", c.Summary)
		}
		gap, compared := f.Shims.Gap, f.Shims.Compared
		foreign := f.Shims.EveryStopped // none of this runtime is stopped
		switch {
		case f.HostMissing != "":
			return result(checks.StatusUnknown, "processes were not read: %s", facts.Clean(f.HostMissing))
		case shims == 0:
			return result(checks.StatusSkipped, "no shim was seen on this host")
		case !compared && f.Target.OtherEndpoint:
			return result(checks.StatusUnknown, "%s, none stopped; not compared with the lists, which are of another runtime than the kubelet's", units.Count(shims, "shim"))
		case !compared:
			return result(checks.StatusUnknown, "%s, none stopped; the runtime's lists, to compare with, did not come whole", units.Count(shims, "shim"))
		case len(gap.Shimless) > 0:
			return result(checks.StatusWarning, "the sandbox of %s is ready, and no shim of it was seen", facts.OwnerLabel(f, host.Owner{ObjectID: gap.Shimless[0].ID}))
		case len(foreign) > 0:
			return result(checks.StatusOK, "%s, none of this runtime's stopped; %s stopped, another tool's or left over: the runtime does not list what %s serves",
				units.Count(shims, "shim"), units.Plural(len(foreign), "one is", units.Number(len(foreign))+" are"), facts.ProcessLabel(foreign[0]))
		case len(gap.Orphans) > 0:
			return result(checks.StatusOK, "%s, none stopped; %s the runtime does not list, another tool's or left over: %s", units.Count(shims, "shim"), units.Number(len(gap.Orphans)), facts.ProcessLabel(gap.Orphans[0]))
		}
		return result(checks.StatusOK, "%s, none stopped, all listed", units.Count(shims, "shim"))
	})
}
