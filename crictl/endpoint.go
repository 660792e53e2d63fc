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
	Collection       Collection    // how it collects garbage, and where it keeps its pods
	Unreadable       string        // why something of it could not be read; empty when all could
}

// A Collection holds the settings by which a kubelet keeps and removes what is left of pods, and where it has them.
type Collection struct {
	// DeadPerContainer is --maximum-dead-containers-per-container; nil when not said, for which the kubelet takes 1. Below
	// 0 it removes nothing of a pod that it knows.
	DeadPerContainer *int
	MinAge           time.Duration // --minimum-container-ttl-duration, counted from a container's creation
	RootDir          string        // --root-dir; empty means /var/lib/kubelet
	StaticPodPath    string        // staticPodPath or --pod-manifest-path; empty when it runs no static pods from files
	StaticPodURL     string        // staticPodURL or --manifest-url; empty when it runs no static pods from there
	PodLogsDir       string        // podLogsDir; empty means /var/log/pods
	ReadOnlyPort     int           // of its HTTP server without authentication; 0 means none
}
