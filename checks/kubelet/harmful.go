package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Beyond these a setting harms. A default, of Kubernetes or of a distribution, never does.
const (
	// plegThreshold is relistThreshold of pkg/kubelet/pleg upstream: one call that hangs for as long makes PLEG
	// unhealthy.
	plegThreshold = 3 * time.Minute
	// shortestRequest is a quarter of the default. A list or a StopContainer of a busy runtime takes several seconds.
	shortestRequest = 30 * time.Second
	// mostPods is the default of EKS on its largest machines (eni-max-pods.txt of awslabs/amazon-eks-ami). GKE
	// allows 256, AKS and OpenShift 250; Kubernetes is tested with 110 pods on a node.
	mostPods = 737
	// longestLease is twice the default: a lease is renewed each quarter of its duration, and
	// node-monitor-grace-period was 40 s until Kubernetes 1.31 and is 50 s since (kubernetes/kubernetes#126287), so
	// one renewal that is late tips the node.
	longestLease = 80
)

const evented = "This alpha feature has started containers twice and broken static pods " +
	"(kubernetes/kubernetes#121003, kubernetes/kubernetes#122697), " +
	"and up to Kubernetes 1.36 PLEG is called unhealthy after 10 minutes only."

// unevicted says what happens without a threshold, by signal.
var unevicted = map[string]string{
	"memory.available": "The kubelet evicts nothing before memory runs out: " +
		"the kernel kills instead, whatever it finds.",
	"nodefs.available": "The kubelet neither frees the disk nor evicts before it is full, " +
		"and then runtime and kubelet fail with it.",
	"nodefs.inodesFree": "The kubelet neither frees inodes nor evicts before there are none, " +
		"and then no file can be made.",
}

// harmful names the settings that harm, and how.
func harmful(s *Settings) []Setting {
	var out []Setting
	add := func(name string, value any, harm string, args ...any) {
		out = append(out, Setting{Name: name, Value: fmt.Sprint(value), Harm: fmt.Sprintf(harm, args...)})
	}
	for _, signal := range s.EvictionOff { // by name
		if harm := unevicted[signal]; harm != "" && s.Own == "" {
			add("evictionHard."+signal, cmp.Or(oneLine(s.EvictionHard[signal]), "not named"), "%s", harm)
		}
	}
	if s.EventedPLEG {
		add("featureGates.EventedPLEG", true, evented)
	}
	if s.MaxPods > mostPods {
		add("maxPods", s.MaxPods,
			"The relist asks for the pods that changed one after the other; Kubernetes is tested with 110 on a node.")
	}
	if s.LeaseSeconds > longestLease {
		every := time.Duration(s.LeaseSeconds) * time.Second / 4
		add("nodeLeaseDurationSeconds", s.LeaseSeconds, "The lease is renewed each %s only, "+
			"and the node is Unknown after 40 s (50 s since Kubernetes 1.32) without it.", every)
	}
	switch t := s.RequestTimeout; {
	case t >= plegThreshold:
		add("runtimeRequestTimeout", t,
			"One CRI call that hangs holds the relist past PLEG's threshold of %s.", plegThreshold)
	case t < shortestRequest:
		add("runtimeRequestTimeout", t,
			"Calls that a busy runtime still works on are ended after %s and begun again.", t)
	}
	return out
}

// hasRancherEviction reports whether the thresholds are those that K3s and RKE2 give to their kubelets (kubeletArgs
// in pkg/daemons/agent of K3s, which RKE2 uses too), whose kubeconfig is recognisable.
func hasRancherEviction(s *Settings) bool {
	return strings.HasSuffix(s.Kubeconfig, "/agent/kubelet.kubeconfig") &&
		maps.Equal(s.EvictionHard, map[string]string{"imagefs.available": "5%", "nodefs.available": "5%"})
}
