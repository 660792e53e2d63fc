package checks

import (
	"strings"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletSettings() Check {
	return Check{
		ID:    "kubelet.settings",
		Title: "the kubelet's settings do no harm",
		Text: "Reads the kubelet's configuration file, its drop-ins and its flags, and names what harms the node or hides its trouble: eviction that is turned off, a call deadline that is too short, evented PLEG, and the like. Also settings that " +
			"were changed in the files and that the kubelet, not restarted since, does not run with. What a distribution has by default is told, and is not called harm.",
		read: readKubeletSettings,
	}
}

func readKubeletSettings(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.Settings] { return n.Settings }, func(s kubelet.Settings) Result {
		differs := f.seen().Health.Value.Differs
		switch {
		case len(s.Harmful) > 0:
			h := s.Harmful[0]
			more := ""
			if n := len(s.Harmful) - 1; n > 0 {
				more = "; " + units.Count(n, "other setting") + " as well"
			}
			return result(StatusWarning, "%s is %s: %s%s", clean(h.Name), or(clean(h.Value), "empty"), strings.TrimSuffix(clean(h.Harm), "."), more)
		case len(differs) > 0:
			d := differs[0]
			return result(StatusWarning, "the kubelet runs with %s %s; its files and flags have %s, and take effect with a restart",
				clean(d.Name), clean(d.Running), clean(d.Configured))
		}
		own := ""
		if s.Own != "" {
			own = "; " + clean(s.Own)
		}
		if len(s.Problems) > 0 {
			return result(StatusUnknown, "%s%s", clean(s.Problems[0]), own)
		}
		return result(StatusOK, "%s read, nothing in them that harms%s", units.Count(len(s.Files), "file"), own)
	})
}
