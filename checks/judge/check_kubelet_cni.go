package judge

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletCNI() Check {
	return Check{
		ID:    "kubelet.cni",
		Title: "a network configuration and its plugins are there",
		Text: "Reads the first file of the CNI folder as the runtime would, and looks for the programs that it names. Without a file that can be used the runtime says NetworkReady=false; without a program that says ready, and pods with a " +
			"network of their own do not start.",
		read: readKubeletCNI,
	}
}

func readKubeletCNI(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[kubelet.CNI] { return n.CNI }, func(c kubelet.CNI) checks.Result {
		switch {
		case c.File == "" && f.Agent.NetworkReady:
			return result(checks.StatusSkipped, "the runtime says NetworkReady; its configuration is in none of the usual folders")
		case c.File == "" && c.Problem != "":
			return result(checks.StatusWarning, "%s", facts.Clean(c.Problem))
		case causes.PassedOver(f, c) && f.Agent.NetworkReady:
			return result(checks.StatusSkipped, "the runtime says NetworkReady: CRI-O passes over %s, which cannot be used, and loads another file", facts.Clean(c.File))
		case c.Problem != "":
			return result(checks.StatusWarning, "%s: %s", facts.Clean(c.ConfDir), facts.Clean(c.Problem))
		case len(c.Missing) > 0:
			return result(checks.StatusWarning, "%s needs %s, which %s not there", facts.Clean(c.File), facts.Clean(units.List(facts.Head(c.Missing, facts.MostNamed))), units.Plural(len(c.Missing), "is", "are"))
		case len(c.BinDirs) == 0:
			return result(checks.StatusUnknown, "%s needs %s, and none of the usual folders of plugins is there", facts.Clean(c.File), facts.Clean(units.List(facts.Head(c.Plugins, facts.MostNamed))))
		}
		return result(checks.StatusOK, "%s, network %s, %s", facts.Clean(c.File), cmp.Or(facts.Clean(c.Name), "without a name"), units.Count(len(c.Plugins), "plugin"))
	})
}
