package gc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A unit is what the kubelet calls an evict unit (kuberuntime_gc.go): all instances of one container of one pod.
type unit struct{ uid, name string }

// A planner holds the state of one Make.
type planner struct {
	node        *Node
	rules       Rules
	now         time.Time
	keep        int // per unit; < 0 means all
	pods        map[string]*podView
	sandboxByID map[string]int // index in Node.Sandboxes; -1 for an id that is listed twice
	views       []*podView     // by index in Node.Sandboxes; nil for a sandbox that is not a kubelet's
	left        map[string]int // containers that stay, by sandbox id
	twice       map[string]bool
	kept        map[string]int
	plan        Plan
	assumeEnded bool // Candidates: what is old enough by its creation has ended long ago
	whyExited   string
}

func newPlanner(node *Node, rules Rules, now time.Time) *planner {
	p := &planner{
		node: node, rules: rules, now: now, keep: keepNewest(node.Kubelet.Keep, rules.Keep),
		pods: map[string]*podView{}, sandboxByID: make(map[string]int, len(node.Sandboxes)),
		views: make([]*podView, len(node.Sandboxes)),
		left:  make(map[string]int, len(node.Sandboxes)), kept: map[string]int{},
	}
	if node.Pods == nil {
		node.Pods = &Liveness{}
	}
	p.plan = Plan{Remove: []Victim{}, Newest: max(p.keep, 0), Rules: rules, MadeAt: now}
	p.whyExited = fmt.Sprintf("exited; %d newer exited instances of it stay", p.keep)
	if p.keep == 1 {
		p.whyExited = "exited; a newer exited instance of it stays"
	}
	p.twice = listedTwice(node.Containers)
	p.viewSandboxes()
	p.viewContainers()
	return p
}

// keepNewest is how many exited instances of a unit stay: what the kubelet keeps, at least 1, or more if more was asked.
func keepNewest(kubelet, asked int) int {
	if kubelet < 0 {
		return -1
	}
	return max(1, kubelet, asked)
}

// containers adds the exited containers that may go.
func (p *planner) containers() {
	all := p.node.Containers
	exited := make([]int32, 0, len(all))
	for i := range all {
		p.left[all[i].SandboxID]++
		if all[i].State == crictl.ContainerExited {
			exited = append(exited, int32(i))
		}
	}
	slices.SortFunc(exited, func(a, b int32) int { return olderContainer(&all[a], &all[b]) })
	newest := p.newest(exited)
	p.plan.Remove = slices.Grow(p.plan.Remove, max(len(exited)-len(p.pods), 0))
	for n, i := range exited {
		c := &all[i]
		ended, why := p.judge(c, newest[n])
		// Beyond the limit nobody needs to have asked for the end.
		if (why == "" || why == KeptEndUnknown) && p.full() {
			why = KeptLimit
		}
		if why != "" {
			p.kept[why]++
			continue
		}
		p.left[c.SandboxID]--
		p.plan.Bytes += int64(c.Size)
		p.plan.Remove = append(p.plan.Remove, Victim{
			Kind: KindContainer, ID: c.ID, Namespace: c.Pod.Namespace, Pod: c.Pod.Name, PodUID: c.Pod.UID, Container: c.Name,
			Attempt: c.Attempt, CreatedAt: c.Created(), FinishedAt: ended, Bytes: int64(c.Size), Why: p.whyExited,
		})
	}
}

// newest marks the newest exited instances of each unit. An instance from the future takes no place: its time is wrong,
// and the true newest must stay.
func (p *planner) newest(exited []int32) []bool {
	marks := make([]bool, len(exited))
	seen := make(map[unit]int, len(p.pods))
	for n := len(exited) - 1; n >= 0; n-- {
		c := &p.node.Containers[exited[n]]
		if p.pod(c) == nil || c.CreatedAt > p.now.UnixNano() {
			continue
		}
		u := unit{c.Pod.UID, c.Name}
		if k := seen[u]; p.keep < 0 || k < p.keep {
			seen[u] = k + 1
			marks[n] = true
		}
	}
	return marks
}

// judge says why an exited container stays, or when it ended.
func (p *planner) judge(c *crictl.Container, newest bool) (ended time.Time, why string) {
	v := p.pod(c)
	young := p.now.Sub(c.Created()) < p.minAge() // whenever it ended
	switch {
	case v == nil:
		return ended, KeptForeign
	case c.CreatedAt > p.now.UnixNano():
		return ended, KeptClock
	case newest:
		return ended, KeptNewest
	case !v.started:
		return ended, KeptStarting
	case !p.selected(c.Pod):
		return ended, KeptUnselected
	case p.assumeEnded && young:
		return ended, KeptYoung
	case p.assumeEnded:
		return ended, ""
	}
	known := false
	if p.node.Finished != nil {
		ended, known = p.node.Finished(c.ID)
	}
	switch unknown := !known || ended.IsZero(); {
	case unknown && young:
		return ended, KeptYoung
	case unknown:
		return ended, KeptEndUnknown
	case ended.After(p.now) || ended.UnixNano() < c.CreatedAt:
		return ended, KeptClock
	case p.now.Sub(ended) < p.minAge():
		return ended, KeptYoung
	}
	return ended, ""
}

func (p *planner) minAge() time.Duration {
	return max(p.rules.MinAge, p.rules.OlderThan, p.node.Kubelet.MinAge)
}

func (p *planner) full() bool {
	return p.rules.Limit > 0 && len(p.plan.Remove) >= p.rules.Limit
}

func (p *planner) selected(pod *crictl.Pod) bool {
	switch {
	case p.rules.Namespace != "" && p.rules.Namespace != pod.Namespace,
		p.rules.Pod != "" && p.rules.Pod != pod.Name && p.rules.Pod != pod.UID,
		len(p.rules.Labels) > 0 && !p.node.Selected[pod.UID]:
		return false
	}
	return true
}

// sandboxes adds the dead sandboxes that may go once the containers of the plan have gone.
func (p *planner) sandboxes() {
	var dead []int
	for i := range p.node.Sandboxes {
		if p.node.Sandboxes[i].State != crictl.SandboxReady {
			dead = append(dead, i)
		}
	}
	all := p.node.Sandboxes
	slices.SortFunc(dead, func(a, b int) int { return olderSandbox(&all[a], &all[b]) })
	for _, i := range dead {
		s := &all[i]
		why := p.judgeSandbox(i)
		if why == "" && p.full() {
			why = KeptLimit
		}
		if why != "" {
			p.kept[why]++
			continue
		}
		p.plan.Bytes += int64(s.Size)
		p.plan.Remove = append(p.plan.Remove, Victim{
			Kind: KindSandbox, ID: s.ID, Namespace: s.Pod.Namespace, Pod: s.Pod.Name, PodUID: s.Pod.UID,
			Attempt: s.Attempt, CreatedAt: s.Created(), Bytes: int64(s.Size), Why: p.whySandbox(i),
		})
	}
}

// judgeSandbox says why a sandbox that is not ready stays. It has no end that CRI would tell, so its age counts from its
// creation; the kubelet asks for no age here at all.
func (p *planner) judgeSandbox(i int) string {
	s, v := &p.node.Sandboxes[i], p.views[i]
	switch {
	case v == nil || p.sandboxByID[s.ID] < 0:
		return KeptForeign
	case s.CreatedAt > p.now.UnixNano():
		return KeptClock
	case p.node.Partial:
		return KeptPartial
	case p.left[s.ID] > 0:
		return KeptOccupied
	case !v.gone && v.newest == i:
		return KeptLastOfPod
	case !p.selected(s.Pod):
		return KeptUnselected
	case p.now.Sub(s.Created()) < p.minAge():
		return KeptYoung
	}
	return ""
}

func (p *planner) whySandbox(i int) string {
	switch {
	case p.views[i].newest != i:
		return "not ready, without containers, not the newest of its pod"
	case p.rules.IgnorePodLiveness:
		return "not ready, without containers; whether its pod lives was ignored"
	}
	return "not ready, without containers; its pod is gone"
}

func (p *planner) finish() Plan {
	p.plan.KeptBy = []Kept{}
	for _, why := range keptOrder() {
		if n := p.kept[why]; n > 0 {
			p.plan.KeptBy = append(p.plan.KeptBy, Kept{Why: why, Count: n})
			p.plan.Keep += n
		}
	}
	return p.plan
}

// olderContainer orders containers by creation, which is how the kubelet tells the newest (byCreated in
// kuberuntime_gc.go); attempt and id make the order total.
func olderContainer(a, b *crictl.Container) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}

func olderSandbox(a, b *crictl.PodSandbox) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}
