package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestParseUint(t *testing.T) {
	tests := []struct {
		in   string
		want uint64
		err  bool
	}{
		{"max\n", 0, false},
		{"4194304\n", 4194304, false},
		{"18446744073709551615", 18446744073709551615, false},
		{"-1\n", 0, true},
		{"", 0, true},
		{"\x1b[31m", 0, true},
	}
	for _, tt := range tests {
		got, err := parseUint([]byte(tt.in))
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("parseUint(%q) = %d, %v", tt.in, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("parseUint(%q): the error %v holds a control character", tt.in, err)
		}
	}
}

func TestKeyed(t *testing.T) {
	const stat = "nr_descendants 612\nnr_dying_descendants 7\nlast 9"
	for key, want := range map[string]uint64{"nr_descendants": 612, "nr_dying_descendants": 7, "last": 9} {
		if got, ok := keyed([]byte(stat), key); !ok || got != want {
			t.Errorf("keyed %s = %d, %v; want %d", key, got, ok, want)
		}
	}
	for _, in := range []string{"", "nr_descendants x\n", "nr_descendants\n", "nr 5\n", "nr_descendants -1\n"} {
		if got, ok := keyed([]byte(in), "nr_descendants"); ok {
			t.Errorf("keyed of %q = %d", in, got)
		}
	}
}

func FuzzKeyed(f *testing.F) {
	f.Add([]byte("nr_periods 10\nnr_throttled 3\nthrottled_usec 5\n"), "nr_throttled")
	f.Add([]byte("populated 1\nfrozen 0\n"), "frozen")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		if _, ok := keyed(b, key); ok && !bytes.Contains(b, []byte(key+" ")) {
			t.Errorf("keyed finds %q in %q", key, b)
		}
	})
}

// TestPopulationIsTimid wants that the command line of a process in uninterruptible sleep is left alone, which is what a
// FIFO that nobody writes to shows, and that the order puts first what matters.
func TestPopulationIsTimid(t *testing.T) {
	n := newNode(t)
	n.process(10, 1, "nginx", 'S', "nginx")
	n.process(20, 1, "containerd", 'S', "containerd")
	n.process(30, 1, "containerd-shim", 'D', "-")
	n.process(31, 30, "sleep", 'S', "sleep")
	n.process(40, 1, "kubelet", 'S', "kubelet")
	n.write("proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 3 0 0 20 0 1 0 4 0 0\n")
	fifo := filepath.Join(n.root, "proc/30/cmdline")
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := readPopulation(t.Context(), n.root)
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, st := range p.byWorth() {
		order = append(order, st.pid)
	}
	if diff := cmp.Diff([]int{20, 40, 30, 31, 10, 2}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	var daemons []int
	for _, d := range p.daemons() {
		daemons = append(daemons, d.PID)
	}
	if diff := cmp.Diff([]int{20, 40}, daemons); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}
