package kuberuntime

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An initStep is the state of one init container in the pod's initialisation.
type initStep int

const (
	waits    initStep = iota // it runs, or is about to
	finishes                 // it succeeded, or is a sidecar that has started
	fails                    // it failed and is not restarted, so that the pod fails
)

// initContainers decides on the init containers and returns whether the pod is initialised.
//
// It goes from the last to the first. The last one with a status shows how far the pod is: those before it have
// succeeded, even if they were collected since. Of those only sidecars still matter.
func (in actionInput) initContainers(a *PodActions) bool {
	all := in.pod.Spec.InitContainers
	if len(all) == 0 {
		return true
	}
	initialised := in.regularAlive()
	past := initialised // every init container from here to the first has been started once
	for i, c := range slices.Backward(all) {
		s := in.status.Find(c.Name)
		if past && !pod.IsSidecar(&all[i]) {
			continue
		}
		if s == nil {
			if past { // a sidecar whose dead instances were removed
				a.InitToStart = append(a.InitToStart, i)
			}
			continue
		}
		switch in.initContainer(a, i, s) {
		case fails:
			a.end()
			return false
		case finishes:
			switch {
			case i == len(all)-1:
				initialised = true
			case !past:
				a.InitToStart = append(a.InitToStart, i+1)
			}
		case waits:
		}
		past = true
	}
	if !past {
		a.InitToStart = append(a.InitToStart, 0)
	}
	slices.Sort(a.InitToStart)
	return initialised
}

// regularAlive reports whether a regular container proves that the init containers are done. One that exited does not:
// it may belong to an earlier sandbox.
func (in actionInput) regularAlive() bool {
	return slices.ContainsFunc(in.pod.Spec.Containers, func(c v1.Container) bool {
		s := in.status.Find(c.Name)
		return s != nil && (s.State == container.Created || s.State == container.Running)
	})
}

// initContainer decides on one init container with a status.
func (in actionInput) initContainer(a *PodActions, i int, s *container.Status) initStep {
	c := &in.pod.Spec.InitContainers[i]
	again := func() { a.InitToStart = append(a.InitToStart, i) }
	switch {
	case s.State == container.Created:
		again() // starting it failed
	case s.State == container.Running:
		if pod.IsSidecar(c) {
			return in.sidecar(a, i, s)
		}
	case s.State == container.Exited && pod.IsSidecar(c):
		again()
	case s.State == container.Exited:
		if s.ExitCode == 0 && s.Reason != "OOMKilled" {
			return finishes
		}
		if !ShouldStart(in.pod, c, s) {
			return fails
		}
		again()
	default: // unknown; without an exit code its restart rules do not apply
		if pod.RestartPolicy(in.pod, c) == v1.RestartPolicyNever {
			return fails
		}
		a.kill(s, reasonUnknown, "Init container is in %q state, try killing it before restart", s.State)
		again()
	}
	return waits
}

// sidecar decides on a sidecar that runs. The next container waits for its startup probe, but not for its liveness
// probe.
func (in actionInput) sidecar(a *PodActions, i int, s *container.Status) initStep {
	c := &in.pod.Spec.InitContainers[i]
	if c.StartupProbe != nil {
		failed, known := in.startup(s.ID)
		if failed && known {
			a.kill(s, reasonStartupProbe, "Init container %s failed startup probe", c.Name)
			a.InitToStart = append(a.InitToStart, i)
		}
		if failed || !known {
			return waits
		}
	}
	switch {
	case s.Hash != ContainerHash(c):
		a.kill(s, reasonUnknown, "Init container %s definition changed", c.Name)
		a.InitToStart = append(a.InitToStart, i)
	case c.LivenessProbe != nil && hasFailed(in.liveness, s.ID):
		a.kill(s, reasonLivenessProbe, "Init container %s failed liveness probe", c.Name)
		a.InitToStart = append(a.InitToStart, i)
	}
	return finishes
}
