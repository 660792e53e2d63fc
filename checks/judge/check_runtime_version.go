package judge

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
)

func runtimeVersion() Check {
	return Check{
		ID:    "runtime.version",
		Title: "the runtime names itself",
		Text: "Version is a constant of the daemon: it needs no lock and no disk. Slow, it says that the daemon does not get to run; Unimplemented, that CRI v1 is not " +
			"served. The kubelet asks for it with each node status.",
		read: readRuntimeVersion,
	}
}

func readRuntimeVersion(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCVersion, func() checks.Result {
		v := facts.RuntimeOf(f)
		status := checks.StatusOK
		if d := f.RPC[facts.RPCVersion].Last().Elapsed; f.Limits.SlowList > 0 && d >= f.Limits.SlowList {
			status = checks.StatusWarning
		}
		if v.Name == "" {
			return result(status, "answered, without a name")
		}
		return result(status, "%s %s, CRI %s", v.Name, cmp.Or(v.Version, "of unknown version"), cmp.Or(v.APIVersion, "of unknown version"))
	})
}
