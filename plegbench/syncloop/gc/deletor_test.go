package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func status(id, name string, state container.State, minute int) *container.Status {
	return &container.Status{ID: container.ID{Type: "containerd", ID: id}, Name: name, State: state, CreatedAt: at(minute)}
}

func TestDeletorChooses(t *testing.T) {
	pod := &container.PodStatus{ContainerStatuses: []*container.Status{
		status("a0", "a", container.Exited, 0), status("a3", "a", container.Running, 3), status("a2", "a", container.Exited, 2),
		status("a1", "a", container.Exited, 1), status("b0", "b", container.Exited, 0), status("c0", "c", container.Unknown, 0),
	}}
	for name, tt := range map[string]struct {
		keep int
		id   string
		all  bool
		want []string
	}{
		"the newest stays":       {1, "a1", false, []string{"a1", "a0"}},
		"at least one stays":     {0, "a1", false, []string{"a1", "a0"}},
		"two stay":               {2, "a2", false, []string{"a0"}},
		"enough room":            {5, "a2", false, nil},
		"no such container":      {1, "z", false, nil},
		"no name, all names":     {1, "", false, []string{"a1", "a0", "b0"}},
		"all of the pod":         {1, "a1", true, []string{"a2", "a1", "a0", "b0"}},
		"all, whatever the name": {1, "z", true, []string{"a2", "a1", "a0", "b0"}},
	} {
		var got []string
		for _, id := range NewDeletor(DeletorConfig{Keep: tt.keep, Log: logr.Discard()}).choose(tt.id, pod, tt.all) {
			got = append(got, id.ID)
		}
		if diff := gocmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A deletor that is stuck takes 50 more, and drops the rest without blocking who asks.
func TestDeletorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var deleted, lines []string
		d := NewDeletor(DeletorConfig{
			Keep: 1, Log: funcr.New(func(_, line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }, funcr.Options{}),
			Delete: func(_ context.Context, id string) error {
				time.Sleep(time.Minute)
				deleted = append(deleted, id)
				return errors.New("no")
			},
		})
		pod := &container.PodStatus{}
		for i := range 60 {
			pod.ContainerStatuses = append(pod.ContainerStatuses, status(fmt.Sprint(i), "a", container.Exited, i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		d.DeleteContainersInPod("59", pod, false)
		mu.Lock()
		dropped := len(lines)
		mu.Unlock()
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(deleted)+dropped != 59 || dropped < 8 || deleted[0] != "58" {
			t.Errorf("%d deleted, %d dropped", len(deleted), dropped)
		}
		if !strings.Contains(lines[0], "Failed to issue the request to remove container") || !strings.Contains(lines[dropped], "DeleteContainer returned error") {
			t.Errorf("%q, %q", lines[0], lines[dropped])
		}
	})
}
