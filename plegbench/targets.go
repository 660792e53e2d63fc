package plegbench

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// Kinds of an Inspection and a Hint.
const (
	KindPodSandbox = "PodSandbox"
	KindContainer  = "Container"
)

// StateHinted is the state of an Inspection whose object was found on the host only.
const StateHinted = "hinted"

// hintTime is how long the search for hints may take.
const hintTime = 2 * time.Second

// A target is one object to inspect: exactly one of the pointers is set. Inspections, which are ten times as large,
// are made only of targets that are reached.
type target struct {
	sandbox   *crictl.PodSandbox
	container *crictl.Container
	hint      *Hint
	sandboxID string // of a hinted container, where the sandbox list contains it; its shim goes by that
	turn      turn
}

// A turn is when a target is asked about. Within a turn the order is random, so that those asked before the time is up
// are a fair sample of the rest, and no pod is asked about as a whole before the next.
type turn uint8

const (
	must turn = iota // inspected regardless of sweepBudget
	soon
	later
)

// order returns the order in which to ask about targets. shuffle is rand.Shuffle.
func order(ts []target, shuffle func(n int, swap func(i, j int))) []int {
	all := make([]int, len(ts))
	for i := range all {
		all[i] = i
	}
	shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(ts[a].turn, ts[b].turn) })
	return all
}

// listed returns targets of all objects in the lists, either of which may be nil.
func listed(sandboxes *crictl.PodSandboxList, containers *crictl.ContainerList) (all []target) {
	if sandboxes != nil {
		for i := range sandboxes.Sandboxes {
			all = append(all, target{sandbox: &sandboxes.Sandboxes[i]})
		}
	}
	if containers != nil {
		for i := range containers.Containers {
			all = append(all, target{container: &containers.Containers[i]})
		}
	}
	return all
}

// age returns when a listed object was created, and its id.
func (t target) age() (created int64, id string) {
	if t.sandbox != nil {
		return t.sandbox.CreatedAt, t.sandbox.ID
	}
	return t.container.CreatedAt, t.container.ID
}

// pod returns the pod of a listed object, or nil in a bundle from elsewhere.
func (t target) pod() *crictl.Pod {
	if t.sandbox != nil {
		return t.sandbox.Pod
	}
	return t.container.Pod
}

// runs reports whether a listed object is ready or running.
func (t target) runs() bool {
	if t.sandbox != nil {
		return t.sandbox.State == crictl.SandboxReady
	}
	return t.container.State == crictl.ContainerRunning
}

// inspection returns the inspection of t, without its call.
func (t target) inspection() Inspection {
	switch {
	case t.sandbox != nil:
		s := t.sandbox
		return Inspection{Kind: KindPodSandbox, ID: s.ID, SandboxID: s.ID, Pod: *s.Pod, State: s.State.String()}
	case t.container != nil:
		c := t.container
		return Inspection{
			Kind: KindContainer, ID: c.ID, SandboxID: c.SandboxID, Name: c.Name, Pod: *c.Pod,
			State: c.State.String(),
		}
	}
	h := t.hint
	i := Inspection{Kind: h.Kind, ID: h.ID, SandboxID: t.sandboxID, Name: h.Name, Pod: h.Pod, State: StateHinted}
	if h.Kind == KindPodSandbox {
		i.SandboxID = h.ID
	}
	return i
}

// targets returns the objects to inspect, sorted by turn: ready sandboxes, running containers and the newest exited,
// all of which are musts; then hinted objects that the lists lack and containers that were created or are unknown; then
// sandboxes that are not ready, and the rest of the exited. Within each kind, the newest come first. Either list may be
// nil.
func targets(sandboxes *crictl.PodSandboxList, containers *crictl.ContainerList, hints []Hint, newest int) []target {
	var ready, notReady, running, exited, odd []target
	for _, t := range listed(sandboxes, containers) {
		switch {
		case t.sandbox != nil && t.runs():
			ready = append(ready, t)
		case t.sandbox != nil:
			t.turn = later
			notReady = append(notReady, t)
		case t.runs():
			running = append(running, t)
		case t.container.State == crictl.ContainerExited:
			t.turn = later
			exited = append(exited, t)
		default:
			t.turn = soon
			odd = append(odd, t)
		}
	}
	for _, ts := range [][]target{ready, running, exited, odd, notReady} {
		slices.SortFunc(ts, newestFirst)
	}
	newest = min(newest, len(exited))
	for i := range newest {
		exited[i].turn = must
	}
	return slices.Concat(ready, running, exited[:newest], hinted(hints, sandboxes, containers), odd, notReady,
		exited[newest:])
}

// hinted returns the hints that incomplete lists lack, sandboxes first.
func hinted(hints []Hint, sandboxes *crictl.PodSandboxList, containers *crictl.ContainerList) []target {
	if len(hints) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, t := range listed(sandboxes, containers) {
		_, id := t.age()
		known[id] = true
	}
	has := complete(sandboxes, containers)
	var ts []target
	for _, kind := range []string{KindPodSandbox, KindContainer} {
		for i := range hints {
			h := &hints[i]
			if h.Kind == kind && !has[kind] && h.ID != "" && !known[h.ID] {
				known[h.ID] = true
				ts = append(ts, target{hint: h, sandboxID: readySandbox(h.Pod, sandboxes), turn: soon})
			}
		}
	}
	return ts
}

// complete returns the kinds of objects of which the list is there and complete.
func complete(sandboxes *crictl.PodSandboxList, containers *crictl.ContainerList) map[string]bool {
	return map[string]bool{
		KindPodSandbox: sandboxes != nil && sandboxes.Complete,
		KindContainer:  containers != nil && containers.Complete,
	}
}

// readySandbox returns the id of a pod's ready sandbox. The host often knows the pod's name only, not its UID.
func readySandbox(pod crictl.Pod, sandboxes *crictl.PodSandboxList) string {
	for _, t := range listed(sandboxes, nil) {
		if p := t.pod(); t.runs() && pod.Name != "" && p.Namespace == pod.Namespace && p.Name == pod.Name &&
			(pod.UID == "" || p.UID == pod.UID) {
			return t.sandbox.ID
		}
	}
	return ""
}

// newestFirst orders by time of creation, and by identifier where that is equal.
func newestFirst(a, b target) int {
	at, aid := a.age()
	bt, bid := b.age()
	return cmp.Or(cmp.Compare(bt, at), strings.Compare(aid, bid))
}

// hints searches for hints when a list is missing or incomplete.
func (m *measurer) hints(ctx context.Context) []Hint {
	has := complete(m.out.Sandboxes, m.out.Containers)
	if m.gone || ctx.Err() != nil || m.opts.Hints == nil || has[KindPodSandbox] && has[KindContainer] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	found, err := deadline.Run(ctx, "listing the runtime's objects on disk",
		func(ctx context.Context) ([]Hint, error) { return m.opts.Hints(ctx), nil })
	if err != nil {
		return nil // hints are optional
	}
	return found
}
