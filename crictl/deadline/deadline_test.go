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
)

func TestRun(t *testing.T) {
	errCause := errors.New("the command ends")
	hang := func(context.Context) (int, error) {
		time.Sleep(time.Hour)
		return 1, nil
	}
	for _, tt := range []struct {
		name    string
		f       func(context.Context) (int, error)
		grace   time.Duration
		want    int
		wantErr []error
		took    time.Duration
	}{
		{"result", func(context.Context) (int, error) { return 7, nil }, 0, 7, nil, 0},
		{"hang", hang, 0, 0, []error{deadline.ErrAbandoned, errCause}, time.Second},
		{"hang, with grace", hang, time.Minute, 0, []error{deadline.ErrAbandoned, errCause}, time.Second + time.Minute},
		{"partial result within the grace", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return 3, ctx.Err()
		}, time.Minute, 3, []error{context.DeadlineExceeded}, time.Second + time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
				defer cancel()
				began := time.Now()
				got, err := deadline.RunGrace(ctx, "working", tt.grace, tt.f)
				if got != tt.want || (err == nil) != (len(tt.wantErr) == 0) {
					t.Errorf("RunGrace() = %d, %v; want %d, %v", got, err, tt.want, tt.wantErr)
				}
				for _, want := range tt.wantErr {
					if !errors.Is(err, want) {
						t.Errorf("RunGrace() error = %v, does not wrap %v", err, want)
					}
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("RunGrace() took %s, want %s", took, tt.took)
				}
				time.Sleep(2 * time.Hour) // until the abandoned f ends
			})
		})
	}
}

// TestRunPanic covers a panic before the deadline and one of work that was abandoned long ago: neither may end the
// program.
func TestRunPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := deadline.Run(t.Context(), "working", func(context.Context) (string, error) { panic("boom") })
		var p *deadline.PanicError
		if !errors.As(err, &p) || p.Value != "boom" || err.Error() != "internal error: boom" {
			t.Errorf("Run() error = %v, want a PanicError", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = deadline.Run(ctx, "working", func(context.Context) (string, error) {
			time.Sleep(time.Minute)
			panic("late")
		})
		if !errors.Is(err, deadline.ErrAbandoned) {
			t.Errorf("Run() error = %v, want ErrAbandoned", err)
		}
		time.Sleep(time.Hour) // past the late panic
	})
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
