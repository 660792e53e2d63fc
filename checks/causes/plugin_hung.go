package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// PluginHung is the code of this cause.
const PluginHung = "PluginHung"

// pluginEffects are what becomes of pods while a plugin of a kind does not answer.
var pluginEffects = map[string]string{
	host.PeerProxy:   "pods whose images it serves do not start, and no such image is pulled",
	host.PeerDevice:  "one pod that asks for its devices keeps all new pods waiting: Allocate has no deadline",
	host.PeerKubelet: "pods with a volume or a claim of it neither start nor stop",
}

// badPlugins are the plugins that do not answer. Where nobody listens, that matters for a snapshotter that the
// configuration has the runtime use for all pods; any other one may have been removed.
func badPlugins(f *facts.Facts) (all []host.Peer) {
	for _, p := range f.Seen.Peers.Value.Unanswered {
		if p.Kind != host.PeerShim && (p.Dial == host.DialSilent || p.Default) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b host.Peer) int { return worth(b) - worth(a) })
	return all
}

// worth orders plugins by what depends on them, and those that are stopped before those that may be slow.
func worth(p host.Peer) int {
	return ifElse(p.Default, 2, 0) + ifElse(peerStopped(p), 1, 0)
}

func peerStopped(p host.Peer) bool { return facts.IsStopped(&host.Process{State: p.State}) }

func recognisePluginHung(f *facts.Facts) *Finding {
	all := badPlugins(f)
	if len(all) == 0 {
		return recogniseMissing(f)
	}
	var e checks.Evidence
	var subjects []checks.Subject
	var effect []string
	for _, d := range f.Pods.Missing {
		Addf(&e.For, "%s", missingLine(f, d))
	}
	for _, p := range all {
		Addf(&e.For, "%s", pluginLine(f, p))
		subjects = append(subjects, pluginSubject(f, p))
		lines := []string{pluginEffects[p.Kind]}
		if p.Default {
			lines = append(besides(f, "no pod can start"), "the runtime makes the file system of every container with it")
		}
		if !slices.Contains(effect, lines[0]) {
			effect = append(effect, lines...)
		}
	}
	first, step := all[0], checks.Fair
	switch {
	case peerStopped(first):
		step = checks.Certain
	case first.Default:
		step = checks.Strong
	}
	slow := f.Pressure.Crowded && first.Dial == host.DialSilent && !peerStopped(first)
	addIf(slow, &e.Against, "tasks wait for a CPU: it may only be slow")
	addIf(first.PID == 0 && first.Dial == host.DialSilent, &e.Missing, "which process listens there")
	step = raised(step, fromLog(f, &e.For, signsOfPlugins...))
	return newFinding(criticalIf(first.Default), step, pluginLine(f, first)+andMore(len(all)-1, "plugin"), e,
		subjects...).affects(effect...).advise(func(s *Steps, _ string) {
		for i, p := range top(all) {
			advisePlugin(f, s, p, subjects[i])
		}
	})
}

// recogniseMissing returns the finding about drivers that are not registered with the kubelet; nil without any.
func recogniseMissing(f *facts.Facts) *Finding {
	var e checks.Evidence
	var subjects []checks.Subject
	var kinds []string
	for _, d := range f.Pods.Missing {
		Addf(&e.For, "%s", missingLine(f, d))
		subjects = append(subjects, checks.Subject{Kind: d.Kind + " driver", ID: d.Name, Name: facts.Clean(d.Name)})
		kinds = append(kinds, d.Kind)
	}
	if len(subjects) == 0 {
		return nil
	}
	Addf(&e.Missing, "whether its pod runs on this node")
	effect := "pods that need it do not start" +
		ifElse(slices.Contains(kinds, "DRA"), ", and those that have its devices do not go", "")
	first := f.Pods.Missing[0]
	return newFinding(checks.Warning, checks.Strong, missingLine(f, first)+andMore(len(subjects)-1, "driver"), e,
		subjects...).affects(effect).advise(func(s *Steps, _ string) {
		s.Look("ls -l /var/lib/kubelet/plugins_registry", "See which drivers have a socket for their registration")
		s.lookPods("Find the driver's pod on this node: it must run; its log says why it did not register")
		s.lookIf(first.Kind == "CSI", `kubectl get csinode "$(hostname)" -o yaml`, "See which CSI drivers are registered")
	})
}

// missingLine says which driver is not registered, and since when pods wait for it.
func missingLine(f *facts.Facts, d facts.MissingDriver) string {
	line := textf("the %s driver %s is not registered with the kubelet", d.Kind, facts.Clean(d.Name))
	if len(d.Pods) > 0 {
		line += ": " + firstOf(d.Pods, facts.Clean, "pod") + units.Plural(len(d.Pods), " waits", " wait") + " for it"
	}
	return line + ", " + facts.SinceText(f, d.Since)
}

// signsOfPlugins are the records of calls that need a plugin.
var signsOfPlugins = []logSign{{signature.CreateFailed, true, true, "the kubelet cannot create pods or containers"}}

// pluginLine says which plugin does not answer, and how that shows.
func pluginLine(f *facts.Facts, p host.Peer) string {
	name := textf("the %s at %s", p.Kind, facts.Clean(p.Path))
	if p.Kind == host.PeerProxy {
		name = textf("containerd's proxy plugin %s", facts.Clean(p.Name))
	}
	if p.PID > 1 {
		name += ", " + processOwned(f, p.PID, p.Comm, p.Owner) + ","
	}
	switch {
	case peerStopped(p):
		return name + " is stopped"
	case p.Dial == host.DialRefused:
		return name + " is gone: connecting to " + facts.Clean(p.Path) + " is refused"
	case p.Dial == host.DialMissing:
		return name + " is gone: its socket " + facts.Clean(p.Path) + " does not exist"
	}
	return name + " accepts connections and answers nothing for 1s"
}

func pluginSubject(f *facts.Facts, p host.Peer) checks.Subject {
	if p.PID == 0 {
		return checks.Subject{Kind: "Socket", ID: p.Path, Name: p.Name}
	}
	s := processSubject(f, p.PID, p.Comm, p.Owner.PodUID)
	s.Processes = []checks.Process{facts.ProcessOf(f, host.Process{PID: p.PID, Name: p.Comm, State: p.State})}
	return s
}

// advisePlugin adds what makes a plugin answer.
func advisePlugin(f *facts.Facts, s *Steps, p host.Peer, subject checks.Subject) {
	process := host.Process{PID: p.PID, Name: p.Comm, State: p.State}
	if p.PID > 1 {
		s.lookStack(p.PID, textf("Look where %v waits", process))
	} else {
		command := "ss -xlp" // for a path that no command may hold
		if facts.SafePath.MatchString(p.Path) {
			command = textf("ls -l %s; ss -xlp | grep -F %[1]s", p.Path)
		}
		s.Look(command, "Find out who should listen there")
	}
	if p.PID > 1 && peerStopped(p) {
		s.resume(process)
	}
	deletePodOf(f, s, subject)
	if facts.Safe(p.Owner.Unit) {
		s.Look("systemctl status --no-pager "+p.Owner.Unit, "Check since when it runs, and its last records")
		s.Add(checks.TouchesProcess, "systemctl restart "+p.Owner.Unit, "Restart the plugin; pods that run keep running")
	} else if p.Kind == host.PeerProxy && p.PID == 0 {
		s.Look("systemctl list-units --no-pager '*snapshotter*' '*stargz*' '*nydus*'", "Find the unit that serves it")
	}
}

// snapshotterHung holds when the snapshotter of all pods does not answer.
func snapshotterHung(f *facts.Facts) bool {
	all := badPlugins(f)
	return len(all) > 0 && all[0].Default
}

// snapshotterHoldsStart holds when a daemon starts and the snapshotter of all pods does not answer.
func snapshotterHoldsStart(f *facts.Facts) bool {
	return snapshotterHung(f) && len(f.Seen.Peers.Value.Starting) > 0
}
