package fake

import (
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Target is the object of a call. The zero Target means the whole runtime, or an unknown object.
type Target struct {
	ID        string // full id of the sandbox or container; empty for one that the call is about to make
	Namespace string
	Pod       string
	Container string // empty for a sandbox
	Sandbox   bool
}

// is reports whether the target matches all fields that are set in o.
func (t Target) is(o Object) bool {
	return t != Target{} && (t.Sandbox || !o.Sandbox) && matches(o.ID, t.ID) && matches(o.Namespace, t.Namespace) &&
		matches(o.Pod, t.Pod) &&
		matches(o.Container, t.Container)
}

// matches reports whether a pattern that has been checked before matches; the empty one matches everything.
func matches(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}

// TargetOf returns the object of a request; sandbox and container resolve ids. Lists are about the whole runtime even
// with a filter: runtimes serve them from memory and filter at the end.
func TargetOf(req any, sandbox, container func(id string) Target) Target {
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		meta := req.GetConfig().GetMetadata()
		return Target{Namespace: meta.GetNamespace(), Pod: meta.GetName(), Sandbox: true}
	case *runtimeapi.CreateContainerRequest:
		of := sandbox(req.GetPodSandboxId())
		if of == (Target{}) {
			return of
		}
		return Target{Namespace: of.Namespace, Pod: of.Pod, Container: req.GetConfig().GetMetadata().GetName()}
	case interface{ GetContainerId() string }:
		return container(req.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		return sandbox(req.GetPodSandboxId())
	}
	return Target{}
}

// target returns the object of a request.
func (st *store) target(req any) Target {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return TargetOf(req, func(id string) Target {
		sb, err := st.sandboxes.find(id)
		if err != nil {
			return Target{}
		}
		return Target{ID: sb.id, Namespace: sb.meta.GetNamespace(), Pod: sb.meta.GetName(), Sandbox: true}
	}, func(id string) Target {
		c, err := st.containers.find(id)
		if err != nil {
			return Target{}
		}
		return c.target()
	})
}

func (c *container) target() Target {
	meta := c.sandbox.meta
	return Target{ID: c.id, Namespace: meta.GetNamespace(), Pod: meta.GetName(), Container: c.name}
}
