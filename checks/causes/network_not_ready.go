package causes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// NetworkNotReady is the code of this cause.
const NetworkNotReady = "NetworkNotReady"

var networkNotReady = Definition{
	Code:   NetworkNotReady,
	Claims: []string{"runtime.network"},
	Roots: []Root{
		{Code: CNIHung},
	},
	Recognise: recogniseNetworkNotReady,
	FromLog: fromRecords(SymptomTier, 0.25,
		"The runtime has no working pod network, which does not make PLEG unhealthy.",
		signature.NetworkNotReady, signature.CNINotInitialized),
}

func recogniseNetworkNotReady(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Measurement.Status == nil {
		return nil
	}
	status := f.Measurement.Status
	condition, ok := status.Condition(facts.ConditionNetworkReady)
	_, runtimeReported := status.Condition(facts.ConditionRuntimeReady)
	var e checks.Evidence
	var summary string
	step := checks.Certain
	switch {
	case !ok && !runtimeReported:
		return nil // an empty Status says nothing about the network: RuntimeNotReady
	case !ok:
		Addf(&e.For, "Status answered with %s and none of them is NetworkReady; the kubelet takes that for not ready",
			units.Count(len(status.Conditions), "condition"))
		summary, step = fmt.Sprintf("%s does not report NetworkReady", f.Target.Daemon.Label), checks.Strong
	case condition.Status:
		return nil
	default:
		Addf(&e.For, "%s", conditionLine(condition))
		summary = fmt.Sprintf("the runtime's network is not ready: %s", conditionWhy(condition))
	}
	if why := cniEvidence(f, &e); why != "" {
		summary += "; " + why
	}
	step = raised(step, fromLog(f, &e.For, signsOfNetwork()...))
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.SocketSubject(f)
	if !f.Target.OtherEndpoint {
		c.Subject = &checks.Subject{Kind: "Filesystem", ID: cniFolders(f)[0], Name: "CNI configuration"}
	}
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		if !f.Target.OtherEndpoint {
			s.Add(checks.TouchesNothing, "ls -l "+strings.Join(cniFolders(f), " "),
				"Is there a configuration, and the plugin that it names?")
		}
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "info"),
			"What the runtime says about its network, and which configuration it loaded.")
		s.Add(checks.TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`,
			"Does the network add-on run here? It writes the configuration.")
		addRestart(f, &s)
		return s.Done()
	}
	return c
}

// PassedOver reports whether the first file cannot be used and the runtime takes another one: containerd does not,
// CRI-O does.
func PassedOver(f *facts.Facts, c kubelet.CNI) bool {
	return c.Problem != "" && len(c.Others) > 0 && f.Target.Unit == "crio"
}

// cniFolders are the folders of configuration and plugins, safe to paste, the first that of the configuration.
func cniFolders(f *facts.Facts) []string {
	n := f.Seen.CNI.Value
	folders := append([]string{cmp.Or(n.ConfDir, "/etc/cni/net.d")}, n.BinDirs...)
	if len(n.BinDirs) == 0 {
		folders = append(folders, "/opt/cni/bin")
	}
	if slices.ContainsFunc(folders, func(p string) bool { return !facts.SafePath.MatchString(p) }) {
		return []string{"/etc/cni/net.d", "/opt/cni/bin"}
	}
	return folders
}

// cniEvidence adds what lies in the folders of the network's configuration, and returns what is wrong with it in a
// few words.
func cniEvidence(f *facts.Facts, e *checks.Evidence) string {
	look := f.Seen.CNI
	n := look.Value
	if f.Target.OtherEndpoint {
		Addf(&e.Missing, "where this runtime has its CNI configuration: it is not the kubelet's, and its own "+
			"settings were not read")
		return ""
	}
	if !look.OK {
		Addf(&e.Missing, "the CNI configuration (/etc/cni/net.d) and plugins (/opt/cni/bin) were not read")
	}
	switch {
	case n.Problem != "" && n.File == "":
		Addf(&e.For, "%s", facts.Clean(n.Problem))
		return "no configuration is in " + facts.Clean(n.ConfDir)
	case PassedOver(f, n):
		Addf(&e.For, "%s cannot be used: CRI-O passes over it and tries %s", facts.Clean(n.File),
			facts.Clean(units.List(facts.Head(n.Others, facts.MostNamed))))
	case n.Problem != "":
		Addf(&e.For, "no configuration in %s can be used: %s", facts.Clean(n.ConfDir), facts.Clean(n.Problem))
		return "no configuration in " + facts.Clean(n.ConfDir) + " can be used"
	case len(n.Missing) > 0:
		plugins := facts.Clean(units.List(facts.Head(n.Missing, facts.MostNamed)))
		Addf(&e.For, "%s needs %s, which %s not in %s", facts.Clean(n.File), plugins,
			units.Plural(len(n.Missing), "is", "are"), facts.Clean(strings.Join(n.BinDirs, " or ")))
		return "the plugin " + facts.Clean(n.Missing[0]) + " is not there"
	case look.OK && n.File != "" && len(n.BinDirs) == 0:
		Addf(&e.Missing, "the plugins that %s names: none of their usual folders is there", facts.Clean(n.File))
	case look.OK && n.File != "":
		Addf(&e.For, "the configuration %s and its plugins (%s) are there: what is wrong is behind them",
			facts.Clean(n.File), facts.Clean(units.List(facts.Head(n.Plugins, facts.MaxRelated))))
	}
	return ""
}
