package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func networkNotReady() Definition {
	return Definition{
		Code:  codeNetworkNotReady,
		Title: "the runtime has no usable network",
		Means: "The runtime answers and reports NetworkReady=false: it found no CNI configuration, could not load it, or its plugin says that it is unhealthy. " +
			"Usually the network add-on's pod has not written its file yet, was removed, or cannot run on this node.\n\n" +
			"The node is NotReady with \"container runtime network not ready\", but this is not PLEG: the kubelet goes on " +
			"working, pods on the host's network start, running pods keep their network. New pods with their own network do not start.",
		Confirm: []string{
			"crictl info: the message of NetworkReady.",
			"ls -l /etc/cni/net.d: is there a .conf, .conflist or .json, and which is the first by name?",
			"ls /opt/cni/bin: is the plugin there that the file names?",
			"kubectl get pods -n kube-system -o wide: does the network add-on run on this node?",
		},
		Fix: []string{
			"Repair the network add-on's pod on this node (its image, its token, its host mounts); it writes the configuration itself.",
			"Remove a broken file that sorts before the right one in /etc/cni/net.d.",
			"containerd watches the folder and picks the change up; if it does not, restart the runtime.",
		},
		Mistaken: "PLEG troubles: here the kubelet's loop does not skip, and PLEG is healthy. CNIHung: there Status does not answer at all. " +
			"A node that has just joined shows this for a minute or two: wait for the add-on.",
		Sources: []string{
			"kubelet: NetworkReady in updateRuntimeUp, pkg/kubelet/kubelet.go",
			"containerd: \"cni plugin not initialized\", \"failed to load cni during init\"; CRI-O: \"CNI plugin unhealthy beyond grace period\"",
		},
		recognise: recogniseNetworkNotReady,
	}
}

func recogniseNetworkNotReady(f *Facts) *Cause {
	if !f.connected() || f.Measurement.Status == nil {
		return nil
	}
	status := f.Measurement.Status
	condition, ok := status.Condition(conditionNetworkReady)
	_, runtimeReported := status.Condition(conditionRuntimeReady)
	var e Evidence
	var summary string
	step := Certain
	switch {
	case !ok && !runtimeReported:
		return nil // an empty Status says nothing about the network: RuntimeNotReady
	case !ok:
		addf(&e.For, "Status answered with %s and none of them is NetworkReady; the kubelet takes that for not ready",
			units.Count(len(status.Conditions), "condition"))
		summary, step = fmt.Sprintf("%s does not report NetworkReady", f.daemon().Label), Strong
	case condition.Status:
		return nil
	default:
		addf(&e.For, "%s", conditionLine(condition))
		summary = fmt.Sprintf("the runtime's network is not ready: %s", conditionWhy(condition))
	}
	if why := f.cniEvidence(&e); why != "" {
		summary += "; " + why
	}
	step = raised(step, f.hearNetwork(&e))
	c := newCause(codeNetworkNotReady, Critical, step, summary, e)
	c.Subject = f.socketSubject()
	var s steps
	if !f.otherEndpoint() {
		c.Subject = &Subject{Kind: "Filesystem", ID: f.cniFolders()[0], Name: "CNI configuration"}
		s.add(TouchesNothing, "ls -l "+strings.Join(f.cniFolders(), " "), "Is there a configuration, and the plugin that it names?")
	}
	s.add(TouchesNothing, f.crictlCommand("info"), "What the runtime says about its network, and which configuration it loaded.")
	s.add(TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`,
		"Does the network add-on run here? It writes the configuration.")
	f.addRestart(&s)
	c.NextSteps = s.done()
	return c
}

// networkReady reports whether the runtime says that its network is ready.
func (f *Facts) networkReady() bool {
	if !f.connected() || f.Measurement.Status == nil {
		return false
	}
	c, ok := f.Measurement.Status.Condition(conditionNetworkReady)
	return ok && c.Status
}

// passedOver reports whether the first file cannot be used and the runtime takes another one: containerd does not, CRI-O does.
func (f *Facts) passedOver(c kubelet.CNI) bool {
	return c.Problem != "" && len(c.Others) > 0 && f.unit() == "crio"
}

// cniFolders are the folders of configuration and plugins, safe to paste, the first that of the configuration.
func (f *Facts) cniFolders() []string {
	n := f.seen().CNI.Value
	folders := append([]string{or(n.ConfDir, "/etc/cni/net.d")}, n.BinDirs...)
	if len(n.BinDirs) == 0 {
		folders = append(folders, "/opt/cni/bin")
	}
	if slices.ContainsFunc(folders, func(p string) bool { return !safePath.MatchString(p) }) {
		return []string{"/etc/cni/net.d", "/opt/cni/bin"}
	}
	return folders
}

// cniEvidence adds what lies in the folders of the network's configuration, and returns what is wrong with it in a few words.
func (f *Facts) cniEvidence(e *Evidence) string {
	look := f.seen().CNI
	n := look.Value
	if f.otherEndpoint() {
		addf(&e.Missing, "where this runtime has its CNI configuration: it is not the kubelet's, and its own settings were not read")
		return ""
	}
	if !look.OK {
		addf(&e.Missing, "the CNI configuration (/etc/cni/net.d) and plugins (/opt/cni/bin) were not read")
	}
	switch {
	case n.Problem != "" && n.File == "":
		addf(&e.For, "%s", clean(n.Problem))
		return "no configuration is in " + clean(n.ConfDir)
	case f.passedOver(n):
		addf(&e.For, "%s cannot be used: CRI-O passes over it and tries %s", clean(n.File), clean(units.List(head(n.Others, topHeaps))))
	case n.Problem != "":
		addf(&e.For, "no configuration in %s can be used: %s", clean(n.ConfDir), clean(n.Problem))
		return "no configuration in " + clean(n.ConfDir) + " can be used"
	case len(n.Missing) > 0:
		plugins := clean(units.List(head(n.Missing, topHeaps)))
		addf(&e.For, "%s needs %s, which %s not in %s", clean(n.File), plugins, verb(len(n.Missing), "is", "are"), clean(strings.Join(n.BinDirs, " or ")))
		return "the plugin " + clean(n.Missing[0]) + " is not there"
	case look.OK && n.File != "" && len(n.BinDirs) == 0:
		addf(&e.Missing, "the plugins that %s names: none of their usual folders is there", clean(n.File))
	case look.OK && n.File != "":
		addf(&e.For, "the configuration %s and its plugins (%s) are there: what is wrong is behind them", clean(n.File), clean(units.List(head(n.Plugins, maxRelated))))
	}
	return ""
}
