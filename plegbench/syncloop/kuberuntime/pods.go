package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// ErrPodNotFound is GetPod's error when the runtime has nothing of a pod. Its text is the kubelet's.
var ErrPodNotFound = errors.New("pod sandboxes not found")

// GetPods returns the pods of this node's syncLoop, the newest first: all of them, or only what is ready or running. It
// makes two lists; if the first fails, the second is not made.
func (m *Manager) GetPods(ctx context.Context, all bool) ([]*container.Pod, error) {
	sandboxes, containers := &runtimeapi.PodSandboxFilter{}, &runtimeapi.ContainerFilter{}
	if !all {
		sandboxes.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		containers.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	}
	byUID, foreign, err := m.list(ctx, sandboxes, containers)
	if err != nil {
		return nil, err
	}
	if all {
		m.foreign.Store(int64(foreign))
	}
	pods := make([]*container.Pod, 0, len(byUID))
	for _, p := range byUID {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *container.Pod) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.UID, b.UID))
	})
	m.Log.V(4).Info("Retrieved pods from runtime", "all", all)
	return pods, nil
}

// GetPod returns one pod as the runtime has it now, or ErrPodNotFound.
func (m *Manager) GetPod(ctx context.Context, uid types.UID) (*container.Pod, error) {
	label := map[string]string{container.PodUIDLabel: string(uid)}
	pods, _, err := m.list(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: label}, &runtimeapi.ContainerFilter{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	if p := pods[uid]; p != nil {
		return p, nil
	}
	return nil, ErrPodNotFound
}

// Foreign returns how many pods of others the last full list held.
func (m *Manager) Foreign() int { return int(m.foreign.Load()) }

// list makes the two lists and groups them by pod. Others' pods are only counted.
func (m *Manager) list(
	ctx context.Context, sf *runtimeapi.PodSandboxFilter, cf *runtimeapi.ContainerFilter,
) (pods map[types.UID]*container.Pod, foreign int, err error) {
	sandboxes, err := m.CRI.ListPodSandbox(ctx, sf)
	if err != nil {
		return nil, 0, err
	}
	containers, err := m.CRI.ListContainers(ctx, cf)
	if err != nil {
		return nil, 0, err
	}
	g := grouping{m: m, pods: map[types.UID]*container.Pod{}, others: map[string]bool{}}
	for _, s := range sandboxes {
		g.sandbox(s)
	}
	for _, c := range containers {
		g.container(c)
	}
	for _, p := range g.pods {
		slices.SortFunc(p.Sandboxes, func(a, b *container.Container) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), newerFirst(a, b))
		})
		slices.SortFunc(p.Containers, newerFirst)
		if len(p.Sandboxes) > 0 {
			p.CreatedAt = p.Sandboxes[0].CreatedAt
		}
	}
	return g.pods, len(g.others), nil
}

func newerFirst(a, b *container.Container) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID.ID, b.ID.ID))
}

// A grouping collects the entries of the lists by their pods' UIDs.
type grouping struct {
	m      *Manager
	pods   map[types.UID]*container.Pod
	others map[string]bool
}

// of returns the record of a pod, or nil for a pod of somebody else.
func (g *grouping) of(labels map[string]string, uid, name, namespace string) *container.Pod {
	if owner, ok := labels[container.OwnerLabel]; !ok || owner != g.m.NodeName {
		g.others[uid] = true
		return nil
	}
	p := g.pods[types.UID(uid)]
	if p == nil {
		p = &container.Pod{UID: types.UID(uid), Name: name, Namespace: namespace}
		g.pods[p.UID] = p
	}
	return p
}

func (g *grouping) sandbox(s *runtimeapi.PodSandbox) {
	md := s.GetMetadata()
	if md == nil {
		g.m.Log.V(4).Info("Sandbox does not have metadata", "sandbox", s)
		return
	}
	p := g.of(s.GetLabels(), md.GetUid(), md.GetName(), md.GetNamespace())
	if p == nil || s.GetId() == "" {
		return
	}
	p.Sandboxes = append(p.Sandboxes, &container.Container{
		ID: g.m.id(s.GetId()), State: container.SandboxState(s.GetState()), CreatedAt: time.Unix(0, s.GetCreatedAt()),
		Attempt: md.GetAttempt(), SandboxID: s.GetId(),
	})
}

// container adds a container. One whose sandbox is gone makes a pod all the same: it may run.
func (g *grouping) container(c *runtimeapi.Container) {
	if c.GetMetadata() == nil {
		g.m.Log.V(4).Info("Container does not have metadata", "container", c)
		return
	}
	l := c.GetLabels()
	p := g.of(l, l[container.PodUIDLabel], l[container.PodNameLabel], l[container.PodNamespaceLabel])
	if p == nil || c.GetId() == "" {
		return
	}
	p.Containers = append(p.Containers, &container.Container{
		ID: g.m.id(c.GetId()), Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage(), ImageRef: c.GetImageRef(),
		Hash:  annotated{g.m.Log, c.GetAnnotations()}.uint(container.HashAnnotation, 16),
		State: container.ContainerState(c.GetState()), CreatedAt: time.Unix(0, c.GetCreatedAt()),
		Attempt: c.GetMetadata().GetAttempt(), SandboxID: c.GetPodSandboxId(),
	})
}
