package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

var errSick = errors.New("sick")

// A writer is a runtime with one container, which writes to an open file as a runtime does: a renamed one stays open.
type writer struct {
	path      string
	mu        sync.Mutex
	container *runtimeapi.Container
	out       *os.File
	reopenErr error
	listErr   error
	reopened  int
}

func newWriter(t *testing.T, dir string) *writer {
	t.Helper()
	w := &writer{path: filepath.Join(dir, "shop_p_uid", "c", "0.log"), container: &runtimeapi.Container{
		Id: "x", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: map[string]string{container.OwnerLabel: "n"},
	}}
	if err := os.MkdirAll(filepath.Dir(w.path), 0o755); err != nil {
		t.Fatal(err)
	}
	w.open(t)
	t.Cleanup(func() { _ = w.out.Close() })
	return w
}

func (w *writer) open(t *testing.T) {
	t.Helper()
	var err error
	if w.out, err = os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640); err != nil {
		t.Fatal(err)
	}
}

func (w *writer) write(t *testing.T, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.out.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (w *writer) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{w.container}, w.listErr
}

func (w *writer) ContainerStatus(context.Context, string) (*runtimeapi.ContainerStatus, error) {
	return &runtimeapi.ContainerStatus{Id: "x", LogPath: w.path}, nil
}

func (w *writer) ReopenContainerLog(context.Context, string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopened++
	if w.reopenErr != nil {
		return w.reopenErr
	}
	_ = w.out.Close()
	var err error
	w.out, err = os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	return err
}

func (w *writer) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopenErr = nil
}

// files are those beside the log, with their content; of compressed ones what was in them.
func (w *writer) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(w.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(filepath.Dir(w.path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var in io.Reader = f
		if strings.HasSuffix(e.Name(), ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

// run runs a Manager over a writer in a bubble, in which it is the 1st of January 2000 at midnight UTC.
func run(t *testing.T, change func(*Config, *writer), during func(t *testing.T, w *writer, said *strings.Builder)) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newWriter(t, dir)
		said := &strings.Builder{}
		cfg := Config{
			CRI: w, NodeName: "n", LogDir: dir, MaxSize: "10", MaxFiles: 4, Workers: 1, Period: period,
			Log: funcr.New(func(_, line string) { fmt.Fprintln(said, line) }, funcr.Options{}),
		}
		if change != nil {
			change(&cfg, w)
		}
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		during(t, w, said)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

const period = 10 * time.Second

// next lets the next round pass.
func next() {
	time.Sleep(period)
	synctest.Wait()
}

// at is the name of the log that was rotated so many seconds after the bubble's beginning.
func at(seconds int) string {
	return "0.log." + time.Date(2000, 1, 1, 0, 0, seconds, 0, time.UTC).Local().Format(stampFormat)
}

func TestRotation(t *testing.T) {
	run(t, nil, func(t *testing.T, w *writer, said *strings.Builder) {
		w.write(t, "123456789")
		next()
		if diff := cmp.Diff(map[string]string{"0.log": "123456789"}, w.files(t)); diff != "" {
			t.Fatal("a log that is too short: " + diff)
		}
		w.write(t, "0")
		next()
		if diff := cmp.Diff(map[string]string{"0.log": "", at(20): "1234567890"}, w.files(t)); diff != "" {
			t.Fatal("one that is just long enough: " + diff)
		}
		for i := range 4 {
			w.write(t, fmt.Sprintf("%d: a long line", i))
			next()
		}
		want := map[string]string{
			"0.log": "", at(60): "3: a long line", at(50) + ".gz": "2: a long line", at(40) + ".gz": "1: a long line",
		}
		if diff := cmp.Diff(want, w.files(t)); diff != "" {
			t.Error("of four files two are compressed: " + diff)
		}
		if info, err := os.Stat(filepath.Join(filepath.Dir(w.path), at(50)+".gz")); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("who may read the log may read it still: %v, %v", info, err)
		}
		if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"workers"=1 "monitorPeriod"="10s"`) {
			t.Error(text)
		}
	})
}

func TestLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*Config, *writer){
		"another node's":        func(_ *Config, w *writer) { w.container.Labels[container.OwnerLabel] = "other" },
		"exited":                func(_ *Config, w *writer) { w.container.State = runtimeapi.ContainerState_CONTAINER_EXITED },
		"outside":               func(c *Config, _ *writer) { c.LogDir += "/elsewhere" },
		"rotation is off":       func(c *Config, _ *writer) { c.MaxSize = "-1" },
		"the runtime is broken": func(_ *Config, w *writer) { w.listErr = errSick },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, change, func(t *testing.T, w *writer, said *strings.Builder) {
				w.write(t, "far too long a line")
				next()
				if diff := cmp.Diff(map[string]string{"0.log": "far too long a line"}, w.files(t)); diff != "" || w.reopened > 0 {
					t.Errorf("reopened %d times: %s", w.reopened, diff)
				}
				if told := strings.Contains(said.String(), `"Failed to rotate container logs" "error"="failed to list containers: sick"`); told != (w.listErr != nil) {
					t.Error(said)
				}
			})
		})
	}
}

func TestReopenFails(t *testing.T) {
	run(t, func(_ *Config, w *writer) { w.reopenErr = errSick }, func(t *testing.T, w *writer, said *strings.Builder) {
		w.write(t, "far too long a line")
		next()
		w.write(t, ", and more")
		if diff := cmp.Diff(map[string]string{"0.log": "far too long a line, and more"}, w.files(t)); diff != "" {
			t.Error("it is what it was: " + diff)
		}
		if !strings.Contains(said.String(), `"Failed to rotate log for container" "error"="failed to reopen container log \"x\": sick"`) {
			t.Error(said)
		}
		w.heal()
		next()
		if diff := cmp.Diff(map[string]string{"0.log": "", at(20): "far too long a line, and more"}, w.files(t)); diff != "" {
			t.Error("tried again: " + diff)
		}
	})
}

func TestLogTakenAway(t *testing.T) {
	run(t, nil, func(t *testing.T, w *writer, said *strings.Builder) {
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		next()
		w.write(t, "again")
		if diff := cmp.Diff(map[string]string{"0.log": "again"}, w.files(t)); diff != "" || strings.Contains(said.String(), "error") {
			t.Error(diff, said)
		}
	})
}

// With periods shorter than the second that a name tells apart, no log may take the place of another.
func TestTwiceInASecond(t *testing.T) {
	run(t, func(c *Config, _ *writer) { c.Period = 100 * time.Millisecond }, func(t *testing.T, w *writer, _ *strings.Builder) {
		for i := range 3 {
			w.write(t, fmt.Sprintf("%d: a long line\n", i))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if diff := cmp.Diff(map[string]string{"0.log": "1: a long line\n2: a long line\n", at(0): "0: a long line\n"}, w.files(t)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNewErrors(t *testing.T) {
	for _, cfg := range []Config{{MaxSize: "10Mi", MaxFiles: 1}, {MaxSize: "ten", MaxFiles: 5}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
