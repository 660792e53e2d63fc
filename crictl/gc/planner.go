package gc

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A unit is the kubelet's evict unit (kuberuntime_gc.go): all instances of one container of one pod.
type unit struct{ uid, name string }

// A planner holds the state of one Make.
type planner struct {
	node      *Node
	rules     Rules
	now       time.Time
	keep      int // per unit
	minAge    time.Duration
	pods      map[string]*podView // by UID
	sandboxes map[string]*podView // by the id of a sandbox; without those that are not a kubelet's
	left      map[string]int      // containers that stay, by sandbox id
	kept      map[string]int
	plan      Plan
}

// A podView summarizes the lists for one pod UID.
type podView struct {
	pod     *crictl.Pod
	newest  *crictl.PodSandbox // nil when all of its sandboxes are from the future
	fromAPI bool               // every sandbox carries kubernetes.io/config.source=api
	gone    bool
	started bool // it shows a main container that runs or ran
}

func newPlanner(node *Node, rules Rules, now time.Time) *planner {
	p := &planner{
		node: node, rules: rules, now: now, keep: max(1, node.Kubelet.Keep, rules.Keep),
		minAge: max(rules.MinAge, node.Kubelet.MinAge), pods: map[string]*podView{},
		sandboxes: make(map[string]*podView, len(node.Sandboxes)), left: make(map[string]int, len(node.Sandboxes)),
		kept: map[string]int{},
	}
	p.plan = Plan{Remove: []Candidate{}, KeptBy: []Kept{}, Newest: p.keep, Rules: rules, MadeAt: now}
	if node.Kubelet.Keep < 0 {
		p.keep, p.plan.Newest = math.MaxInt, 0
	}
	if node.Pods == nil {
		node.Pods = &Liveness{}
	}
	for i := range node.Sandboxes {
		s := &node.Sandboxes[i]
		if s.ID == "" || s.Pod.UID == "" {
			continue
		}
		v := entry(p.pods, s.Pod.UID, podView{pod: s.Pod, fromAPI: true})
		p.sandboxes[s.ID] = v
		v.fromAPI = v.fromAPI && s.ConfigSource == "api"
		// A sandbox from the future does not count as the newest: its time is wrong, and the true newest must stay.
		if s.CreatedAt <= now.UnixNano() && (v.newest == nil || olderSandbox(v.newest, s) < 0) {
			v.newest = s
		}
	}
	for _, v := range p.pods {
		v.gone = rules.IgnorePodLiveness || node.Pods.Gone(*v.pod, v.fromAPI)
		v.started = v.gone
	}
	for i := range node.Containers {
		c := &node.Containers[i]
		if v := p.pod(c); v != nil && !v.started {
			v.started = p.isMain(c)
		}
	}
	return p
}

// pod returns the view of a container's pod, nil for a container that is not clearly a kubelet's.
func (p *planner) pod(c *crictl.Container) *podView {
	v := p.sandboxes[c.SandboxID]
	if v == nil || v.pod.UID != c.Pod.UID || c.Name == "" || c.ID == "" {
		return nil
	}
	return v
}

// isMain reports whether a container shows that its pod is past its init containers. The kubelet writes nothing onto
// containers that distinguishes an init container from a main one, so the pod's spec decides where it is known.
// Elsewhere the name is a hint: it can only keep more. The newest instance of an init container stays in any case, and
// that is the one by which the kubelet knows that it has run.
func (p *planner) isMain(c *crictl.Container) bool {
	if c.State != crictl.ContainerRunning && c.State != crictl.ContainerExited {
		return false
	}
	if pod := p.node.Pods.byUID[c.Pod.UID]; pod != nil && len(pod.Main) > 0 {
		return slices.Contains(pod.Main, c.Name)
	}
	return !looksInit(c.Name)
}

// looksInit reports whether a container's name is one that people give to init containers: a word of it, between
// dashes, is "init" or begins with it (init, init-db, wait-init, initialize).
func looksInit(name string) bool {
	return strings.Contains("-"+strings.ToLower(name), "-init")
}

// containers adds the exited containers that may be removed.
func (p *planner) containers(ends func([]Candidate) map[string]End) {
	all := p.node.Containers
	exited := make([]int32, 0, len(all))
	for i := range all {
		p.left[all[i].SandboxID]++
		if all[i].State == crictl.ContainerExited {
			exited = append(exited, int32(i))
		}
	}
	slices.SortFunc(exited, func(a, b int32) int { return olderContainer(&all[a], &all[b]) })
	// An instance from the future does not count: its time is wrong, and the true newest must stay.
	counts := func(c *crictl.Container) bool { return p.pod(c) != nil && c.CreatedAt <= p.now.UnixNano() }
	instances := make(map[unit]int, len(p.pods))
	for _, i := range exited {
		if c := &all[i]; counts(c) {
			instances[unit{c.Pod.UID, c.Name}]++
		}
	}
	possible := make([]Candidate, 0, len(exited))
	for _, i := range exited {
		c := &all[i]
		newest := false
		if counts(c) {
			u := unit{c.Pod.UID, c.Name}
			newest = instances[u] <= p.keep
			instances[u]--
		}
		if why := p.judge(c, newest); why != "" {
			p.kept[why]++
			continue
		}
		possible = append(possible, Candidate{
			Kind: KindContainer, ID: c.ID, Namespace: c.Pod.Namespace, Pod: c.Pod.Name, PodUID: c.Pod.UID,
			SandboxID: c.SandboxID, Container: c.Name, Attempt: c.Attempt, CreatedAt: c.Created(),
			Bytes: int64(c.Size), Why: "exited; a newer exited instance is kept",
		})
	}
	ask := possible
	if p.rules.Limit > 0 {
		ask = ask[:min(len(ask), p.rules.Limit+spareEnds)]
	}
	known := ends(ask)
	for i := range possible {
		c := &possible[i]
		c.FinishedAt = known[c.ID].FinishedAt
		if p.add(p.judgeEnd(c), *c) {
			p.left[c.SandboxID]--
		}
	}
}

// add adds a candidate to the plan, unless there is a reason to keep it.
func (p *planner) add(why string, c Candidate) bool {
	// Beyond the limit the end need not be known.
	if (why == "" || why == KeptEndUnknown) && p.rules.Limit > 0 && len(p.plan.Remove) >= p.rules.Limit {
		why = KeptLimit
	}
	if why != "" {
		p.kept[why]++
		return false
	}
	p.plan.Bytes += c.Bytes
	p.plan.Remove = append(p.plan.Remove, c)
	return true
}

// judge returns why an exited container stays whenever it ended; empty when that depends on its end.
func (p *planner) judge(c *crictl.Container, newest bool) string {
	v := p.pod(c)
	switch {
	case v == nil:
		return KeptNotKubelet
	case c.CreatedAt > p.now.UnixNano():
		return KeptClock
	case newest:
		return KeptNewest
	case !v.started:
		return KeptStarting
	case !p.selected(c.Pod):
		return KeptUnselected
	case p.now.Sub(c.Created()) < p.minAge:
		return KeptYoung
	}
	return ""
}

// judgeEnd returns why an exited container stays because of its end.
func (p *planner) judgeEnd(c *Candidate) string {
	switch ended := c.FinishedAt; {
	case ended.IsZero():
		return KeptEndUnknown
	case ended.After(p.now) || ended.Before(c.CreatedAt):
		return KeptClock
	case p.now.Sub(ended) < p.minAge:
		return KeptYoung
	}
	return ""
}

func (p *planner) selected(pod *crictl.Pod) bool {
	return (p.rules.Namespace == "" || p.rules.Namespace == pod.Namespace) &&
		(p.rules.Pod == "" || p.rules.Pod == pod.Name || p.rules.Pod == pod.UID) &&
		(len(p.rules.Labels) == 0 || p.node.Selected[pod.UID])
}

// deadSandboxes adds the dead sandboxes that may be removed after the containers of the plan.
func (p *planner) deadSandboxes() {
	var dead []*crictl.PodSandbox
	for i := range p.node.Sandboxes {
		if s := &p.node.Sandboxes[i]; s.State != crictl.SandboxReady {
			dead = append(dead, s)
		}
	}
	slices.SortFunc(dead, olderSandbox)
	for _, s := range dead {
		p.add(p.judgeSandbox(s), Candidate{
			Kind: KindSandbox, ID: s.ID, Namespace: s.Pod.Namespace, Pod: s.Pod.Name, PodUID: s.Pod.UID,
			Attempt: s.Attempt, CreatedAt: s.Created(), Bytes: int64(s.Size),
			Why: "not ready and empty; not the newest of its pod, or the pod is gone",
		})
	}
}

// judgeSandbox returns why a sandbox that is not ready stays. CRI reports no end of a sandbox, so its age counts from
// its creation; the kubelet requires no age here at all.
func (p *planner) judgeSandbox(s *crictl.PodSandbox) string {
	v := p.sandboxes[s.ID]
	switch {
	case v == nil:
		return KeptNotKubelet
	case s.CreatedAt > p.now.UnixNano():
		return KeptClock
	case p.node.Partial:
		return KeptPartial
	case p.left[s.ID] > 0:
		return KeptOccupied
	case !v.gone && v.newest == s:
		return KeptLastOfPod
	case !p.selected(s.Pod):
		return KeptUnselected
	case p.now.Sub(s.Created()) < p.minAge:
		return KeptYoung
	}
	return ""
}

func (p *planner) finish() Plan {
	for _, why := range keptOrder() {
		if n := p.kept[why]; n > 0 {
			p.plan.KeptBy = append(p.plan.KeptBy, Kept{Why: why, Count: n})
			p.plan.Keep += n
		}
	}
	return p.plan
}

// olderContainer orders containers by creation, by which the kubelet finds the newest (byCreated in kuberuntime_gc.go);
// attempt and id make the order total.
func olderContainer(a, b *crictl.Container) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}

func olderSandbox(a, b *crictl.PodSandbox) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}
