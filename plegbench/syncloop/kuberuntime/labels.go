package kuberuntime

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// ContainerHash is the hash by which a changed container is recognised: since Kubernetes 1.32 of nothing but its name and
// image (pkg/kubelet/container/helpers.go). It is FNV-1a over a printed form of the JSON's bytes, not over the JSON.
func ContainerHash(c *v1.Container) uint64 {
	spec, err := json.Marshal(map[string]string{"image": c.Image, "name": c.Name})
	if err != nil {
		return 0 // two strings can always be marshalled
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", spec)
	return uint64(h.Sum32())
}

// identity are the labels that sandboxes and containers have in common.
func identity(pod *v1.Pod, node string) map[string]string {
	return map[string]string{
		container.PodNameLabel:      pod.Name,
		container.PodNamespaceLabel: pod.Namespace,
		container.PodUIDLabel:       string(pod.UID),
		container.OwnerLabel:        node,
	}
}

func sandboxLabels(pod *v1.Pod, node string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pod.Labels)
	maps.Copy(labels, identity(pod, node))
	return labels
}

func containerLabels(pod *v1.Pod, c *v1.Container, node string) map[string]string {
	labels := identity(pod, node)
	labels[container.ContainerNameLabel] = c.Name
	return labels
}

// containerAnnotations hold all that is needed to judge and to kill a container whose pod is known no more.
func containerAnnotations(pod *v1.Pod, c *v1.Container, restarts int, extra map[string]string) (map[string]string, error) {
	a := map[string]string{}
	maps.Copy(a, extra)
	a[container.HashAnnotation] = strconv.FormatUint(ContainerHash(c), 16)
	a[container.RestartCountAnnotation] = strconv.Itoa(restarts)
	a[container.TerminationMessagePathAnnotation] = c.TerminationMessagePath
	a[container.TerminationMessagePolicyAnnotation] = string(c.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[container.DeletionGracePeriodAnnotation] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[container.TerminationGracePeriodAnnotation] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("marshalling the preStop hook of container %s: %w", c.Name, err)
		}
		a[container.PreStopHandlerAnnotation] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("marshalling the ports of container %s: %w", c.Name, err)
		}
		a[container.PortsAnnotation] = string(raw)
	}
	return a, nil
}

// An annotated reads annotations, and logs those that cannot be read as the kubelet does. What is missing or unreadable is
// the zero value.
type annotated struct {
	log    logr.Logger
	values map[string]string
}

func (a annotated) failed(err error, key string) {
	if err != nil {
		a.log.Error(err, "Unable to get label value from annotations", "label", key, "annotations", a.values)
	}
}

func (a annotated) uint(key string, base int) uint64 {
	s, ok := a.values[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, base, 63)
	if err != nil {
		n = 0
	}
	a.failed(err, key)
	return n
}

func (a annotated) seconds(key string) *int64 {
	s, ok := a.values[key]
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		a.failed(err, key)
		return nil
	}
	return &n
}

func (a annotated) json(key string, into any) bool {
	s, ok := a.values[key]
	if !ok {
		return false
	}
	err := json.Unmarshal([]byte(s), into)
	a.failed(err, key)
	return err == nil
}

// restoreSpec builds, out of a container's labels and annotations, as much of its pod as killing it takes.
func restoreSpec(log logr.Logger, labels, annotations map[string]string) (*v1.Pod, *v1.Container) {
	a := annotated{log, annotations}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(labels[container.PodUIDLabel]), Name: labels[container.PodNameLabel],
			Namespace:                  labels[container.PodNamespaceLabel],
			DeletionGracePeriodSeconds: a.seconds(container.DeletionGracePeriodAnnotation),
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: a.seconds(container.TerminationGracePeriodAnnotation)},
	}
	c := &v1.Container{
		Name:                   labels[container.ContainerNameLabel],
		TerminationMessagePath: annotations[container.TerminationMessagePathAnnotation],
	}
	a.json(container.PortsAnnotation, &c.Ports)
	var hook v1.LifecycleHandler
	if a.json(container.PreStopHandlerAnnotation, &hook) {
		c.Lifecycle = &v1.Lifecycle{PreStop: &hook}
	}
	return pod, c
}

// describe writes a pod as the kubelet's errors and back-off messages do: name_namespace(uid).
func describe(pod *v1.Pod) string { return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID) }

// A loggedID is an ID that prints as {"Type":...,"ID":...}, which is what the kubelet's log has in some lines.
type loggedID struct{ Type, ID string }

// about are the keys with which most lines about a container begin.
func about(pod *v1.Pod, name string, id container.ID) []any {
	return []any{"pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "containerID", id.String()}
}
