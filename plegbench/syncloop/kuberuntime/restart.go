package kuberuntime

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// isSidecar reports whether an init container keeps running beside the regular ones.
func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// policy is the restart policy of a container: its own, or else its pod's, which is Always if not set.
func policy(pod *v1.Pod, c *v1.Container) v1.RestartPolicy {
	switch {
	case c.RestartPolicy != nil:
		return v1.RestartPolicy(*c.RestartPolicy)
	case pod.Spec.RestartPolicy == "":
		return v1.RestartPolicyAlways
	}
	return pod.Spec.RestartPolicy
}

// restarts reports whether a container is started again after it ended with that code: by the first of its own rules that
// matches the code, or else by its policy.
func restarts(pod *v1.Pod, c *v1.Container, exitCode int) bool {
	if c.RestartPolicy != nil && slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		return matches(r.ExitCodes, int32(exitCode))
	}) {
		return true // both actions that a rule can have start the container again
	}
	switch policy(pod, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

func matches(codes *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, exitCode)
	switch codes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	}
	return false
}

// shouldStart is the kubelet's ShouldContainerBeRestarted: whether a container that may not run is to be started.
func shouldStart(pod *v1.Pod, c *v1.Container, s *container.Status) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		return false
	case s == nil:
		return true // never started, or collected
	case s.State == container.Running:
		return false
	case s.State == container.Exited:
		return restarts(pod, c, s.ExitCode)
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
