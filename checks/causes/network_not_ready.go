package causes

import (
	"cmp"
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

func loggedNetworkNotReady(in *Incident) *Finding {
	codes := []string{signature.NetworkNotReady, signature.CNINotInitialized}
	if in.NotReady == signature.NetworkNotReady {
		const summary = "The pod network is not ready, so the node is NotReady; running pods go on."
		return in.finding(checks.Certain, summary, codes...)
	}
	return in.harmless("The runtime has no working pod network, which does not make PLEG unhealthy.", codes...)
}

func recogniseNetworkNotReady(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Measurement.Status == nil {
		return nil
	}
	var e checks.Evidence
	var effect []string
	n := f.Seen.CNI.Value
	summary, step := conditionFalse(f, facts.ConditionNetworkReady, &e)
	_, runtimeReported := f.Measurement.Status.Condition(facts.ConditionRuntimeReady)
	_, reported := f.Measurement.Status.Condition(facts.ConditionNetworkReady)
	lacks := summary == "" && f.Seen.CNI.OK && n.Configured && len(n.Missing) > 0 && len(n.BinDirs) > 0
	severity := checks.Critical
	ready := summary == "" && reported
	cutOff := facts.CutOff(f)
	apart := f.Seen.CNI.OK && n.Apart != "" && !f.Target.OtherEndpoint
	switch {
	case summary == "" && len(cutOff) > 0:
		bridge := facts.Clean(n.LostBridge)
		pods := units.Count(len(cutOff), "running pod") + units.Plural(len(cutOff), " is", " are")
		step, summary = checks.Certain, textf("the bridge %s is gone: %s cut off from the network", bridge, pods)
		if n.Loose {
			summary = textf("%s cut off from the network: not attached to the bridge %s any more", pods, bridge)
		}
		Addf(&e.For, "%s calls the plugin bridge, which attached them to %s: %s", facts.Clean(n.File), bridge,
			ifElse(n.Loose, "their interfaces have no master now, as when the bridge is made anew",
				"no interface has this name"))
		Addf(&e.For, "attached to it: %s", firstOf(cutOff, facts.Clean, "pod"))
		effect = besides(f, "nothing reaches these pods; "+ifElse(n.Loose, "the others are well",
			"the plugin makes the bridge again for the next pod, without them"))
	case apart:
		daemon, other := facts.Clean(f.Target.Name), "the kubelet"
		if n.Apart == "kubelet" {
			daemon, other = other, daemon
		}
		step, summary = checks.Certain, textf("%s is in a network namespace of its own, without the node's network", daemon)
		Addf(&e.For, "%s and process 1 are in another network namespace", other)
		effect = besides(f, ifElse(n.Apart == "kubelet", "the kubelet reaches neither the API server nor the pods",
			"nothing outside of it reaches the pods that it starts: their probes fail"))
	case ready && f.Seen.CNI.OK && n.Configured && n.File == "" && n.Problem != "":
		severity, step = checks.Warning, checks.Strong
		summary = "no CNI configuration is left in " + facts.Clean(n.ConfDir) +
			": the runtime still uses the one in its memory"
		Addf(&e.For, "%s", facts.Clean(n.Problem))
		Addf(&e.For, "NetworkReady is true: the runtime has a network loaded")
		effect = besides(f, "after the next restart of the runtime no pod with its own network starts")
	case lacks:
		step, summary = checks.Certain, textf("CNI plugins are missing in %s: %s",
			facts.Clean(units.List(n.BinDirs)), facts.Clean(units.List(top(n.Missing))))
		Addf(&e.For, "the runtime has loaded a network that calls %s", facts.Clean(units.List(top(n.Missing))))
		Addf(&e.For, "NetworkReady is true: the runtime checks its configuration, not its plugins")
		effect = besides(f, "no pod with its own network can start or stop")
	case summary == "" || !reported && !runtimeReported: // an empty Status is RuntimeNotReady
		return nil
	default:
		effect = []string{`kubelet: NotReady at once ("container runtime network not ready"); of new pods only those on ` +
			"the host's network start"}
		summary += after("; ", CNIEvidence(f, &e))
	}
	step = raised(step, fromLog(f, &e.For, signOfNetwork))
	subject := ifElse(f.Target.OtherEndpoint && !n.Configured, *facts.SocketSubject(f),
		checks.Subject{Kind: "Filesystem", ID: cniFolders(f)[0], Name: "CNI configuration"})
	if len(cutOff) > 0 {
		subject = checks.Subject{Kind: "Interface", Name: n.LostBridge}
	} else if apart {
		subject = ifElse(n.Apart == "kubelet", *facts.KubeletSubject(f), *facts.DaemonSubject(f))
	} else if lacks {
		subject.ID, subject.Name = n.BinDirs[0], "CNI plugins"
	}
	x := newFinding(severity, step, summary, e, subject).affects(effect...)
	return x.advise(func(s *Steps, _ string) {
		if len(cutOff) > 0 {
			s.Look("ip link; ip addr",
				"See whether the bridge is there, with the address of the pods' gateway, and whose master it is")
			s.Look("journalctl --no-pager --since -1h | grep -iE 'networkd|NetworkManager|link' | tail -n 20",
				"Find what removed it, and have it leave the bridge alone")
			s.lookPods("Delete the pods that are cut off once the cause is gone: new ones are attached to a new bridge")
			return
		}
		if apart {
			unit := ifElse(n.Apart == "kubelet", f.Target.KubeletUnit, f.Target.Unit)
			s.lookIf(facts.Safe(unit), "systemctl cat "+unit+
				" | grep -nE 'PrivateNetwork|NetworkNamespacePath|JoinsNamespaceOf'",
				"Find the setting that takes the node's network from it, remove it, and restart the unit")
			s.Look("lsns -t net", "See the network namespaces, and the first process in each")
			return
		}
		s.lookIf(!f.Target.OtherEndpoint || n.Configured, "ls -l "+strings.Join(cniFolders(f), " "),
			"Check that the configuration and its plugins are there")
		s.Look(facts.CrictlCommand(f, "info"), "Read which network configuration the runtime has loaded")
		s.lookPods("Check the network add-on's pod: it installs the configuration and most plugins")
		s.lookIf(slices.Contains(n.Missing, "loopback"), "ls -l /opt/cni/bin /usr/lib/cni",
			"Check the package of the standard plugins (kubernetes-cni, containernetworking-plugins); reinstall it")
	})
}

// PassedOver reports whether the first file cannot be used and the runtime takes another one: containerd does not,
// CRI-O does.
func PassedOver(f *facts.Facts, c kubelet.CNI) bool {
	return c.Problem != "" && len(c.Others) > 0 && f.Target.Unit == "crio"
}

// cniFolders are the folders of configuration and plugins, safe to paste, the configuration's first.
func cniFolders(f *facts.Facts) []string {
	n := f.Seen.CNI.Value
	bin := ifElse(len(n.BinDirs) == 0, []string{"/opt/cni/bin"}, n.BinDirs)
	folders := append([]string{cmp.Or(n.ConfDir, "/etc/cni/net.d")}, bin...)
	if slices.ContainsFunc(folders, func(p string) bool { return !facts.SafePath.MatchString(p) }) {
		return []string{"/etc/cni/net.d", "/opt/cni/bin"}
	}
	return folders
}

// CNIEvidence adds the state of the network's configuration, and returns its problem in a few words.
func CNIEvidence(f *facts.Facts, e *checks.Evidence) string {
	look := f.Seen.CNI
	n := look.Value
	dir, problem := facts.Clean(n.ConfDir), facts.Clean(n.Problem)
	switch {
	case f.Target.OtherEndpoint && !n.Configured:
		Addf(&e.Missing, "where this runtime has its CNI configuration: it is not the kubelet's")
	case !look.OK:
		Addf(&e.Missing, "the CNI configuration (/etc/cni/net.d) and plugins (/opt/cni/bin) were not read")
	case n.Problem != "" && n.File == "":
		Addf(&e.For, "%s", problem)
		return "no configuration is in " + dir
	case PassedOver(f, n):
		Addf(&e.For, "%s cannot be used: CRI-O tries %s", facts.Clean(n.File), facts.Clean(units.List(top(n.Others))))
	case n.Problem != "":
		Addf(&e.For, "no configuration in %s can be used: %s", dir, problem)
		return "no configuration in " + dir + " can be used"
	case len(n.Missing) > 0:
		Addf(&e.For, "%s needs %s, which is not there", facts.Clean(n.File), facts.Clean(units.List(top(n.Missing))))
		return "the plugin " + facts.Clean(n.Missing[0]) + " is not there"
	case n.File != "" && len(n.BinDirs) == 0:
		Addf(&e.Missing, "the plugins that %s names: none of their usual folders is there", facts.Clean(n.File))
	case n.File != "":
		Addf(&e.For, "the configuration %s and its plugins are there: the fault is behind them", facts.Clean(n.File))
	}
	return ""
}
