package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// A script answers the looks of an agent, and notes what it does.
type script struct {
	began time.Time
	sick  func(after time.Duration) bool
	looks []string // when each was made, and how
	taken []string
}

func (s *script) look(_ context.Context, closely bool) (*observation, error) {
	after := time.Since(s.began)
	how := ""
	if closely {
		how = " closely"
	}
	s.looks = append(s.looks, after.String()+how)
	r := &checks.Report{Header: checks.Header{GeneratedAt: time.Now(), Status: checks.Healthy}}
	if s.sick(after) {
		r.Status = checks.Unhealthy
		r.Causes = []checks.Cause{{
			Code: "RuntimeHung", Severity: checks.Critical, Confidence: 0.8, Summary: "containerd is stopped",
		}}
	}
	return &observation{&facts.Input{Now: time.Now()}, r}, nil
}

func (s *script) capture(_ context.Context, _ *observation, cause string) checks.TakenCapture {
	s.taken = append(s.taken, fmt.Sprintf("%v %s", time.Since(s.began), cause))
	return checks.TakenCapture{At: time.Now(), Cause: cause}
}

// run runs an agent for a time.
func (s *script) run(t *testing.T, d time.Duration, change func(*service)) *service {
	t.Helper()
	s.began = time.Now()
	a := newService(cli.Env{}, &options{interval: 30 * time.Second}, slog.New(slog.DiscardHandler))
	a.observe, a.capture = s.look, s.capture
	if change != nil {
		change(a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	a.loop(ctx)
	return a
}

// TestLoop looks closely for two minutes when something begins, and takes evidence once.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(after time.Duration) bool { return after >= time.Minute && after < 5*time.Minute }}
		a := s.run(t, 6*time.Minute-time.Second, nil)
		must(t, a.wait(t.Context()))
		if len(s.looks) < 20 {
			t.Fatalf("%v", s.looks)
		}
		if diff := cmp.Diff([]string{"0s", "30s", "1m0s"}, s.looks[:3]); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
		closely := strings.Count(strings.Join(s.looks, ","), "closely")
		if closely < 23 || closely > 26 {
			t.Errorf("%d close looks: %v", closely, s.looks)
		}
		if diff := cmp.Diff([]string{"1m5s RuntimeHung"}, s.taken); diff != "" {
			t.Errorf("evidence (-want +got):\n%s", diff)
		}
		if r := a.lastReport(); r == nil || r.Status != checks.Healthy || !a.alive() {
			t.Errorf("%+v, alive %v", r, a.alive())
		}
	})
}

// TestUploads takes evidence at the onset as well, and, of a node that is about to be removed or of an agent that ends,
// unless the node is well or there is evidence not long ago.
func TestUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(after time.Duration) bool {
			return after >= time.Minute && after < 30*time.Minute || after >= 150*time.Minute
		}}
		var a *service
		leave := func(after time.Duration, ready bool) {
			time.AfterFunc(after, func() { a.leave("a taint", ready) })
		}
		s.run(t, 150*time.Minute+time.Second, func(of *service) {
			a = of
			a.uploads = upload.NewQueue(upload.QueueOptions{Target: &upload.Target{}})
			a.endEvidence = func() {}
			leave(30*time.Second, true)
			leave(time.Minute+2*time.Second, true)  // packed at the onset
			leave(20*time.Minute+time.Second, true) // and again later
			leave(21*time.Minute, true)
			leave(time.Hour, true)               // gone
			leave(61*time.Minute, false)         // and not ready nevertheless
			leave(2*time.Hour+time.Second, true) // well
		})
		a.finishUploads()
		must(t, a.wait(t.Context()))
		want := []string{
			"1m0s RuntimeHung", "1m5s RuntimeHung", "20m1s RuntimeHung", "1h1m0s NodeLeaving", "2h30m0s RuntimeHung",
		}
		if diff := cmp.Diff(want, s.taken); diff != "" {
			t.Errorf("evidence (-want +got):\n%s", diff)
		}
	})
}

// TestCaptureEachHour takes evidence of a cause that comes back at most once in an hour.
func TestCaptureEachHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(after time.Duration) bool { return after%(20*time.Minute) > 15*time.Minute }}
		must(t, s.run(t, 3*time.Hour, nil).wait(t.Context()))
		if n := len(s.taken); n < 2 || n > 3 {
			t.Errorf("%d archives: %v", n, s.taken)
		}
	})
}

// TestAlive has looks each second that take as long as they may.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(time.Duration) bool { return false }}
		a := s.run(t, 79*time.Second, func(a *service) {
			a.opts.interval = time.Second
			a.observe = func(ctx context.Context, closely bool) (*observation, error) {
				time.Sleep(20 * time.Second)
				return s.look(ctx, closely)
			}
		})
		if !a.alive() {
			t.Error("not alive while calls hang")
		}
		must(t, a.wait(t.Context()))
	})
}

// TestEnds ends at once while a look hangs, and an agent that cannot look is still alive.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(time.Duration) bool { return false }}
		release := make(chan struct{})
		began := time.Now()
		a := s.run(t, time.Hour, func(a *service) {
			looks := 0
			a.observe = func(ctx context.Context, _ bool) (*observation, error) {
				if looks++; looks == 2 {
					<-release
				}
				return nil, errors.New("no permission")
			}
		})
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it ended after %v", took)
		}
		if r := a.lastReport(); a.alive() || r == nil || r.Status != checks.Unknown || len(r.Problems) != 1 {
			t.Errorf("alive %v, %+v", a.alive(), r)
		}
		close(release)
	})
}
