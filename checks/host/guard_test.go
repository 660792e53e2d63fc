package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/crictl/deadline"
)

// TestPopulationIsNotReadAgain has a service read processes while the memory map of one is locked. The reader that
// waits for it is left alone, and of the others what was known of them stays.
func TestPopulationIsNotReadAgain(t *testing.T) {
	n := newNode(t)
	n.process(10, 1, "containerd", 'S', "/usr/bin/containerd")
	n.process(20, 1, "containerd-shim-runc-v2", 'S', "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id "+idA)
	before := n.processes()
	n.process(30, 10, "containerd", 'S', "")
	held := untilRead(t, n.fifo(procFile(30, "cmdline")))
	var g deadline.Guard
	first, err := ReadPopulation(deadline.WithGuard(held, &g), n.root, testNames, before)
	if !errors.Is(err, deadline.ErrAbandoned) {
		t.Fatalf("reading a locked process: %v, want ErrAbandoned", err)
	}
	again, err := ReadPopulation(deadline.WithGuard(t.Context(), &g), n.root, testNames, first)
	if !errors.Is(err, deadline.ErrAbandoned) || !strings.Contains(err.Error(), "reading processes has been under way") {
		t.Errorf("reading again: %v", err)
	}
	equal(t, "what is known of the shim", before.roles[20], again.roles[20])
	equal(t, "the role of the locked process", RoleRuntime, again.roles[30].Role)
}
