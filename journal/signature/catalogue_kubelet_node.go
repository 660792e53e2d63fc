package signature

// eventTroubles are the texts of lines that only quote an event which could not be delivered, maybe much later.
func eventTroubles() []string {
	return []string{
		"erver rejected event", "nable to write event", "ould not construct reference", "nable to construct event",
		"an't create event", "rror updating node status",
		"is posting ready status",
	}
}

// nodeStatusEntries are what the node's conditions say.
func nodeStatusEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: NodeNotReady, Lane: Kubelet, Marker: Error,
				Title: "node became NotReady",
				Means: "The Ready condition is False. Its message lists all reasons, not only the runtime's. A node that hangs in Version reports it " +
					"minutes late.",
				Versions: "All. Unstructured to 1.20; the condition is JSON from 1.24. Also events and rows of kubectl describe.",
				Sources:  []string{"pkg/kubelet/nodestatus/setters.go", "pkg/kubelet/kubelet_node_status.go"},
			},
			forms: unless(eventTroubles(), join(
				all("ode became not ready", "ecording NodeNotReady event", "status is now: NodeNotReady", "KubeletNotReady"),
				all("event=\"NodeNotReady\"", "\"event\":\"NodeNotReady\"", "reason=\"NodeNotReady\"", "\"reason\":\"NodeNotReady\""),
			)),
			reads: readUnhealthy,
		},
		{
			Signature: Signature{
				Code: NodeReady, Lane: Kubelet, Marker: Recovery,
				Title:    "node became Ready",
				Means:    "The Ready condition is True again. Text that only quotes the event inside an error is left out.",
				Versions: "All.",
				Sources:  []string{"pkg/kubelet/kubelet_node_status.go", "pkg/kubelet/kubelet.go"},
			},
			forms: unless(eventTroubles(), join(
				all("ecording NodeReady event", "status is now: NodeReady", "node status as it just became ready"),
				all("event=\"NodeReady\"", "\"event\":\"NodeReady\"", "reason=\"NodeReady\"", "\"reason\":\"NodeReady\""),
			)),
		},
		{
			Signature: Signature{
				Code: NodeShutdown, Lane: Kubelet, Marker: Stop,
				Title:    "the node is shutting down",
				Means:    "The kubelet has seen a shutdown begin: NotReady is meant.",
				Versions: "1.20 on.",
				Sources:  []string{"pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go"},
			},
			forms: all("node is shutting down", "hutdown manager detected new shutdown event"),
		},
	}
}
