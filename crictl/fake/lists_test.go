package fake

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerLabels filters by labels. The other filters are those of every client's lists.
func TestContainerLabels(t *testing.T) {
	c := serve(t, small())
	for want, selector := range map[string]map[string]string{
		"app0 app1 app2 proxy0 run0 ": nil,
		"app0 app1 app2 ":             {labelContainerName: "app", labelPodName: "shop"},
		"":                            {"missing": ""},
	} {
		got := ""
		for _, c := range c.containers(t, &runtimeapi.ContainerFilter{LabelSelector: selector}) {
			got += fmt.Sprint(c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), " ")
		}
		if got != want {
			t.Errorf("%v: %q, want %q", selector, got, want)
		}
	}
}

func TestRecords(t *testing.T) {
	c := serve(t, small())
	want := []Record{{
		ID: c.idOf(t, "app"), Name: "app", Namespace: "web", Pod: "shop",
		PodUID: c.sandboxes(t)[0].GetMetadata().GetUid(),
	}}
	if diff := cmp.Diff(want, c.server.Records()); diff != "" {
		t.Errorf("running containers (-want +got):\n%s", diff)
	}
}
