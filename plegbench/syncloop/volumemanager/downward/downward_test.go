package downward_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/downward"
)

func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u1",
			Labels:      map[string]string{"b": "2", "a": `one "quoted"`},
			Annotations: map[string]string{"a[b]c": "odd", "n": "x\ny"},
		},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}},
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{
					"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("100Mi"), "hugepages-2Mi": resource.MustParse("4Mi"),
				},
				Requests: v1.ResourceList{"cpu": resource.MustParse("250m")},
			}}},
		},
	}
}

func TestField(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":                 "web",
		"metadata.namespace":            "shop",
		"metadata.uid":                  "u1",
		"metadata.labels":               "a=\"one \\\"quoted\\\"\"\nb=\"2\"",
		"metadata.annotations":          "a[b]c=\"odd\"\nn=\"x\\ny\"",
		"metadata.labels['b']":          "2",
		"metadata.labels['none']":       "",
		"metadata.annotations['a[b]c']": "odd",
	} {
		if got, err := downward.Field(pod(), path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "spec.nodeName", "metadata.name['x']", "['x']", "metadata.labels['x'"} {
		if got, err := downward.Field(pod(), path); err == nil {
			t.Errorf("%q: got %q, want an error", path, got)
		}
	}
}

func TestResource(t *testing.T) {
	node := v1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	tests := []struct {
		resource, divisor, container, want string
	}{
		{"limits.cpu", "", "c", "2"}, // rounded up
		{"limits.cpu", "1m", "c", "1500"},
		{"limits.memory", "1Mi", "c", "100"},
		{"limits.memory", "1Gi", "c", "1"},
		{"limits.hugepages-2Mi", "1Mi", "c", "4"},
		{"requests.cpu", "1m", "c", "250"},
		{"requests.memory", "", "c", "0"},
		{"limits.cpu", "", "init", "4"}, // the node's
		{"limits.memory", "1Gi", "init", "8"},
		{"limits.ephemeral-storage", "", "init", "0"},
		{"limits.hugepages-2Mi", "", "init", "0"},
		{"limits.cpu", "", "", "2"}, // the container meant
	}
	for _, tt := range tests {
		p := pod()
		ref := &v1.ResourceFieldSelector{Resource: tt.resource, ContainerName: tt.container}
		if tt.divisor != "" {
			ref.Divisor = resource.MustParse(tt.divisor)
		}
		got, err := downward.Resource(ref, p, &p.Spec.Containers[0], node)
		if err != nil || got != tt.want {
			t.Errorf("%+v: got %q, %v", tt, got, err)
		}
	}
	for _, ref := range []v1.ResourceFieldSelector{
		{Resource: "limits.gpu", ContainerName: "c"},
		{Resource: "cpu", ContainerName: "c"},
		{Resource: "limits.cpu", ContainerName: "nobody"},
		{Resource: "limits.cpu"},
		{Resource: "limits.cpu", ContainerName: "c", Divisor: resource.MustParse("-1")},
	} {
		if got, err := downward.Resource(&ref, pod(), nil, node); err == nil {
			t.Errorf("%+v: got %q, want an error", ref, got)
		}
	}
}
