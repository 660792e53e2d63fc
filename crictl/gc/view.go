package gc

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/crictl"
)

// A podView is what the lists say about one pod UID.
type podView struct {
	pod     *crictl.Pod
	newest  int  // index of its newest sandbox; -1 when all of them are from the future
	fromAPI bool // every sandbox carries kubernetes.io/config.source=api
	gone    bool
	started bool // it shows a main container that runs or ran
}

// listedTwice returns the ids that a list names more than once. Lists that are gathered while containers come and go
// can do that, and then it is not known which entry is true.
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

// viewSandboxes gathers what the sandboxes say about each pod, and whether the pod is gone.
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
		// One from the future does not stand for the newest: its time is wrong, and the true newest must stay.
		if s.CreatedAt <= p.now.UnixNano() && (v.newest < 0 || olderSandbox(s, &all[v.newest]) > 0) {
			v.newest = i
		}
	}
	for _, v := range p.pods {
		v.gone = p.rules.IgnorePodLiveness || p.node.Pods.Gone(*v.pod, v.fromAPI)
		v.started = v.gone
	}
}

// viewContainers notes which pods show a main container.
func (p *planner) viewContainers() {
	for i := range p.node.Containers {
		c := &p.node.Containers[i]
		if v := p.pod(c); v != nil && !v.started {
			v.started = p.isMain(c)
		}
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
// containers that tells an init container from a main one, so the pod's spec decides where it is known. Elsewhere the
// name is a hint: it can only keep more. The newest instance of an init container stays in any case, and that is the
// one by which the kubelet knows that it has run.
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
