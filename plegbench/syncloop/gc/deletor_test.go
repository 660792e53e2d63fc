package gc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func status(id, name string, state container.State) *container.Status {
	return &container.Status{ID: container.ID{Type: "containerd", ID: id}, Name: name, State: state}
}

func TestSurplus(t *testing.T) {
	pod := &container.PodStatus{ContainerStatuses: []*container.Status{ // newest first
		status("a3", "a", container.Running), status("a2", "a", container.Exited), status("a1", "a", container.Exited), status("a0", "a", container.Exited),
		status("b0", "b", container.Exited), status("c0", "c", container.Unknown),
	}}
	for name, tt := range map[string]struct {
		keep int
		id   string
		want []string
	}{
		"the newest stays":   {1, "a1", []string{"a1", "a0"}},
		"at least one stays": {0, "a1", []string{"a1", "a0"}},
		"two stay":           {2, "a2", []string{"a0"}},
		"enough room":        {5, "a2", []string{}},
		"no such container":  {1, "z", nil},
		"all of the pod":     {1, "", []string{"a2", "a1", "a0", "b0"}},
	} {
		c, _, _ := collector(&runtime{}, pods{}, func(c *Config) { c.Keep = tt.keep })
		if diff := gocmp.Diff(tt.want, c.surplus(tt.id, pod)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// While a removal hangs 50 more fit into the queue; the rest is dropped without blocking the caller.
func TestDeletorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runtime{takes: time.Minute}
		c, _, lines := collector(r, pods{}, nil)
		pod := &container.PodStatus{}
		for i := range 60 {
			pod.ContainerStatuses = append(pod.ContainerStatuses, status(fmt.Sprint(60-i), "a", container.Exited))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.RunDeletor(ctx) }()
		c.DeleteContainersInPod("60", pod)
		dropped := len(lines())
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(r.calls)+dropped != 59 || dropped < 8 || r.calls[0] != "ContainerStatus 59" {
			t.Errorf("%d removed, %d dropped", len(r.calls), dropped)
		}
		if l := lines(); !strings.Contains(l[0], "Failed to issue the request to remove container") || !strings.Contains(l[dropped], "DeleteContainer returned error") {
			t.Errorf("%q, %q", l[0], l[dropped])
		}
	})
}
