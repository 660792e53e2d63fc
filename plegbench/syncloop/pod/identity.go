// Package pod holds the desired state: the pods that this node should run, with static pods and their mirrors kept
// apart. It also has what several parts of the syncLoop derive from a pod's object.
package pod

import (
	v1 "k8s.io/api/core/v1"
)

// Annotations of the kubelet (pkg/kubelet/types/pod_update.go upstream).
const (
	ConfigSourceAnnotation    = "kubernetes.io/config.source"
	ConfigHashAnnotation      = "kubernetes.io/config.hash"
	ConfigFirstSeenAnnotation = "kubernetes.io/config.seen"
	ConfigMirrorAnnotation    = v1.MirrorPodAnnotationKey
)

// Names of the sources.
const (
	FileSource      = "file"
	HTTPSource      = "http"
	APIServerSource = "api"
)

// systemCriticalPriority is the least priority of pods that are never evicted (scheduling.SystemCriticalPriority
// upstream).
const systemCriticalPriority = 2_000_000_000

// FullName is name_namespace, which a static pod and its mirror have in common.
func FullName(p *v1.Pod) string { return p.Name + "_" + p.Namespace }

// Format formats a pod as the kubelet's log lines do: namespace/name.
func Format(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// IsTerminal reports a phase that a pod does not leave.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodFailed || phase == v1.PodSucceeded }

// IsMirror reports whether a pod is the mirror of a static pod at the API server.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[ConfigMirrorAnnotation]
	return ok
}

// IsStatic reports whether a pod comes from a source other than the API server.
func IsStatic(p *v1.Pod) bool {
	source, ok := p.Annotations[ConfigSourceAnnotation]
	return ok && source != APIServerSource
}

// IsCritical reports whether a pod is never evicted: static, mirror, or of system-critical priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemCriticalPriority
}
