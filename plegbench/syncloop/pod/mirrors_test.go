package pod

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

func node() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}} }

func TestReconcileMirror(t *testing.T) {
	ending := mirror("web", "m", "s")
	ending.DeletionTimestamp = &metav1.Time{}
	gone := func() *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u", DeletionTimestamp: &metav1.Time{}}}
	}
	unknown := func() *v1.Node { return nil }
	cases := []struct {
		name   string
		pod    *v1.Pod
		mirror *v1.Pod
		there  bool // the mirror, at the API server
		node   func() *v1.Node
		want   []string
	}{
		{"no mirror", static("web", "s"), nil, false, node, []string{"create"}},
		{"good mirror", static("web", "s"), mirror("web", "m", "s"), true, node, nil},
		{"edited", static("web", "s"), mirror("web", "m", "old"), true, node, []string{"delete", "create"}},
		{"being deleted", static("web", "s"), ending, true, node, []string{"delete", "create"}},
		{"gone meanwhile", static("web", "s"), mirror("web", "m", "old"), false, node, []string{"delete"}},
		{"node unknown", static("web", "s"), nil, false, unknown, nil},
		{"node deleted", static("web", "s"), nil, false, gone, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client := fake.New()
			if c.there {
				if err := client.Tracker().Add(c.mirror); err != nil {
					t.Fatal(err)
				}
			}
			NewMirrors(client, "n", c.node, logr.Discard()).Reconcile(t.Context(), c.pod, c.mirror)
			var got []string
			for _, a := range client.Actions() {
				got = append(got, a.GetVerb())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("did %v, want %v", got, c.want)
			}
		})
	}
}
