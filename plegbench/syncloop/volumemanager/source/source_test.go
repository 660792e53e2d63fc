package source_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u1",
			Labels:      map[string]string{"b": "2", "a": `one "quoted"`},
			Annotations: map[string]string{"a[b]c": "odd", "n": "x\ny"},
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
		if got, err := source.Field(pod(), path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "spec.nodeName", "metadata.name['x']", "['x']"} {
		if got, err := source.Field(pod(), path); err == nil {
			t.Errorf("%q: got %q, want an error", path, got)
		}
	}
}
