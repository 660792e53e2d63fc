package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// localStorageEviction evicts the pods that use more local storage than limits of their own allow: of an emptyDir, of
// the pod as a whole, of a container.
func (m *Manager) localStorageEviction(ctx context.Context, pods []*v1.Pod, stats []statsapi.PodStats) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
		s := statsOf(stats, p)
		if s == nil {
			return true
		}
		signal, message := "emptydirfs.limit", emptyDirLimitEviction(p, s)
		if message == "" {
			signal, message = "ephemeralpodfs.limit", podEphemeralStorageLimitEviction(p, s)
		}
		if message == "" {
			signal, message = "ephemeralcontainerfs.limit", containerEphemeralStorageLimitEviction(p, s)
		}
		const grace = immediateEvictionGracePeriodSeconds
		return message == "" || !m.evictPod(ctx, p, grace, signal, message, nil)
	})
}

// emptyDirLimitEviction returns the message of an eviction for an emptyDir that is larger than its limit, or "".
func emptyDirLimitEviction(p *v1.Pod, s *statsapi.PodStats) string {
	for _, used := range s.VolumeStats {
		for _, v := range p.Spec.Volumes {
			if v.Name != used.Name || v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
				continue
			}
			if limit := v.EmptyDir.SizeLimit; limit.Sign() > 0 && bytes(&used.FsStats) > limit.Value() {
				return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit)
			}
		}
	}
	return ""
}

// podEphemeralStorageLimitEviction returns the message of an eviction for the limits of all containers together, or "".
func podEphemeralStorageLimitEviction(p *v1.Pod, s *statsapi.PodStats) string {
	limit, ok := podresource.PodLimits(p, podresource.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	if !ok || bytes(s.EphemeralStorage) <= limit.Value() {
		return ""
	}
	return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &limit)
}

// containerEphemeralStorageLimitEviction returns the message of an eviction for the limit of one container, or "".
func containerEphemeralStorageLimitEviction(p *v1.Pod, s *statsapi.PodStats) string {
	for _, used := range s.Containers {
		c := cmp.Or(pod.Container(p.Spec.Containers, used.Name), &v1.Container{})
		limit := c.Resources.Limits.StorageEphemeral()
		if limit.Value() != 0 && bytes(used.Logs)+bytes(used.Rootfs) > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit)
		}
	}
	return ""
}

// bytes returns the used bytes of a file system, 0 if they are not known.
func bytes(s *statsapi.FsStats) int64 {
	if s == nil || s.UsedBytes == nil {
		return 0
	}
	return int64(*s.UsedBytes)
}

// evictionMessage explains an eviction and names the containers of the pod that use more than they asked for. s is nil
// if there are no figures of the pod.
func evictionMessage(p *v1.Pod, t Threshold, seen observation, s *statsapi.PodStats) string {
	name, limit := t.Signal.resource(), t.of(seen.capacity)
	message := fmt.Sprintf("The node was low on resource: %v. Threshold quantity: %v, available: %v. ", name, &limit,
		seen.available)
	for _, c := range cmp.Or(s, &statsapi.PodStats{}).Containers {
		used := int64(0) // also if it is not known
		switch {
		case name == v1.ResourceMemory && c.Memory != nil:
			used = int64(ptr.Deref(c.Memory.WorkingSetBytes, 0))
		case name == v1.ResourceEphemeralStorage && c.Rootfs != nil && c.Logs != nil:
			used = bytes(c.Rootfs) + bytes(c.Logs)
		}
		spec := cmp.Or(pod.Container(p.Spec.Containers, c.Name), pod.Container(p.Spec.InitContainers, c.Name),
			&v1.Container{})
		asked, usage := spec.Resources.Requests[name], resource.NewQuantity(used, resource.BinarySI)
		if usage.Cmp(asked) > 0 {
			message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %v. ", c.Name,
				usage, &asked, name)
		}
	}
	return message
}
