package crictl

import "time"

// A Source says where an endpoint came from. The values are those of the contract's endpointSource.
type Source string

// The sources in the order in which Discover consults them, and the simulated one.
const (
	SourceFlag      Source = "flag"
	SourceEnv       Source = "env"
	SourceKubelet   Source = "kubelet"
	SourceConfig    Source = "crictl.yaml"
	SourceWellKnown Source = "well-known"
	SourceSimulated Source = "simulated"
)

// An Endpoint is a runtime socket and the reason for asking there.
type Endpoint struct {
	URL    string // unix:///run/containerd/containerd.sock
	Source Source
	Reason string // one sentence for a person, such as "--container-runtime-endpoint of the running kubelet (pid 812)"
}

// Kubelet is what the running kubelet's command line and configuration file say that matters for judging a relist.
// Zero values mean that the kubelet does not say, and its defaults hold. A flag wins over the configuration file.
type Kubelet struct {
	PID              int
	Name             string        // of the process: kubelet, k3s-server, ...
	ConfigPath       string        // --config, as the kubelet sees it
	Endpoint         string        // --container-runtime-endpoint or containerRuntimeEndpoint
	EndpointFrom     string        // which of the two, or "built-in default" for a distribution that embeds its kubelet
	RequestTimeout   time.Duration // runtimeRequestTimeout; 0 means the default, 2m
	EventedPLEG      bool          // feature gate
	CRIListStreaming bool          // feature gate
	Unreadable       string        // why something of it could not be read; empty when all could
}
