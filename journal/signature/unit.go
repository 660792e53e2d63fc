package signature

import (
	"slices"
	"strings"
)

// The systemd units that are, or hold, a kubelet or a container runtime: their names, or parts of these, and the
// descriptions by which systemd names them in its messages.
var (
	kubeletUnits = []string{
		"kubelet.service", "kubelite.service", "snap application microk8s.daemon-kube",
		"snap.kubelet-eks.daemon.service", "snap.kubelet.daemon.service", "snap application kubelet",
		"Kubernetes Node Agent", "Kubernetes Kubelet", "k3s.service", "k3s-agent.service", "Lightweight Kubernetes",
		"rke2-server.service", "rke2-agent.service", "Rancher Kubernetes Engine", "k0scontroller.service",
		"k0sworker.service", "Zero Friction Kubernetes", "edgecore.service", "origin-node.service",
		"atomic-openshift-node", "hyperkube.service",
	}
	runtimeUnits = []string{
		"containerd.service", "cri-docker.service", "containerd container runtime",
		"snap application microk8s.daemon-containerd", "docker.service", "Docker Application Container",
		"crio.service", "Container Runtime Interface for OCI", "Open Container Initiative Daemon",
		"CRI Interface for Docker",
	}
)

// knownUnit returns the first of these names for which is is true, and the role of its unit.
func knownUnit(is func(name string) bool) (name string, role Lane) {
	if i := slices.IndexFunc(kubeletUnits, is); i >= 0 {
		return kubeletUnits[i], Kubelet
	}
	if i := slices.IndexFunc(runtimeUnits, is); i >= 0 {
		return runtimeUnits[i], Runtime
	}
	return "", ""
}

// longUnitNames returns the names that are long enough to be searched for. The other units have a description that is.
func longUnitNames() []string {
	return slices.DeleteFunc(slices.Concat(kubeletUnits, runtimeUnits), func(n string) bool { return len(n) < window })
}

// readUnit reads systemd's message about a unit: its name, its role, and how it ended or which signal it got.
func readUnit(r *record, m *Match) {
	s := r.text
	m.Unit, m.Role = unitOf(s, len(s))
	if rest, ok := after(s, " messages from "); ok {
		unit := upTo(strings.TrimRight(rest, ". \n"), " \n")
		unit = unit[strings.LastIndexByte(unit, '/')+1:]
		m.Unit, m.Role = keep(unit), roleOf(unit)
	}
	if rest, ok := after(s, "process exited, "); ok {
		m.ErrorText = errorText(upTo(rest, "\n"))
	} else if rest, ok := after(s, "result '"); ok {
		m.ErrorText = errorText(upTo(rest, "'\n"))
	} else if rest, ok := after(s, "Sent signal "); ok {
		m.ErrorText = errorText(upTo(rest, " "))
	}
	if rest, ok := after(s, "timeout (limit "); ok {
		limit, _ := duration(strings.NewReplacer(" ", "", "min", "m").Replace(upTo(rest, ")"))) // "1min 30s"
		m.Seconds = limit.Seconds()
	}
}

// unitOf returns the unit that a record is about, and its role. The nearest name that ends before an offset comes
// first, since systemd's messages begin with it. Where only the description of a known unit stands, it returns that.
func unitOf(s string, at int) (name string, role Lane) {
	if before, ok := strings.CutSuffix(s[:min(at, len(s))], ": "); ok { // "kubelet.service: Deactivated"
		name = before[strings.LastIndexAny(before, " \t\n\"=]")+1:]
		switch name[strings.LastIndexByte(name, '.')+1:] {
		case "service", "scope", "slice", "mount":
			return keep(name), roleOf(name)
		}
	}
	for _, part := range []string{s[:min(at, len(s))], s} {
		name = unitBefore(part)
		if role = roleOf(name); role != "" {
			return keep(name), role
		}
	}
	if known, role := knownUnit(func(n string) bool {
		return strings.Contains(s, n) && !strings.HasSuffix(n, ".service")
	}); role != "" {
		return known, role
	}
	if containsAny(s, []string{"Started Kubelet", "Stopped Kubelet", "Stopping Kubelet", "Failed to start Kubelet"}) {
		return "Kubelet", Kubelet
	}
	if _, rest, ok := strings.Cut(s, " INFO "); ok { // supervisord: "INFO exited: kubelet (exit status 2)"
		_, name, _ = strings.Cut(rest, ": ")
		name = upTo(name, " ,\n")
		return keep(name), roleOf(name + ".service")
	}
	return keep(name), ""
}

// UnitLane returns the role of a unit, Kubelet, Runtime or empty, by its name or its description.
func UnitLane(name string) Lane {
	_, lane := unitOf(name, len(name))
	return lane
}

// unitBefore returns the last unit name in s.
func unitBefore(s string) string {
	end := -1
	for _, suffix := range [...]string{".service", ".scope", ".slice"} {
		if i := strings.LastIndex(s, suffix); i >= 0 {
			end = max(end, i+len(suffix))
		}
	}
	if end < 0 {
		return ""
	}
	begin := strings.LastIndexFunc(s[:end], func(r rune) bool {
		return r > 127 || !isWord(byte(r)) && !strings.ContainsRune(`.-@:\`, r)
	})
	return strings.Trim(s[begin+1:end], ":")
}

// roleOf returns the role of a unit by its name.
func roleOf(name string) Lane {
	name = strings.TrimPrefix(name, "snap.microk8s.daemon-")
	_, role := knownUnit(func(n string) bool { return n == name })
	return role
}
