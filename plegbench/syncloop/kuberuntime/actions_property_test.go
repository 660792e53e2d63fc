package kuberuntime

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomPod makes a pod and a state of the runtime that it may have, or may not.
func randomPod(r *rand.Rand) actionInput {
	p := testPod([]string{"a", "b", "c"}[:1+r.IntN(3)]...)
	withInit(p, []string{"i", "s", "j", "s2"}[:r.IntN(5)]...)
	p.Spec.RestartPolicy = pick(r, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if r.IntN(6) == 0 {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	st := &container.PodStatus{}
	for attempt := range r.IntN(3) {
		st.SandboxStatuses = slices.Insert(st.SandboxStatuses, 0, sandboxIs(uint32(attempt), pick(r, ready, notReady)))
	}
	liveness, startup := map[string]bool{}, map[string]bool{}
	specs := func(list []v1.Container) {
		for i := range list {
			c := &list[i]
			if r.IntN(2) == 0 {
				c.StartupProbe, c.LivenessProbe = &v1.Probe{}, &v1.Probe{}
			}
			if r.IntN(3) > 0 {
				state := pick(r, container.Created, container.Running, container.Exited, container.Unknown)
				s := containerIs(c.Name, state, r.IntN(2))
				if r.IntN(5) == 0 {
					s.Hash++
				}
				st.ContainerStatuses = append(st.ContainerStatuses, s)
			}
			for _, results := range []map[string]bool{liveness, startup} {
				if r.IntN(3) > 0 {
					results[c.Name] = r.IntN(2) == 0
				}
			}
		}
	}
	specs(p.Spec.InitContainers)
	specs(p.Spec.Containers)
	return actionInput{pod: p, status: st, liveness: probed(liveness), startup: probed(startup)}
}

// naiveRegular decides, without any sharing of rules, whether a regular container of an initialised pod is killed and
// started.
func naiveRegular(in actionInput, c v1.Container) (kill, start bool) {
	s := in.status.Find(c.Name)
	mayRestart := in.pod.Spec.RestartPolicy != v1.RestartPolicyNever
	if s != nil && s.State == container.Running {
		livenessFailed, known1 := in.liveness(s.ID)
		startupFailed, known2 := in.startup(s.ID)
		if s.Hash != ContainerHash(&c) {
			return true, true
		}
		if livenessFailed && known1 || startupFailed && known2 {
			return true, mayRestart
		}
		return false, false
	}
	if in.pod.DeletionTimestamp != nil {
		return false, false
	}
	if s == nil || s.State == container.Created {
		return false, true
	}
	if s.State == container.Unknown {
		return true, true
	}
	if in.pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return false, s.ExitCode != 0
	}
	return false, mayRestart
}

func TestActionsProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for range 10_000 {
		in := randomPod(r)
		a := computePodActions(in)
		for _, why := range broken(in, a) {
			t.Errorf("seed %d: %s\npolicy %s, deleted %v\nactions %v\nsandboxes %v\ncontainers %s",
				seed, why, in.pod.Spec.RestartPolicy, in.pod.DeletionTimestamp != nil, a, in.status.SandboxStatuses,
				cmp.Diff(nil, in.status.ContainerStatuses))
		}
		if t.Failed() {
			return
		}
	}
}

// broken returns the rules that a decision breaks.
func broken(in actionInput, a PodActions) []string {
	var all []string
	must := func(ok bool, rule string) {
		if !ok {
			all = append(all, rule)
		}
	}
	starts := len(a.InitToStart) + len(a.ContainersToStart)
	must(!a.KillPod || a.CreateSandbox || starts == 0, "a pod that is only killed starts something")
	must(!a.KillPod || len(a.ContainersToKill) == 0, "a pod that is killed has single kills as well")
	must(!a.CreateSandbox || a.KillPod, "a sandbox is made without killing what was there")
	fromInit := cmp.Equal(a.InitToStart, []int{0}) && len(a.ContainersToStart) == 0
	must(len(in.pod.Spec.InitContainers) == 0 || !a.CreateSandbox || fromInit,
		"a new sandbox does not begin with the first init container")
	for _, list := range [][]int{a.InitToStart, a.ContainersToStart} {
		distinct := len(slices.Compact(slices.Clone(list))) == len(list)
		must(slices.IsSorted(list) && distinct, "starts are not in order, or twice")
	}
	killed := map[string]bool{}
	for _, k := range a.ContainersToKill {
		s := in.status.Find(k.Name)
		must(!killed[k.Name], "a container is killed twice")
		mayRun := s != nil && (s.State == container.Running || s.State == container.Unknown)
		must(mayRun && s.ID == k.ID, "what is killed does not run")
		must(k.Message != "", "a kill has no reason")
		killed[k.Name] = true
	}
	if a.KillPod {
		return all
	}
	must(starts > 0 || in.pod.DeletionTimestamp != nil || len(in.status.Running()) > 0,
		"a pod is neither killed nor started, and nothing runs")
	checkStarts := func(list []v1.Container, indices []int) {
		for _, i := range indices {
			s := in.status.Find(list[i].Name)
			mayRun := s != nil && (s.State == container.Running || s.State == container.Unknown)
			must(!mayRun || killed[list[i].Name], "a second instance is started")
		}
	}
	checkStarts(in.pod.Spec.InitContainers, a.InitToStart)
	checkStarts(in.pod.Spec.Containers, a.ContainersToStart)
	if len(in.pod.Spec.InitContainers) > 0 {
		return all
	}
	var wantStart []int
	var wantKill []string
	for i, c := range in.pod.Spec.Containers {
		kill, start := naiveRegular(in, c)
		if kill {
			wantKill = append(wantKill, c.Name)
		}
		if start {
			wantStart = append(wantStart, i)
		}
	}
	var gotKill []string
	for _, k := range a.ContainersToKill {
		gotKill = append(gotKill, k.Name)
	}
	must(cmp.Equal(wantStart, a.ContainersToStart, cmpopts.EquateEmpty()), "the naive rules start others")
	must(cmp.Equal(wantKill, gotKill, cmpopts.EquateEmpty()), "the naive rules kill others")
	return all
}

// TestActionsSettle applies decisions to a model of the runtime in which all that is started runs: it takes a few
// rounds until nothing is left to do, however the pod began.
func TestActionsSettle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 2))
	for range 2_000 {
		in := randomPod(r)
		in.startup = func(container.ID) (failed, known bool) { return false, true }
		in.liveness = in.startup
		settled := false
		for range 20 {
			a := computePodActions(in)
			if !a.CreateSandbox && len(a.InitToStart)+len(a.ContainersToStart)+len(a.ContainersToKill) == 0 {
				// Ordinary init containers that run are let finish; a pod without any is settled.
				if !finishInit(in) {
					settled = true
					break
				}
				continue
			}
			apply(in, a)
		}
		if !settled {
			t.Fatalf("seed %d: not settled: %v\n%s",
				seed, computePodActions(in), cmp.Diff(nil, in.status.ContainerStatuses))
		}
	}
}

func finishInit(in actionInput) bool {
	done := false
	for i := range in.pod.Spec.InitContainers {
		c := &in.pod.Spec.InitContainers[i]
		if s := in.status.Find(c.Name); s != nil && s.State == container.Running && !pod.IsSidecar(c) {
			s.State, s.ExitCode, done = container.Exited, 0, true
		}
	}
	return done
}

func apply(in actionInput, a PodActions) {
	if a.KillPod {
		for _, s := range in.status.ContainerStatuses {
			if s.State != container.Exited {
				s.State, s.ExitCode = container.Exited, 137
			}
		}
		for _, s := range in.status.SandboxStatuses {
			s.State = notReady
		}
	}
	if a.CreateSandbox {
		in.status.SandboxStatuses = slices.Insert(in.status.SandboxStatuses, 0, sandboxIs(a.Attempt, ready))
		in.status.ContainerStatuses = slices.DeleteFunc(in.status.ContainerStatuses, func(s *container.Status) bool {
			return pod.Container(in.pod.Spec.InitContainers, s.Name) != nil
		})
	}
	start := func(name string) {
		started := containerIs(name, container.Running, 0)
		in.status.ContainerStatuses = slices.Insert(in.status.ContainerStatuses, 0, started)
	}
	for _, k := range a.ContainersToKill {
		in.status.Find(k.Name).State = container.Exited
	}
	for _, i := range a.InitToStart {
		start(in.pod.Spec.InitContainers[i].Name)
	}
	for _, i := range a.ContainersToStart {
		start(in.pod.Spec.Containers[i].Name)
	}
}
