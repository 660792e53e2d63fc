package syncloopcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

func TestLogLines(t *testing.T) {
	l := &logLines{}
	for i := range 3 * keptLines {
		_, _ = fmt.Fprintf(l, "line %d\n", i)
	}
	_, _ = io.WriteString(l, "one\ntwo\n")
	got := l.newest()
	want := []string{fmt.Sprintf("line %d", 3*keptLines-1), "one", "two"}
	if diff := cmp.Diff(want, got[len(got)-3:]); diff != "" || len(got) != keptLines {
		t.Errorf("%d lines, the last three (-want +got):\n%s", len(got), diff)
	}
}

func TestNoTerminal(t *testing.T) {
	env := cli.Env{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	_, err := terminalOf(env)
	if code, message, _ := cli.ExitCode(err); code != cli.ExitUnknown || message != "--tui needs a terminal" {
		t.Errorf("code %d, %q", code, message)
	}
}

// A screen is a terminal of the tests.
type screen struct {
	typed chan []byte

	mu            sync.Mutex
	out           strings.Builder
	width, height int
	err           error // of writing
	restored      int
}

func newScreen() *screen { return &screen{typed: make(chan []byte, 1), width: 80, height: 24} }

func (s *screen) terminal() terminal {
	return terminal{
		in: s, out: s,
		size: func() (int, int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.width, s.height, nil
		},
		raw: func() (func(), error) {
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.restored++
				s.out.WriteString("[restored]")
			}, nil
		},
	}
}

func (s *screen) Read(b []byte) (int, error) {
	typed, ok := <-s.typed
	if !ok {
		return 0, io.EOF
	}
	return copy(b, typed), nil
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.out.Write(b)
}

// taken returns what was drawn since the last time.
func (s *screen) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out.String()
	s.out.Reset()
	return out
}

func (s *screen) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// A watched is a viewer at work in a bubble.
type watched struct {
	*screen
	said bytes.Buffer
	log  *logLines
	done chan error
}

func watch(ctx context.Context, snapshot func() syncloop.Snapshot, work func(context.Context) error) *watched {
	w := &watched{screen: newScreen(), log: &logLines{}, done: make(chan error, 1)}
	v := &viewer{term: w.terminal(), snapshot: snapshot, log: w.log, err: &w.said}
	go func() { w.done <- v.run(ctx, work) }()
	return w
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// turning returns snapshots of a loop that has turned once more each time.
func turning() func() syncloop.Snapshot {
	var turns int64
	return func() syncloop.Snapshot {
		turns++
		s := syncloop.Snapshot{At: time.Now(), Node: "lab"}
		s.Loop.Turns, s.Loop.LastTurn = turns, time.Now()
		s.PLEG.Relists, s.PLEG.Duration = int(turns), time.Millisecond
		return s
	}
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestViewMovesPausesAndQuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t.Context(), turning(), untilDone)
		defer close(w.typed)
		wait(100 * time.Millisecond)
		first := w.taken()
		if !strings.HasPrefix(first, enterScreen) || !strings.Contains(first, "kdiag syncloop") {
			t.Errorf("begins with %q", first)
		}
		_, _ = io.WriteString(w.log, "hello\n")
		wait(2 * time.Second)
		if got := w.taken(); !strings.Contains(got, "3 turns") || !strings.Contains(got, "hello") {
			t.Errorf("it drew %q", got)
		}
		w.typed <- []byte("p")
		wait(2 * time.Second)
		if got := w.taken(); !strings.Contains(got, "paused") || strings.Contains(got, "7 turns") {
			t.Errorf("paused, it drew %q", got)
		}
		w.typed <- []byte("p")
		wait(2 * time.Second)
		if got := w.taken(); strings.Contains(got[len(got)/2:], "paused") {
			t.Errorf("resumed, it drew %q", got)
		}
		w.change(func() { w.width, w.height = 100, 30 })
		wait(time.Second)
		if got := w.taken(); strings.Count(got[strings.LastIndex(got, "\x1b[H"):], "\r\n") != 29 {
			t.Errorf("resized, it drew %q", got)
		}
		w.typed <- []byte("q")
		if err := <-w.done; err != nil {
			t.Error(err)
		}
		if got := w.taken(); !strings.Contains(got, leaveScreen+"[restored]") || w.said.Len() > 0 {
			t.Errorf("ended with %q and wrote %q", got, w.said.String())
		}
	})
}

// TestSnapshotHangs wants the view to go on, with a notice, where a snapshot hangs.
func TestSnapshotHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, once := make(chan struct{}), turning()
		hangs := func() syncloop.Snapshot {
			<-free
			return once()
		}
		w := watch(t.Context(), hangs, untilDone)
		defer close(w.typed)
		wait(10 * time.Second)
		if got := w.taken(); !strings.Contains(got, "no snapshot for ") {
			t.Errorf("drew %q", got)
		}
		w.typed <- []byte("q")
		if err := <-w.done; err != nil {
			t.Error(err)
		}
		close(free)
	})
}

func TestScreenIsGivenBack(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name string
		act  func(w *watched, interrupt func())
		work func(context.Context) error
		err  error
		said string
	}{
		{"interrupted", func(_ *watched, interrupt func()) { interrupt() }, untilDone, nil, ""},
		{"interrupted, the work hangs", func(_ *watched, interrupt func()) { interrupt() }, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}, nil, "kdiag: ending; the runtime has not answered yet"},
		{"the work fails", func(*watched, func()) {}, func(context.Context) error {
			time.Sleep(3 * time.Second)
			return broken
		}, broken, "last words"},
		{"the terminal fails", func(w *watched, _ func()) { w.change(func() { w.screen.err = broken }) }, untilDone, broken, "last words"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				w := watch(ctx, turning(), test.work)
				defer close(w.typed)
				wait(2 * time.Second)
				_, _ = io.WriteString(w.log, "last words\n")
				test.act(w, interrupt)
				if err := <-w.done; !errors.Is(err, test.err) {
					t.Errorf("error %v, want %v", err, test.err)
				}
				if !strings.Contains(w.said.String(), test.said) || test.said == "" && w.said.Len() > 0 {
					t.Errorf("said %q, want %q", w.said.String(), test.said)
				}
				if got := w.taken(); w.restored == 0 || w.screen.err == nil && !strings.Contains(got, leaveScreen) {
					t.Errorf("restored %d times; ended with %q", w.restored, got)
				}
			})
		})
	}
}
