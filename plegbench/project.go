package plegbench

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// Churn: how many pods change at once in a rollout. A tenth of a node is what deployments and drains move together; on
// a small node it is a handful.
const (
	churnShare = 10 // one pod in ten
	churnLeast = 10
)

// A projection computes the duration of a kubelet's relist from a measurement. Everything in a
// relist is serial: both lists, then, pod by pod, the status of its sandboxes and then of its containers. An answer
// other than OK and NotFound ends the pod's inspection and has it inspected again in the next relist.
type projection struct {
	timeout time.Duration // the kubelet's deadline for one call
	lists   listCost
	pods    map[string]*podCost // by UID, of all pods in the lists
	changed []string            // UIDs
	typical [strata]answers
}

// A listCost is the cost of the lists of one relist.
type listCost struct {
	cost     time.Duration
	known    bool
	answered bool // else the relist ended there
}

// A podCost is the cost of inspecting one pod.
type podCost struct {
	cost    time.Duration
	bad     bool        // the inspection ends with an error
	unknown bool        // cost leaves out objects of a kind of which no status was answered
	guessed [strata]int // objects of which cost has the mean of others
}

func newProjection(m *Measurement, timeout time.Duration) *projection {
	p := &projection{timeout: timeout, changed: m.ChangedPods}
	p.lists = p.relistLists(m.Samples)
	if p.lists.answered && m.Sandboxes != nil && m.Containers != nil {
		p.inspections(m)
	}
	return p
}

// relistLists returns the median cost of the samples' lists for a kubelet. Samples whose lists failed
// at once or were cut short do not count.
func (p *projection) relistLists(samples []Sample) listCost {
	var costs []listCost
	for _, s := range samples {
		if c := p.listCost(s); c.known {
			costs = append(costs, c)
		}
	}
	if len(costs) == 0 {
		return listCost{}
	}
	slices.SortFunc(costs, func(a, b listCost) int { return cmp.Compare(a.cost, b.cost) })
	return costs[(len(costs)-1)/2] // nearest rank
}

// listCost is the cost of one sample's lists. The container list is not made when the sandbox list hangs.
func (p *projection) listCost(s Sample) listCost {
	switch {
	case p.hangs(s.Sandboxes):
		return listCost{cost: p.timeout, known: true}
	case s.Sandboxes.OK() && p.hangs(s.Containers):
		return listCost{cost: s.Sandboxes.Elapsed + p.timeout, known: true}
	case s.OK():
		return listCost{cost: s.Elapsed(), known: true, answered: true}
	}
	return listCost{}
}

// hangs reports whether the call would have reached the kubelet's timeout.
func (p *projection) hangs(c crictl.Call) bool {
	return c.Hung() || answered(c) && c.Elapsed >= p.timeout
}

// inspections sets the cost of every pod.
func (p *projection) inspections(m *Measurement) {
	p.typical = answersOf(m.Sweep.Inspections)
	calls := make(map[string]*crictl.Call, len(m.Sweep.Inspections))
	for i := range m.Sweep.Inspections {
		if in := &m.Sweep.Inspections[i]; in.Call.Code != "" {
			calls[in.ID] = &in.Call
		}
	}
	p.pods = map[string]*podCost{}
	for uid, objects := range objectsOf(m) {
		p.pods[uid] = p.walk(objects, calls)
	}
}

// callCost returns how long the kubelet would have waited for a call. A call that was cut short counts at least as long
// as it took, and as long as the mean of others.
func (p *projection) callCost(c crictl.Call, mean time.Duration) time.Duration {
	switch {
	case p.hangs(c):
		return p.timeout
	case c.Code == crictl.Canceled:
		return min(max(c.Elapsed, mean), p.timeout)
	}
	return min(c.Elapsed, p.timeout)
}

// aborts reports whether the call's outcome ends the inspection of its pod.
func (p *projection) aborts(c crictl.Call) bool {
	return p.hangs(c) || failed(c)
}

// objectsOf returns the objects of each pod, by its UID, in the order in which a kubelet asks about them.
func objectsOf(m *Measurement) map[string][]target {
	pods := map[string][]target{}
	for _, t := range listed(m.Sandboxes, m.Containers) {
		if pod := t.pod(); pod != nil {
			pods[pod.UID] = append(pods[pod.UID], t)
		}
	}
	for _, objects := range pods {
		slices.SortFunc(objects, kubeletOrder)
	}
	return pods
}

// kubeletOrder puts sandboxes first, of the newest attempt first, and then containers, the newest first.
func kubeletOrder(a, b target) int {
	switch {
	case a.sandbox == nil && b.sandbox == nil:
		return newestFirst(a, b)
	case a.sandbox == nil:
		return 1
	case b.sandbox == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(b.sandbox.Attempt, a.sandbox.Attempt), newestFirst(a, b))
}

// walk inspects the objects of one pod in turn, until the end or the first error. An object that was not asked about
// costs the mean of others like it, if that is known; one that hangs costs the kubelet's deadline.
func (p *projection) walk(objects []target, calls map[string]*crictl.Call) *podCost {
	c := &podCost{}
	for _, o := range objects {
		_, id := o.age()
		group := stratum(o.container != nil, o.runs())
		typical, call := p.typical[group], calls[id]
		if call == nil || call.Code == crictl.Canceled {
			c.guessed[group]++
		}
		if call == nil {
			c.cost += typical.mean
			c.unknown = c.unknown || typical.n == 0
			continue
		}
		c.cost += p.callCost(*call, typical.mean)
		c.unknown = c.unknown || typical.n == 0 && !p.hangs(*call)
		if c.bad = p.aborts(*call); c.bad {
			break
		}
	}
	return c
}

// known reports whether the cost of every pod is known.
func (p *projection) known() bool {
	for _, pod := range p.pods {
		if pod.unknown {
			return false
		}
	}
	return true
}

// now is a relist that inspects the changed pods and those that could not be inspected before. ok is false when the
// cost of the lists, or of one of those pods, is unknown.
func (p *projection) now() (cost time.Duration, ok bool) {
	if !p.lists.known || p.lists.answered && p.pods == nil {
		return 0, false
	}
	cost = p.lists.cost
	for _, pod := range p.touched() {
		if pod.unknown {
			return 0, false
		}
		cost += pod.cost
	}
	return cost, true
}

// all returns every pod.
func (p *projection) all() []*podCost { return slices.Collect(maps.Values(p.pods)) }

// touched returns the pods that a relist now inspects. Changed pods that are gone from the lists cost no call.
func (p *projection) touched() []*podCost {
	var pods []*podCost
	for uid, pod := range p.pods {
		if _, changed := slices.BinarySearch(p.changed, uid); changed || pod.bad {
			pods = append(pods, pod)
		}
	}
	return pods
}

// older is now for a kubelet up to 1.35.
func (p *projection) older() time.Duration {
	cost := p.lists.cost
	for _, pod := range p.touched() {
		inspection := p.lists.cost + pod.cost
		cost += inspection
		if pod.bad {
			cost += inspection
		}
	}
	return cost
}

// churn is a relist that inspects a tenth of the good pods, of average cost, and all the bad ones.
func (p *projection) churn() time.Duration {
	cost := p.lists.cost
	var good time.Duration
	count := 0
	for _, pod := range p.pods {
		if pod.bad {
			cost += pod.cost
			continue
		}
		good += pod.cost
		count++
	}
	if count == 0 {
		return cost
	}
	changing := min(max(churnLeast, (len(p.pods)+churnShare-1)/churnShare), count)
	return cost + time.Duration(float64(good)*float64(changing)/float64(count))
}

// cold is a relist that inspects every pod.
func (p *projection) cold() time.Duration {
	cost := p.lists.cost
	for _, pod := range p.pods {
		cost += pod.cost
	}
	return cost
}
