package kuberuntime

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options supply what of a sandbox or container does not follow from its spec alone. Errors keep it from being created.
type Options interface {
	// RunOptions are those of a container that is about to be created. podIP is empty on the host's network.
	RunOptions(ctx context.Context, pod *v1.Pod, c *v1.Container, podIP string, podIPs []string) (*RunOptions, error)
	DNS(pod *v1.Pod) (*runtimeapi.DNSConfig, error)
	// CgroupParent is the pod's cgroup in the form that the cgroup driver wants, empty for the runtime's own choice.
	CgroupParent(pod *v1.Pod) string
	Hostname(pod *v1.Pod) (host, domain string, err error)
}

// RunOptions are a container's environment and files.
type RunOptions struct {
	Env         []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount // with /etc/hosts and the file of the termination message
	Annotations map[string]string   // below the kubelet's own
}
