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

func newObjectCache(runtime runtimeapi.RuntimeServiceClient) *objectCache {
	return &objectCache{runtime: runtime, known: map[string]fake.Target{}}
}

// target returns the object of a request. With ask, the runtime is asked for ids that are not cached.
func (o *objectCache) target(ctx context.Context, request proto.Message, ask bool) fake.Target {
	sandbox := func(id string) fake.Target {
		return o.resolve(ctx, fake.Target{ID: id, Sandbox: true}, ask, o.findSandbox)
	}
	container := func(id string) fake.Target {
		return o.resolve(ctx, fake.Target{ID: id}, ask, o.findContainer)
	}
	return fake.TargetOf(request, sandbox, container)
}

// resolve returns what is known of an object, and otherwise the object as it was given.
func (o *objectCache) resolve(
	ctx context.Context, given fake.Target, ask bool, find func(ctx context.Context, id string) (fake.Target, bool),
) fake.Target {
	o.mu.Lock()
	t, ok := o.known[given.ID]
	o.mu.Unlock()
	if ok || !ask {
		if !ok {
			t = given
		}
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if t, ok = find(ctx, given.ID); !ok {
		return given
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[given.ID] = t
	return t
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
	return fake.Target{
		ID: found.GetId(), Namespace: meta.GetNamespace(), Pod: meta.GetName(), Sandbox: true,
	}, true
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
	return fake.Target{
		ID: found.GetId(), Namespace: pod.Namespace, Pod: pod.Pod, Container: found.GetMetadata().GetName(),
	}, ok
}
