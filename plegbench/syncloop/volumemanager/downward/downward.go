// Package downward is the downward API: a pod's own fields and resources as text, for its volumes and its environment.
package downward

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Field is the text of a field of the pod's metadata (pkg/fieldpath/fieldpath.go upstream). Labels and annotations
// are one quoted key="value" per line, sorted, or with a subscript the bare value: metadata.labels['app'].
func Field(pod *v1.Pod, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func subscript(path string) (name, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(inner, "['")
	return name, key, ok && name != ""
}

func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(out, "\n")
}

// Resource is the text of a container's request or limit in units of the reference's divisor, rounded up. c is the
// container meant when the reference names none. Without a limit of its own a container has what the node can allocate
// (pkg/api/v1/resource/helpers.go upstream).
func Resource(ref *v1.ResourceFieldSelector, p *v1.Pod, c *v1.Container, allocatable v1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		if c = cmp.Or(pod.Container(p.Spec.Containers, ref.ContainerName), pod.Container(p.Spec.InitContainers, ref.ContainerName)); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("no container is named for %s", ref.Resource)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	var amount resource.Quantity
	switch {
	case kind == "limits" && known:
		amount = c.Resources.Limits[v1.ResourceName(name)]
		if amount.IsZero() && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
			amount = allocatable[v1.ResourceName(name)]
		}
	case kind == "requests" && known:
		amount = c.Resources.Requests[v1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if divisor.Sign() < 0 {
		return "", fmt.Errorf("the divisor of %s is negative", ref.Resource)
	}
	n, d := amount.Value(), divisor.Value()
	if name == "cpu" {
		n, d = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(d))), 10), nil
}
