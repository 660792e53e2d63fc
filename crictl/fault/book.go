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
	// maxKnown bounds the ids that are remembered. Beyond it all are forgotten and asked for anew.
	maxKnown = 200_000
	// askPatience bounds a question to the runtime about an id: it may be the one that hangs.
	askPatience = 2 * time.Second
)

// A book knows whom ids mean, from what passes through and, where that is not enough, from the runtime.
type book struct {
	runtime runtimeapi.RuntimeServiceClient

	mu         sync.Mutex
	sandboxes  map[string]fake.Target
	containers map[string]entry
}

// An entry is a container as far as requests and answers name it.
type entry struct {
	id, name, sandboxID string
}

func newBook(runtime runtimeapi.RuntimeServiceClient) *book {
	return &book{runtime: runtime, sandboxes: map[string]fake.Target{}, containers: map[string]entry{}}
}

// target finds out whom a request is about. With ask, the runtime is asked for ids that are not known.
func (b *book) target(ctx context.Context, request proto.Message, ask bool) fake.Target {
	sandbox := func(id string) fake.Target { return b.sandbox(ctx, id, ask) }
	if create, ok := request.(*runtimeapi.CreateContainerRequest); ok && create.GetSandboxConfig().GetMetadata() != nil {
		sandbox = func(id string) fake.Target { return sandboxTarget(id, create.GetSandboxConfig().GetMetadata()) }
	}
	return fake.TargetOf(request, sandbox, func(id string) fake.Target {
		c, ok := b.container(ctx, id, ask)
		if !ok {
			return fake.Target{ID: id}
		}
		of := b.sandbox(ctx, c.sandboxID, ask)
		return fake.Target{ID: c.id, Namespace: of.Namespace, Pod: of.Pod, Container: c.name}
	})
}

func sandboxTarget(id string, meta *runtimeapi.PodSandboxMetadata) fake.Target {
	return fake.Target{ID: id, Namespace: meta.GetNamespace(), Pod: meta.GetName(), Sandbox: true}
}

func (b *book) sandbox(ctx context.Context, id string, ask bool) fake.Target {
	b.mu.Lock()
	t, ok := b.sandboxes[id]
	b.mu.Unlock()
	if ok || !ask {
		return or(ok, t, fake.Target{ID: id, Sandbox: true})
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answer, err := b.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
	if err != nil || len(answer.GetItems()) != 1 {
		return fake.Target{ID: id, Sandbox: true}
	}
	found := answer.GetItems()[0]
	t = sandboxTarget(found.GetId(), found.GetMetadata())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sandboxes[id] = t // an abbreviated id as well
	return t
}

func (b *book) container(ctx context.Context, id string, ask bool) (entry, bool) {
	b.mu.Lock()
	c, ok := b.containers[id]
	b.mu.Unlock()
	if ok || !ask {
		return c, ok
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answer, err := b.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil || len(answer.GetContainers()) != 1 {
		return entry{}, false
	}
	c = entryOf(answer.GetContainers()[0])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers[id] = c
	return c, true
}

func entryOf(c *runtimeapi.Container) entry {
	return entry{id: c.GetId(), name: c.GetMetadata().GetName(), sandboxID: c.GetPodSandboxId()}
}

// learn takes from a call that went well what it says about ids. request is nil when it could not be read.
func (b *book) learn(request, answer proto.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sandboxes)+len(b.containers) > maxKnown {
		clear(b.sandboxes)
		clear(b.containers)
	}
	switch req := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		if made, ok := answer.(*runtimeapi.RunPodSandboxResponse); ok {
			b.sandboxes[made.GetPodSandboxId()] = sandboxTarget(made.GetPodSandboxId(), req.GetConfig().GetMetadata())
		}
	case *runtimeapi.CreateContainerRequest:
		if made, ok := answer.(*runtimeapi.CreateContainerResponse); ok {
			b.containers[made.GetContainerId()] = entry{
				id: made.GetContainerId(), name: req.GetConfig().GetMetadata().GetName(), sandboxID: req.GetPodSandboxId(),
			}
		}
	case *runtimeapi.RemoveContainerRequest:
		delete(b.containers, req.GetContainerId())
	case *runtimeapi.RemovePodSandboxRequest:
		delete(b.sandboxes, req.GetPodSandboxId())
	}
	var sandboxes []*runtimeapi.PodSandbox
	switch list := answer.(type) {
	case interface {
		GetContainers() []*runtimeapi.Container
	}:
		for _, c := range list.GetContainers() {
			b.containers[c.GetId()] = entryOf(c)
		}
	case *runtimeapi.ListPodSandboxResponse:
		sandboxes = list.GetItems()
	case *runtimeapi.StreamPodSandboxesResponse:
		sandboxes = list.GetPodSandboxes()
	}
	for _, sb := range sandboxes {
		b.sandboxes[sb.GetId()] = sandboxTarget(sb.GetId(), sb.GetMetadata())
	}
}

func or[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}
