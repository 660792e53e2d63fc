package fault

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// askTimeout bounds a question to the runtime about an id: it may be the one that hangs.
const askTimeout = 2 * time.Second

// An objectCache resolves ids to names by asking the runtime.
type objectCache struct {
	runtime runtimeapi.RuntimeServiceClient

	mu    sync.Mutex
	known map[string]fake.Target // by id, abbreviated ones as well
}

// mostKnown is how many objects a proxy remembers before it begins anew: it may run for months.
const mostKnown = 10_000

// target returns the object of a request. With ask, the runtime is asked for ids that are not cached.
func (o *objectCache) target(ctx context.Context, request proto.Message, ask bool) fake.Target {
	resolve := func(given fake.Target, find func(context.Context, string) (fake.Target, bool)) fake.Target {
		o.mu.Lock()
		known, ok := o.known[given.ID]
		o.mu.Unlock()
		if ok {
			return known
		}
		if !ask {
			return given
		}
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		found, ok := find(ctx, given.ID)
		if !ok {
			return given
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.known == nil || len(o.known) >= mostKnown {
			o.known = map[string]fake.Target{}
		}
		o.known[given.ID] = found
		return found
	}
	sandbox := func(id string) fake.Target { return resolve(fake.Target{ID: id, Sandbox: true}, o.findSandbox) }
	container := func(id string) fake.Target { return resolve(fake.Target{ID: id}, o.findContainer) }
	return fake.TargetOf(request, sandbox, container)
}

func (o *objectCache) findSandbox(ctx context.Context, id string) (fake.Target, bool) {
	answer, err := o.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{Id: id},
	})
	if err != nil || len(answer.GetItems()) != 1 {
		return fake.Target{}, false
	}
	found := answer.GetItems()[0]
	meta := found.GetMetadata()
	return fake.Target{ID: found.GetId(), Namespace: meta.GetNamespace(), Pod: meta.GetName(), Sandbox: true}, true
}

func (o *objectCache) findContainer(ctx context.Context, id string) (fake.Target, bool) {
	answer, err := o.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{Id: id},
	})
	if err != nil || len(answer.GetContainers()) != 1 {
		return fake.Target{}, false
	}
	found := answer.GetContainers()[0]
	pod, ok := o.findSandbox(ctx, found.GetPodSandboxId())
	pod.ID, pod.Container, pod.Sandbox = found.GetId(), found.GetMetadata().GetName(), false
	return pod, ok
}
