package fake

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecords(t *testing.T) {
	s, err := New(Scenario{Name: "records", Pods: []PodGroup{{
		Namespace: "web", Name: "shop",
		Containers: []ContainerGroup{{Name: "app", Exited: 3}, {Name: "job", State: "exited"}, {Name: "proxy"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var got []string
	for _, r := range s.Records() {
		if len(r.ID) != 64 || r.PodUID == "" {
			t.Errorf("%+v: want an id and the pod's UID", r)
		}
		got = append(got, r.Namespace+"/"+r.Pod+" "+r.Name)
	}
	if diff := cmp.Diff([]string{"web/shop app", "web/shop proxy"}, got); diff != "" {
		t.Errorf("running containers (-want +got):\n%s", diff)
	}
}
