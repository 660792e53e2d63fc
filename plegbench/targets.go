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
	if sandboxes != nil {
		for i := range sandboxes.Sandboxes {
			s := &sandboxes.Sandboxes[i]
			if s.State == crictl.SandboxReady {
				ready = append(ready, target{sandbox: s})
			} else {
				notReady = append(notReady, target{sandbox: s, turn: later})
			}
		}
	}
	if containers != nil {
		for i := range containers.Containers {
			c := &containers.Containers[i]
			switch c.State {
			case crictl.ContainerRunning:
				running = append(running, target{container: c})
			case crictl.ContainerExited:
				exited = append(exited, target{container: c, turn: later})
			default:
				odd = append(odd, target{container: c, turn: soon})
			}
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
	listed := map[string]bool{}
	if sandboxes != nil {
		for i := range sandboxes.Sandboxes {
			listed[sandboxes.Sandboxes[i].ID] = true
		}
	}
	if containers != nil {
		for i := range containers.Containers {
			listed[containers.Containers[i].ID] = true
		}
	}
	has := complete(sandboxes, containers)
	var ts []target
	for _, kind := range []string{KindPodSandbox, KindContainer} {
		for i := range hints {
			h := &hints[i]
			if h.Kind == kind && !has[kind] && h.ID != "" && !listed[h.ID] {
				listed[h.ID] = true
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
	if sandboxes == nil || pod.Name == "" {
		return ""
	}
	for i := range sandboxes.Sandboxes {
		s := &sandboxes.Sandboxes[i]
		if s.State == crictl.SandboxReady && s.Pod.Namespace == pod.Namespace && s.Pod.Name == pod.Name &&
			(pod.UID == "" || s.Pod.UID == pod.UID) {
			return s.ID
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

func (t target) age() (created int64, id string) {
	if t.sandbox != nil {
		return t.sandbox.CreatedAt, t.sandbox.ID
	}
	return t.container.CreatedAt, t.container.ID
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
