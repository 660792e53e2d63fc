package signature

import "strings"

// unitNames are the systemd units that are, or hold, a kubelet or a container runtime, and the descriptions by which
// systemd names them in its messages.
func unitNames() []unitName {
	return []unitName{
		{"kubelet.service", Kubelet},
		{"kubelite.service", Kubelet},
		{"snap application microk8s.daemon-kube", Kubelet},
		{"snap.kubelet-eks.daemon.service", Kubelet},
		{"snap.kubelet.daemon.service", Kubelet},
		{"snap application kubelet", Kubelet},
		{"Kubernetes Node Agent", Kubelet},
		{"Kubernetes Kubelet", Kubelet},
		{"k3s.service", Kubelet},
		{"k3s-agent.service", Kubelet},
		{"Lightweight Kubernetes", Kubelet},
		{"rke2-server.service", Kubelet},
		{"rke2-agent.service", Kubelet},
		{"Rancher Kubernetes Engine", Kubelet},
		{"k0scontroller.service", Kubelet},
		{"k0sworker.service", Kubelet},
		{"Zero Friction Kubernetes", Kubelet},
		{"edgecore.service", Kubelet},
		{"origin-node.service", Kubelet},
		{"atomic-openshift-node", Kubelet},
		{"hyperkube.service", Kubelet},
		{"containerd.service", Runtime},
		{"cri-docker.service", Runtime},
		{"containerd container runtime", Runtime},
		{"snap application microk8s.daemon-containerd", Runtime},
		{"docker.service", Runtime},
		{"Docker Application Container", Runtime},
		{"crio.service", Runtime},
		{"Container Runtime Interface for OCI", Runtime},
		{"Open Container Initiative Daemon", Runtime},
		{"CRI Interface for Docker", Runtime},
	}
}

// A unitName is a unit's name, or a part of it or of its description, and what the unit is.
type unitName struct {
	text string
	role Lane
}

// longUnitNames returns the names that are long enough to be searched for. The other units have a description that is.
func longUnitNames() []string {
	var out []string
	for _, n := range unitNames() {
		if len(n.text) >= window {
			out = append(out, n.text)
		}
	}
	return out
}

// readUnit reads systemd's message about a unit: its name, what it is, and how it ended or which signal it got.
func readUnit(s string, _ func() string, m *Match) {
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
	for _, part := range []string{s[:min(at, len(s))], s} {
		name = unitBefore(part)
		if role = roleOf(name); role != "" {
			return keep(name), role
		}
	}
	for _, n := range unitNames() {
		if strings.Contains(s, n.text) && !strings.HasSuffix(n.text, ".service") {
			return n.text, n.role
		}
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

// UnitLane returns what a unit is, Kubelet, Runtime or empty, by its name or its description.
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

// roleOf returns what a unit is by its name.
func roleOf(name string) Lane {
	name = strings.TrimPrefix(name, "snap.microk8s.daemon-")
	for _, n := range unitNames() {
		if name == n.text {
			return n.role
		}
	}
	return ""
}
