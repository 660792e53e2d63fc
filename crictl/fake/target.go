package fake

import (
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A target is whom a call is about. The zero target is a call about the whole runtime, or about something unknown.
type target struct {
	id        string // full id of the sandbox or container; empty for one that the call is about to make
	namespace string
	pod       string
	container string // empty for a sandbox
	sandbox   bool
}

// is reports whether the target matches all fields that are set in o.
func (t target) is(o Object) bool {
	switch {
	case t == target{}:
		return false
	case o.Sandbox && !t.sandbox:
		return false
	}
	return matches(o.ID, t.id) && matches(o.Namespace, t.namespace) && matches(o.Pod, t.pod) && matches(o.Container, t.container)
}

// matches reports whether a pattern that has been checked before matches; the empty one matches everything.
func matches(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}

// target finds out whom a request is about. Lists are about the whole runtime, whatever their filters name: runtimes serve
// them from memory and filter at the end.
func (st *store) target(req any) target {
	st.mu.RLock()
	defer st.mu.RUnlock()
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		meta := req.GetConfig().GetMetadata()
		return target{namespace: meta.GetNamespace(), pod: meta.GetName(), sandbox: true}
	case *runtimeapi.CreateContainerRequest:
		sb, err := st.sandboxes.find(req.GetPodSandboxId())
		if err != nil {
			return target{}
		}
		return target{
			namespace: sb.meta.GetNamespace(), pod: sb.meta.GetName(), container: req.GetConfig().GetMetadata().GetName(),
		}
	case interface{ GetContainerId() string }:
		c, err := st.containers.find(req.GetContainerId())
		if err != nil {
			return target{}
		}
		meta := c.sandbox.meta
		return target{id: c.id, namespace: meta.GetNamespace(), pod: meta.GetName(), container: c.name}
	case interface{ GetPodSandboxId() string }:
		sb, err := st.sandboxes.find(req.GetPodSandboxId())
		if err != nil {
			return target{}
		}
		return target{id: sb.id, namespace: sb.meta.GetNamespace(), pod: sb.meta.GetName(), sandbox: true}
	}
	return target{}
}
