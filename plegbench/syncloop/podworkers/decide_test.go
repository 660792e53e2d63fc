package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestEffectiveGrace(t *testing.T) {
	n := func(i int64) *int64 { return &i }
	for name, tt := range map[string]struct {
		previous                 int64
		deletion, spec, override *int64
		want                     int64
		shortened                bool
	}{
		"none requested":            {0, nil, nil, nil, 1, false},
		"of the pod's spec":         {0, nil, n(30), nil, 30, false},
		"of the source":             {0, n(10), n(30), nil, 10, false},
		"eviction is faster":        {0, n(10), n(30), n(5), 5, false},
		"eviction cannot be slower": {0, n(10), n(30), n(20), 10, false},
		"at least a second":         {0, n(0), n(30), n(20), 1, false},
		"zero of an override":       {0, nil, n(30), n(0), 1, false},
		"stays":                     {30, nil, n(60), nil, 30, false},
		"shrinks by source":         {30, n(10), n(60), nil, 10, true},
		"shrinks by override":       {30, nil, n(60), n(10), 10, true},
		"does not grow":             {10, n(30), n(60), n(40), 10, false},
		"least does not shrink":     {1, n(0), nil, n(0), 1, false},
	} {
		p := &v1.Pod{}
		p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds = tt.deletion, tt.spec
		if got, shortened := effectiveGrace(tt.previous, p, tt.override); got != tt.want || shortened != tt.shortened {
			t.Errorf("%s: %d, shortened %v; want %d, %v", name, got, shortened, tt.want, tt.shortened)
		}
	}
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(s int) error {
			return &BackOffError{errors.New("x"), time.Now().Add(time.Duration(s) * time.Second)}
		}
		cfg := &Config{ResyncInterval: time.Minute, BackOff: 10 * time.Second, TransientBackOff: time.Second}
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
