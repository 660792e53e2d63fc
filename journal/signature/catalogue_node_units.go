package signature

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

// acts makes a form of each unit name for messages such as "Started kubelet: The Kubernetes Node Agent.".
func acts(lead ...string) []form {
	var forms []form
	for _, n := range unitNames() {
		if len(n.text) < window {
			continue // found by its description
		}
		forms = append(forms, form{has: n.text, lead: lead, role: true})
	}
	return forms
}

func ofUnits(literals ...string) []form {
	forms := all(literals...)
	for i := range forms {
		forms[i].role = true
	}
	return forms
}

// unitEntries are what systemd says about the units of the kubelet and the runtime.
func unitEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: UnitStarted, Lane: Node, Marker: Start,
				Title:    "systemd started the kubelet or the runtime",
				Means:    "The unit is up, by systemd's view.",
				Versions: "All; with the unit's name in front of its description from systemd 249 if so configured. Also supervisord.",
				Sources:  []string{"src/core/job.c (systemd)"},
			},
			forms: join(acts("Started "), all("Started Kubelet"), supervised("entered RUNNING state")), reads: readUnit,
		},
		{
			Signature: Signature{
				Code: UnitStopped, Lane: Node, Marker: Stop,
				Title:    "systemd stopped the kubelet or the runtime",
				Means:    "Somebody, or a failure, ended the unit. A stop takes several such lines.",
				Versions: "All.",
				Implies:  []string{"KubeletDown", "RuntimeDown"},
				Sources:  []string{"src/core/job.c (systemd)", "src/core/unit.c (systemd)"},
			},
			forms: join(acts("Stopped ", "Stopping "), all("Stopped Kubelet",
				"Stopping Kubelet"), ofUnits("Deactivated successfully"), supervised("INFO exited: ")), reads: readUnit,
		},
		{
			Signature: Signature{
				Code: UnitFailed, Lane: Node, Marker: Error,
				Title: "the kubelet or the runtime ended with a failure",
				Means: "How its main process ended: status=6/ABRT is the watchdog or an abort, 9/KILL the OOM killer or a person, " +
					"255/EXCEPTION or 1/FAILURE its own error.",
				Versions: "All.",
				Implies:  []string{"KubeletCrashLooping", "KubeletDown", "RuntimeDown"},
				Sources:  []string{"src/core/service.c (systemd)"},
			},
			forms: join(
				unless([]string{"status=0/SUCCESS"}, ofUnits("ain process exited, code=")),
				ofUnits("ailed with result '", "entered failed state", "tart request repeated too quickly"),
				acts("Failed to start "), all("Failed to start Kubelet"),
			),
			reads: readUnit,
		},
		{
			Signature: Signature{
				Code: UnitRestarted, Lane: Node, Marker: Restart,
				Title:    "systemd restarts the kubelet or the runtime",
				Means:    "The unit ended and its Restart= brings it back. A growing counter is a crash loop.",
				Versions: "All; the counter from systemd 239.",
				Implies:  []string{"KubeletCrashLooping"},
				Sources:  []string{"src/core/service.c (systemd)"},
			},
			forms: ofUnits("cheduled restart job", "scheduling restart"), reads: readUnit,
		},
		{
			Signature: Signature{
				Code: WatchdogTimeout, Lane: Node, Marker: Error,
				Title: "systemd's watchdog fired",
				Means: "The unit did not report in time; systemd kills it with SIGABRT, so a goroutine dump follows. For the kubelet that " +
					"comes about five minutes after its sync loop stood still.",
				Versions: "All, for units with WatchdogSec; the kubelet from 1.32.",
				Implies:  []string{"KubeletStalled", "KubeletCrashLooping"},
				Sources:  []string{"src/core/service.c (systemd)"},
			},
			forms: all("atchdog timeout (limit"), reads: readUnit,
		},
		{
			Signature: Signature{
				Code: UnitOOMKilled, Lane: Node, Marker: Error,
				Title:    "a process of a unit was killed for memory",
				Means:    "systemd saw the OOM killer at work in one of its units, of any kind.",
				Versions: "systemd 243 on.",
				Implies:  []string{"OOMKilled"},
				Sources:  []string{"src/core/unit.c (systemd)"},
			},
			forms: all("killed by the OOM killer", "result 'oom-kill'"), reads: readUnit,
		},
	}
}

// supervised makes forms for supervisord, which ran the kubelet of early clusters.
func supervised(literal string) []form {
	return []form{{has: literal, and: []string{" INFO "}, role: true}}
}
