package deadline_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/internal/testkit"
)

func TestRun(t *testing.T) {
	const abandoned = "no answer in time: the command ends"
	hang := func(context.Context) (int, error) {
		time.Sleep(time.Hour)
		return 1, nil
	}
	for _, tt := range []struct {
		name  string
		f     func(context.Context) (int, error)
		grace time.Duration
		want  int
		err   string
		took  time.Duration
	}{
		{"result", func(context.Context) (int, error) { return 7, nil }, 0, 7, "<nil>", 0},
		{"hang, with grace", hang, time.Minute, 0, abandoned, time.Second + time.Minute},
		{"partial result within the grace", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return 3, ctx.Err()
		}, time.Minute, 3, "context deadline exceeded", time.Second + time.Millisecond},
		{"panic", func(context.Context) (int, error) { panic("boom") }, 0, 0, "internal error: boom", 0},
		{"panic of abandoned work", func(context.Context) (int, error) {
			time.Sleep(time.Minute)
			panic("late")
		}, 0, 0, abandoned, time.Second},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			errCause := errors.New("the command ends")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
			defer cancel()
			began := time.Now()
			got, err := deadline.RunGrace(ctx, "working", tt.grace, tt.f)
			if took := time.Since(began); got != tt.want || fmt.Sprint(err) != tt.err || took != tt.took {
				t.Errorf("%d, error %v after %s; want %d, %s after %s", got, err, took, tt.want, tt.err, tt.took)
			}
			if late := tt.err == abandoned; late != errors.Is(err, deadline.ErrAbandoned) || late != errors.Is(err, errCause) {
				t.Errorf("the error wraps others: %v", err)
			}
			time.Sleep(2 * time.Hour) // until the abandoned f ends
		})
	}
}

// TestGuard repeats work that hangs: it is started once, until it has ended. Work of other names is not affected.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g deadline.Guard
		var started atomic.Int64
		release := make(chan struct{})
		try := func(name string) (int64, error) {
			ctx, cancel := context.WithTimeout(deadline.WithGuard(t.Context(), &g), time.Second)
			defer cancel()
			return deadline.Run(ctx, name, func(context.Context) (int64, error) {
				n := started.Add(1)
				if name == "hangs" {
					<-release
				}
				return n, nil
			})
		}
		for range 3 {
			if _, err := try("hangs"); !errors.Is(err, deadline.ErrAbandoned) || started.Load() != 1 {
				t.Errorf("error %v after %d starts, want ErrAbandoned after one", err, started.Load())
			}
			time.Sleep(time.Minute)
		}
		_, err := try("hangs")
		if want := "no answer in time: hangs has been under way for 3m1s"; fmt.Sprint(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if _, err := try("other"); err != nil || started.Load() != 2 {
			t.Errorf("other work: %v after %d starts", err, started.Load())
		}
		close(release)
		synctest.Wait()
		if _, err := try("hangs"); err != nil || started.Load() != 3 {
			t.Errorf("work that has ended: %v after %d starts", err, started.Load())
		}
	})
}
