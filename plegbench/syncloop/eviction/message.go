package eviction

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// explain is the reason for an eviction, for the pod's status and the event: the threshold, and the containers that
// use more than they asked for.
func explain(p *v1.Pod, s *statsapi.PodStats, t Threshold, o observations) string {
	starved := t.Signal.resource()
	message := fmt.Sprintf("The node was low on resource: %v. ", starved)
	if seen, ok := o[t.Signal]; ok {
		quantity := t.Value.of(seen.capacity)
		message += fmt.Sprintf("Threshold quantity: %v, available: %v. ", &quantity, seen.available)
	}
	if s == nil {
		return message
	}
	containers := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range s.Containers {
		at := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Containers[i].Name })
		if at < 0 {
			continue // an ephemeral container has no requests
		}
		requested := containers[at].Resources.Requests[starved]
		usage := containerUsage(&s.Containers[i], starved)
		if usage == nil || usage.Cmp(requested) <= 0 {
			continue
		}
		message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %v. ",
			s.Containers[i].Name, usage, &requested, starved)
	}
	return message
}

// containerUsage is nil for a resource that has no figure for each container, or where the figure is missing.
func containerUsage(c *statsapi.ContainerStats, name v1.ResourceName) *resource.Quantity {
	switch {
	case name == v1.ResourceMemory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return resource.NewQuantity(int64(*c.Memory.WorkingSetBytes), resource.BinarySI)
	case name == v1.ResourceEphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil:
		return resource.NewQuantity(int64(*c.Rootfs.UsedBytes+*c.Logs.UsedBytes), resource.BinarySI)
	}
	return nil
}
