package host

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func FuzzKeyed(f *testing.F) {
	f.Add([]byte("nr_periods 10\nnr_throttled 3\nthrottled_usec 5\n"), "nr_throttled")
	f.Add([]byte("populated 1\nfrozen 0\n"), "frozen")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		if _, ok := keyed(b, key); ok && !bytes.Contains(b, []byte(key+" ")) {
			t.Errorf("keyed finds %q in %q", key, b)
		}
	})
}

// TestWithin wants the error of a read that does not end, or panics, to name what was being read, and what a read returns
// at its deadline to be kept.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		_, err := within(ctx, func(at *position) (int, error) {
			at.enter("the cgroup of process %d", 7)
			<-release
			return 1, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the cgroup of process 7") {
			t.Errorf("of a read that does not end: %v", err)
		}
		close(release)
		got, err := within(ctx, func(*position) (int, error) { return 2, ctx.Err() })
		if got != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a read that ends at its deadline: %d, %v", got, err)
		}
		_, err = within(t.Context(), func(at *position) (int, error) {
			at.enter("the cgroup of process %d", 7)
			panic("boom")
		})
		if err == nil || !strings.Contains(err.Error(), "reading the cgroup of process 7: internal error: boom") {
			t.Errorf("of a read that panics: %v", err)
		}
	})
}

func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := gather(t.Context(), []int{1, 2, 3, 4}, func(at *position, key int) (int, bool) {
			at.enter("number %d", key)
			time.Sleep(time.Duration(key) * time.Second / 2)
			return key * key, key != 2
		})
		if len(got) != 1 || got[1] != 1 || err == nil || !strings.Contains(err.Error(), "number 3") {
			t.Errorf("of the first two, one of which has no value: %v, %v", got, err)
		}
		time.Sleep(time.Minute) // until the goroutine that was left behind has ended
	})
}
