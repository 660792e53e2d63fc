package host

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	p, err := ReadPopulation(t.Context(), n.root)
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

// TestPopulationOfAStuckDaemon wants the daemons known by their names when a command line never comes, as of a process
// whose memory map is locked.
func TestPopulationOfAStuckDaemon(t *testing.T) {
	n := newNode(t)
	n.process(20, 1, "containerd", 'S', "-")
	n.process(40, 1, "kubelet", 'S', "kubelet")
	fifo := filepath.Join(n.root, "proc/20/cmdline")
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPopulation(untilRead(t, fifo), n.root)
	if err == nil {
		t.Error("no error, although a command line never came")
	}
	var daemons []int
	for _, d := range p.daemons() {
		daemons = append(daemons, d.PID)
	}
	if diff := cmp.Diff([]int{20, 40}, daemons); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}
