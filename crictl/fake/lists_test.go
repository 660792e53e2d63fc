package fake

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
