package checks

import (
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

func readKubeletCNI(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.CNI] { return n.CNI }, func(c kubelet.CNI) Result {
		switch {
		case c.File == "" && f.networkReady():
			return result(StatusSkipped, "the runtime says NetworkReady; its configuration is in none of the usual folders")
		case c.File == "" && c.Problem != "":
			return result(StatusWarning, "%s", clean(c.Problem))
		case f.passedOver(c) && f.networkReady():
			return result(StatusSkipped, "the runtime says NetworkReady: CRI-O passes over %s, which cannot be used, and loads another file", clean(c.File))
		case c.Problem != "":
			return result(StatusWarning, "%s: %s", clean(c.ConfDir), clean(c.Problem))
		case len(c.Missing) > 0:
			return result(StatusWarning, "%s needs %s, which %s not there", clean(c.File), clean(units.List(head(c.Missing, topHeaps))), verb(len(c.Missing), "is", "are"))
		case len(c.BinDirs) == 0:
			return result(StatusUnknown, "%s needs %s, and none of the usual folders of plugins is there", clean(c.File), clean(units.List(head(c.Plugins, topHeaps))))
		}
		return result(StatusOK, "%s, network %s, %s", clean(c.File), or(clean(c.Name), "without a name"), units.Count(len(c.Plugins), "plugin"))
	})
}
