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

func TestParseKeys(t *testing.T) {
	tests := []struct {
		in   string
		keys []key
		rest string
	}{
		{"q", []key{keyQuit}, ""},
		{"pP ", []key{keyPause, keyPause, keyPause}, ""},
		{"\x1b[A\x1b[B\x1bOA\x1bOB", []key{keyUp, keyDown, keyUp, keyDown}, ""},
		{"\x1b[5~\x1b[6~", []key{keyPageUp, keyPageDown}, ""},
		{"jk", []key{keyDown, keyUp}, ""},
		{"\x1b[C\x1b[15~q", []key{keyQuit}, ""},
		{"p\x1b[", []key{keyPause}, "\x1b["},
		{"\x1b[5", nil, "\x1b[5"},
		{"xyz", nil, ""},
		{"", nil, ""},
	}
	for _, test := range tests {
		keys, rest := parseKeys([]byte(test.in))
		if diff := cmp.Diff(test.keys, keys); diff != "" || string(rest) != test.rest {
			t.Errorf("%q: rest %q, want %q (-want +got):\n%s", test.in, rest, test.rest, diff)
		}
	}
}

// FuzzParseKeys wants the same keys wherever the input is split.
func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("\x1b[Aq\x1b[5~p\x1bOBz"), 2)
	f.Add([]byte("\x1b\x1b[6~"), 1)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if at < 0 || at > len(b) {
			return
		}
		whole, rest := parseKeys(bytes.Clone(b))
		first, pending := parseKeys(bytes.Clone(b[:at]))
		second, restOfSplit := parseKeys(append(bytes.Clone(pending), b[at:]...))
		if diff := cmp.Diff(whole, append(first, second...)); diff != "" || !bytes.Equal(rest, restOfSplit) {
			t.Errorf("%q split at %d: rest %q and %q (-whole +split):\n%s", b, at, rest, restOfSplit, diff)
		}
	})
}

func TestRing(t *testing.T) {
	r := &ring{}
	for i := range 3 * ringLines {
		_, _ = fmt.Fprintf(r, "line %d\n", i)
	}
	_, _ = io.WriteString(r, "one\ntwo "+strings.Repeat("x", 2*ringLine))
	_, _ = io.WriteString(r, "end\nnot yet ended")
	got := r.newest()
	want := []string{fmt.Sprintf("line %d", 3*ringLines-1), "one", "two " + strings.Repeat("x", ringLine-len("two "))}
	if diff := cmp.Diff(want, got[len(got)-3:]); diff != "" || len(got) != ringLines {
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
		mode: func() (func(), error) {
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
	select {
	case typed := <-s.typed:
		return copy(b, typed), nil
	case <-time.After(100 * time.Millisecond):
		return 0, io.EOF
	}
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
	log  *ring
	done chan error
}

func watch(ctx context.Context, snapshot func() syncloop.Snapshot, work func(context.Context) error) *watched {
	w := &watched{screen: newScreen(), log: &ring{}, done: make(chan error, 1)}
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
		wait(100 * time.Millisecond)
		first := w.taken()
		if !strings.HasPrefix(first, enterScreen) || !strings.Contains(first, "kdiag syncloop") {
			t.Errorf("begins with %q", first)
		}
		_, _ = io.WriteString(w.log, "hello\n")
		wait(2 * time.Second)
		if got := w.taken(); !strings.Contains(got, "turns") || !strings.Contains(got, "hello") || strings.Contains(got, "SOURCES") {
			t.Errorf("not what has changed, or more: %q", got)
		}
		w.typed <- []byte("p")
		wait(2 * time.Second)
		if got := w.taken(); !strings.Contains(got, "paused for") || strings.Contains(got, "turns") {
			t.Errorf("paused, it drew %q", got)
		}
		w.typed <- []byte("p")
		wait(2 * time.Second)
		if got := w.taken(); !strings.Contains(got, "turns") {
			t.Errorf("resumed, it drew %q", got)
		}
		w.change(func() { w.width, w.height = 100, 30 })
		wait(time.Second)
		if got := w.taken(); !strings.Contains(got, clearScreen) || !strings.Contains(got, "SOURCES") || !strings.Contains(got, "\x1b[30;1H") {
			t.Errorf("resized, it drew %q", got)
		}
		w.typed <- []byte("q")
		if err := <-w.done; err != nil {
			t.Error(err)
		}
		if got := w.taken(); !strings.Contains(got, leaveScreen+"[restored]") || w.said.Len() > 0 {
			t.Errorf("ended with %q and said %q", got, w.said.String())
		}
	})
}

// TestSnapshotHangs wants the view to go on where the syncLoop gives no answer, and to say so.
func TestSnapshotHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, once := make(chan struct{}), turning()
		hangs := func() syncloop.Snapshot {
			<-free
			return once()
		}
		w := watch(t.Context(), hangs, untilDone)
		wait(10 * time.Second)
		if got := w.taken(); !strings.Contains(got, "no answer of the syncLoop for 9") {
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
