package kuberuntime

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// ShouldStart is the kubelet's ShouldContainerBeRestarted: whether a container that may not run is to be started. It is given the
// newest instance, nil if there is none.
func ShouldStart(p *v1.Pod, c *v1.Container, s *container.Status) bool {
	switch {
	case p.DeletionTimestamp != nil:
		return false
	case s == nil:
		return true // never started, or collected
	case s.State == container.Running:
		return false
	case s.State == container.Exited:
		return pod.Restarts(p, c, int32(s.ExitCode))
	}
	return true // the runtime did not get beyond creating it, or does not know
}

// initFailed reports whether an init container that does not run did not do its work.
func initFailed(s *container.Status) bool {
	return s.Reason == "OOMKilled" || s.State == container.Exited && s.ExitCode != 0 || s.State == container.Unknown
}

// succeeded reports whether a container has ended well.
func succeeded(s *container.Status) bool {
	return s != nil && s.State == container.Exited && s.ExitCode == 0
}
