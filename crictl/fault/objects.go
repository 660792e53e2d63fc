package fault

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

const (
	// maxKnown bounds the cached ids. Beyond it the cache is emptied.
	maxKnown = 200_000
	// askTimeout bounds a question to the runtime about an id: it may be the one that hangs.
	askTimeout = 2 * time.Second
)

// An objectCache resolves ids to names, from the calls that pass through and, where that is not enough, by asking the
// runtime.
type objectCache struct {
	runtime runtimeapi.RuntimeServiceClient

	mu         sync.Mutex
	sandboxes  map[string]fake.Target
	containers map[string]entry
}

// An entry is what requests and answers tell about a container.
type entry struct {
	id, name, sandboxID string
}

func newObjectCache(runtime runtimeapi.RuntimeServiceClient) *objectCache {
	return &objectCache{runtime: runtime, sandboxes: map[string]fake.Target{}, containers: map[string]entry{}}
}

// target returns the object of a request. With ask, the runtime is asked for ids that are not cached.
func (o *objectCache) target(ctx context.Context, request proto.Message, ask bool) fake.Target {
	sandbox := func(id string) fake.Target { return o.sandbox(ctx, id, ask) }
	if create, ok := request.(*runtimeapi.CreateContainerRequest); ok && create.GetSandboxConfig().GetMetadata() != nil {
		sandbox = func(id string) fake.Target { return sandboxTarget(id, create.GetSandboxConfig().GetMetadata()) }
	}
	return fake.TargetOf(request, sandbox, func(id string) fake.Target {
		c, ok := o.container(ctx, id, ask)
		if !ok {
			return fake.Target{ID: id}
		}
		of := o.sandbox(ctx, c.sandboxID, ask)
		return fake.Target{ID: c.id, Namespace: of.Namespace, Pod: of.Pod, Container: c.name}
	})
}

func sandboxTarget(id string, meta *runtimeapi.PodSandboxMetadata) fake.Target {
	return fake.Target{ID: id, Namespace: meta.GetNamespace(), Pod: meta.GetName(), Sandbox: true}
}

func (o *objectCache) sandbox(ctx context.Context, id string, ask bool) fake.Target {
	o.mu.Lock()
	t, ok := o.sandboxes[id]
	o.mu.Unlock()
	switch {
	case ok:
		return t
	case !ask:
		return fake.Target{ID: id, Sandbox: true}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := o.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
	if err != nil || len(answer.GetItems()) != 1 {
		return fake.Target{ID: id, Sandbox: true}
	}
	found := answer.GetItems()[0]
	t = sandboxTarget(found.GetId(), found.GetMetadata())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sandboxes[id] = t // an abbreviated id as well
	return t
}

func (o *objectCache) container(ctx context.Context, id string, ask bool) (entry, bool) {
	o.mu.Lock()
	c, ok := o.containers[id]
	o.mu.Unlock()
	if ok || !ask {
		return c, ok
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := o.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil || len(answer.GetContainers()) != 1 {
		return entry{}, false
	}
	c = entryOf(answer.GetContainers()[0])
	o.mu.Lock()
	defer o.mu.Unlock()
	o.containers[id] = c
	return c, true
}

func entryOf(c *runtimeapi.Container) entry {
	return entry{id: c.GetId(), name: c.GetMetadata().GetName(), sandboxID: c.GetPodSandboxId()}
}

// learn caches the ids of a call that succeeded. request is nil when it could not be read.
func (o *objectCache) learn(request, answer proto.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.sandboxes)+len(o.containers) > maxKnown {
		clear(o.sandboxes)
		clear(o.containers)
	}
	switch req := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		if made, ok := answer.(*runtimeapi.RunPodSandboxResponse); ok {
			o.sandboxes[made.GetPodSandboxId()] = sandboxTarget(made.GetPodSandboxId(), req.GetConfig().GetMetadata())
		}
	case *runtimeapi.CreateContainerRequest:
		if made, ok := answer.(*runtimeapi.CreateContainerResponse); ok {
			o.containers[made.GetContainerId()] = entry{
				id: made.GetContainerId(), name: req.GetConfig().GetMetadata().GetName(), sandboxID: req.GetPodSandboxId(),
			}
		}
	case *runtimeapi.RemoveContainerRequest:
		delete(o.containers, req.GetContainerId())
	case *runtimeapi.RemovePodSandboxRequest:
		delete(o.sandboxes, req.GetPodSandboxId())
	}
	var sandboxes []*runtimeapi.PodSandbox
	switch list := answer.(type) {
	case interface {
		GetContainers() []*runtimeapi.Container
	}:
		for _, c := range list.GetContainers() {
			o.containers[c.GetId()] = entryOf(c)
		}
	case *runtimeapi.ListPodSandboxResponse:
		sandboxes = list.GetItems()
	case *runtimeapi.StreamPodSandboxesResponse:
		sandboxes = list.GetPodSandboxes()
	}
	for _, sb := range sandboxes {
		o.sandboxes[sb.GetId()] = sandboxTarget(sb.GetId(), sb.GetMetadata())
	}
}
