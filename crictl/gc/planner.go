package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// A podView is what the lists contain about one pod UID.
type podView struct {
	pod     *crictl.Pod
	newest  int  // index of its newest sandbox; -1 when all of them are from the future
	fromAPI bool // every sandbox carries kubernetes.io/config.source=api
	gone    bool
	started bool // it shows a main container that runs or ran
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
	p.plan = Plan{Remove: []Candidate{}, Newest: max(p.keep, 0), Rules: rules, MadeAt: now}
	p.whyExited = fmt.Sprintf("exited; %d newer exited instances of it stay", p.keep)
	if p.keep == 1 {
		p.whyExited = "exited; a newer exited instance of it stays"
	}
	p.twice = listedTwice(node.Containers)
	p.viewSandboxes()
	for i := range node.Containers {
		c := &node.Containers[i]
		if v := p.pod(c); v != nil && !v.started {
			v.started = p.isMain(c)
		}
	}
	return p
}

// keepNewest is how many exited instances of a unit stay: what the kubelet keeps, at least 1, or more if more was
// asked.
func keepNewest(kubelet, asked int) int {
	if kubelet < 0 {
		return -1
	}
	return max(1, kubelet, asked)
}

// listedTwice returns the ids that a list names more than once. Lists that are gathered while containers come and go
// can do that, and then it is unknown which entry is true.
func listedTwice(all []crictl.Container) map[string]bool {
	seen := make(map[string]struct{}, len(all))
	twice := map[string]bool{}
	for i := range all {
		if _, ok := seen[all[i].ID]; ok {
			twice[all[i].ID] = true
		}
		seen[all[i].ID] = struct{}{}
	}
	return twice
}

// viewSandboxes gathers what the sandboxes contain about each pod, and decides whether the pod is gone.
func (p *planner) viewSandboxes() {
	all := p.node.Sandboxes
	for i := range all {
		s := &all[i]
		if _, ok := p.sandboxByID[s.ID]; ok {
			p.sandboxByID[s.ID] = -1
			continue
		}
		p.sandboxByID[s.ID] = i
		if s.ID == "" || s.Pod == nil || s.Pod.UID == "" {
			continue
		}
		v := p.pods[s.Pod.UID]
		if v == nil {
			v = &podView{pod: s.Pod, newest: -1, fromAPI: true}
			p.pods[s.Pod.UID] = v
		}
		p.views[i] = v
		v.fromAPI = v.fromAPI && s.ConfigSource == "api"
		// A sandbox from the future does not count as the newest: its time is wrong, and the true newest must stay.
		if s.CreatedAt <= p.now.UnixNano() && (v.newest < 0 || olderSandbox(s, &all[v.newest]) > 0) {
			v.newest = i
		}
	}
	for _, v := range p.pods {
		v.gone = p.rules.IgnorePodLiveness || p.node.Pods.Gone(*v.pod, v.fromAPI)
		v.started = v.gone
	}
}

// pod returns the view of a container's pod, nil for a container that is not a kubelet's.
func (p *planner) pod(c *crictl.Container) *podView {
	if c.Pod == nil || c.Pod.UID == "" || c.Name == "" || c.ID == "" || p.twice[c.ID] {
		return nil
	}
	i, listed := p.sandboxByID[c.SandboxID]
	if !listed || i < 0 || p.views[i] == nil || p.node.Sandboxes[i].Pod.UID != c.Pod.UID {
		return nil
	}
	return p.views[i]
}

// isMain reports whether a container shows that its pod is past its init containers. The kubelet writes nothing onto
// containers that distinguishes an init container from a main one, so the pod's spec decides where it is known.
// Elsewhere the name is a hint: it can only keep more. The newest instance of an init container stays in any case, and
// that is the one by which the kubelet knows that it has run.
func (p *planner) isMain(c *crictl.Container) bool {
	if c.State != crictl.ContainerRunning && c.State != crictl.ContainerExited {
		return false
	}
	if spec, ok := p.node.Pods.spec(c.Pod.UID); ok {
		return slices.Contains(spec.Main, c.Name)
	}
	return !looksInit(c.Name)
}

// looksInit reports whether a container's name is one that people give to init containers: a word of it, between
// dashes, is "init" or begins with it (init, init-db, wait-init, initialize).
func looksInit(name string) bool {
	for word := range strings.SplitSeq(strings.ToLower(name), "-") {
		if strings.HasPrefix(word, "init") {
			return true
		}
	}
	return false
}

// containers adds the exited containers that may be removed.
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
		// Beyond the limit the end need not be known.
		if (why == "" || why == KeptEndUnknown) && p.full() {
			why = KeptLimit
		}
		if why != "" {
			p.kept[why]++
			continue
		}
		p.left[c.SandboxID]--
		p.plan.Bytes += int64(c.Size)
		p.plan.Remove = append(p.plan.Remove, Candidate{
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

// judge returns why an exited container stays, or when it ended.
func (p *planner) judge(c *crictl.Container, newest bool) (ended time.Time, why string) {
	v := p.pod(c)
	young := p.now.Sub(c.Created()) < p.minAge() // whenever it ended
	switch {
	case v == nil:
		return ended, KeptNotKubelet
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
	return (p.rules.Namespace == "" || p.rules.Namespace == pod.Namespace) &&
		(p.rules.Pod == "" || p.rules.Pod == pod.Name || p.rules.Pod == pod.UID) &&
		(len(p.rules.Labels) == 0 || p.node.Selected[pod.UID])
}

// sandboxes adds the dead sandboxes that may be removed after the containers of the plan.
func (p *planner) sandboxes() {
	var dead []int
	all := p.node.Sandboxes
	for i := range all {
		if all[i].State != crictl.SandboxReady {
			dead = append(dead, i)
		}
	}
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
		p.plan.Remove = append(p.plan.Remove, Candidate{
			Kind: KindSandbox, ID: s.ID, Namespace: s.Pod.Namespace, Pod: s.Pod.Name, PodUID: s.Pod.UID,
			Attempt: s.Attempt, CreatedAt: s.Created(), Bytes: int64(s.Size), Why: p.whySandbox(i),
		})
	}
}

// judgeSandbox returns why a sandbox that is not ready stays. CRI reports no end of a sandbox, so its age counts from
// its creation; the kubelet requires no age here at all.
func (p *planner) judgeSandbox(i int) string {
	s, v := &p.node.Sandboxes[i], p.views[i]
	switch {
	case v == nil || p.sandboxByID[s.ID] < 0:
		return KeptNotKubelet
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

// olderContainer orders containers by creation, by which the kubelet finds the newest (byCreated in kuberuntime_gc.go);
// attempt and id make the order total.
func olderContainer(a, b *crictl.Container) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}

func olderSandbox(a, b *crictl.PodSandbox) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}
