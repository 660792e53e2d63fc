package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		_, err := within(ctx, func(at *position) (int, error) {
			at.enter("the cgroup of process 7 (x)")
			<-release
			return 1, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the cgroup of process 7 (x)") {
			t.Errorf("of a look that does not end: %v", err)
		}
		close(release)

		got, err := within(ctx, func(*position) (int, error) { return 2, ctx.Err() })
		if got != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a look that hands in what it has at the end of its time: %d, %v", got, err)
		}
	})
}

func TestWithinCatchesPanics(t *testing.T) {
	_, err := within(t.Context(), func(at *position) (int, error) {
		at.enter("the cgroup of process 7 (x)")
		panic("boom")
	})
	if err == nil || !strings.Contains(err.Error(), "reading the cgroup of process 7 (x): boom") {
		t.Errorf("of a look that panics: %v", err)
	}
}

func TestScanCatchesPanics(t *testing.T) {
	s := newScan(t.TempDir())
	err := s.bounded(t.Context(), func() error {
		s.readOf(stat{pid: 7, comm: "x"}, "cgroup")
		panic("boom")
	})
	if err == nil || !strings.Contains(err.Error(), "reading cgroup of process 7 (x): boom") {
		t.Errorf("of a scan that panics: %v", err)
	}
}
