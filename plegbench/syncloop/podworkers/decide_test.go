package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestEffectiveGrace(t *testing.T) {
	n := func(i int64) *int64 { return &i }
	tests := map[string]struct {
		previous                 int64
		deletion, spec, override *int64
		want                     int64
		shortened                bool
	}{
		"nothing said":               {0, nil, nil, nil, 1, false},
		"as the pod wants":           {0, nil, n(30), nil, 30, false},
		"the source decides":         {0, n(10), n(30), nil, 10, false},
		"eviction is faster":         {0, n(10), n(30), n(5), 5, false},
		"eviction cannot be slower":  {0, n(10), n(30), n(20), 10, false},
		"at least a second":          {0, n(0), n(30), nil, 1, false},
		"zero of an override":        {0, nil, n(30), n(0), 1, false},
		"zero stays the least":       {0, n(0), n(30), n(20), 1, false},
		"stays":                      {30, nil, n(60), nil, 30, false},
		"shrinks by source":          {30, n(10), n(60), nil, 10, true},
		"shrinks by override":        {30, nil, n(60), n(10), 10, true},
		"does not grow":              {10, n(30), n(60), n(40), 10, false},
		"shrinks to the least":       {10, n(0), nil, nil, 1, true},
		"least does not shrink more": {1, n(0), nil, n(0), 1, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{}
			p.DeletionGracePeriodSeconds = tt.deletion
			p.Spec.TerminationGracePeriodSeconds = tt.spec
			got, shortened := effectiveGrace(tt.previous, p, tt.override)
			if got != tt.want || shortened != tt.shortened {
				t.Errorf("%d, shortened %v; want %d, %v", got, shortened, tt.want, tt.shortened)
			}
		})
	}
	if got, _ := effectiveGrace(0, nil, n(7)); got != 7 {
		t.Errorf("without a pod: %d", got)
	}
}

func TestWhyEnd(t *testing.T) {
	now := metav1.Now()
	failed, deleted := testPod("p"), testPod("p")
	failed.Status.Phase = v1.PodFailed
	deleted.DeletionTimestamp = &now
	type answer struct {
		Why              string
		Deleted, Evicted bool
	}
	tests := map[string]struct {
		o    UpdateOptions
		want answer
	}{
		"update":  {UpdateOptions{Type: Update, Pod: testPod("p")}, answer{}},
		"orphan":  {UpdateOptions{Type: Kill, RunningPod: &container.Pod{}}, answer{"Pod is orphaned and must be torn down", true, false}},
		"deleted": {UpdateOptions{Type: Update, Pod: deleted}, answer{"Pod is marked for graceful deletion, begin teardown", true, false}},
		"failed":  {UpdateOptions{Type: Sync, Pod: failed}, answer{"Pod is in a terminal phase (success/failed), begin teardown", false, false}},
		"removed": {UpdateOptions{Type: Kill, Pod: testPod("p")}, answer{"Pod is being removed by the kubelet, begin teardown", false, false}},
		"evicted": {
			UpdateOptions{Type: Kill, Pod: testPod("p"), Kill: &KillOptions{Evict: true}},
			answer{"Pod is being evicted by the kubelet, begin teardown", false, true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got answer
			got.Why, got.Deleted, got.Evicted = whyEnd(&tt.o)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(s int) error {
			return &BackOffError{errors.New("x"), time.Now().Add(time.Duration(s) * time.Second)}
		}
		cfg := New(Config{}).cfg
		for name, tt := range map[string]struct {
			moved bool
			err   error
			want  time.Duration
		}{
			"next step":             {true, nil, 0},
			"success":               {false, nil, time.Minute},
			"network":               {false, fmt.Errorf("%w: cni", ErrNetworkNotReady), time.Second},
			"network, by text":      {false, errors.New("x: network is not ready: cni"), time.Second},
			"error":                 {false, errors.New("x"), 10 * time.Second},
			"back-off":              {false, fmt.Errorf("x: %w", in(25)), 25 * time.Second},
			"back-off that is over": {false, in(-5), 0},
			"long back-off":         {false, in(300), time.Minute},
		} {
			if got := cfg.requeueAfter(tt.moved, tt.err); got != tt.want {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
		for range 1000 {
			if d := jitter(time.Minute); d < time.Minute || d > 90*time.Second {
				t.Fatalf("jittered to %v", d)
			}
		}
	})
}

func TestWorkQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{}).Queue
		q.Enqueue("late", 3*time.Second)
		q.Enqueue("now", 0)
		q.Enqueue("again", 0)
		q.Enqueue("again", time.Hour)
		if diff := cmp.Diff(map[types.UID]bool{"now": true}, q.Ready()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(3 * time.Second)
		if diff := cmp.Diff(map[types.UID]bool{"late": true}, q.Ready()); diff != "" {
			t.Error(diff)
		}
		if got := q.Ready(); len(got) > 0 {
			t.Errorf("twice: %v", got)
		}
	})
}

func TestIdle(t *testing.T) {
	if !idle(&container.PodStatus{ContainerStatuses: []*container.Status{{State: container.Exited}}}) {
		t.Error("an exited container is idle")
	}
	if idle(&container.PodStatus{ContainerStatuses: []*container.Status{{State: container.Running}}}) {
		t.Error("a running container is not")
	}
	if idle(&container.PodStatus{SandboxStatuses: readySandbox()}) {
		t.Error("a ready sandbox is not")
	}
}
