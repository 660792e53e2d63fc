package crictl

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
)

// TestFollow has a call that hangs end when another process listens, and not before. The next call is answered.
func TestFollow(t *testing.T) {
	began := make(chan bool, 1)
	path := listen(t, fake.Scenario{Name: "test", Faults: []fake.Fault{{RPC: "Version", Hang: true}}},
		func(string, string) func() {
			began <- true
			return func() {}
		})
	c, err := Dial(path, Options{})
	must(t, err)
	defer c.Close()
	c.Follow(1) // there is no connection yet
	ended := make(chan Call, 1)
	go func() {
		_, call := c.WithTimeout(time.Hour).Version(t.Context())
		ended <- call
	}()
	<-began
	c.Follow(0)
	c.Follow(os.Getpid())
	if _, call := c.Status(t.Context()); !call.OK() || len(ended) > 0 {
		t.Errorf("the connection to the process that listens was cut: %+v", call)
	}
	<-began
	c.Follow(os.Getpid() + 1)
	if call := <-ended; call.Code != Unavailable {
		t.Errorf("a call to a process that no longer listens: %+v", call)
	}
	if _, call := c.Status(t.Context()); !call.OK() {
		t.Errorf("the call after it: %+v", call)
	}
}

// listen serves a scenario at a new socket until the test ends.
func listen(t *testing.T, s fake.Scenario, watch func(rpc, id string) (ended func())) (path string) {
	t.Helper()
	srv, err := fake.New(s)
	must(t, err)
	srv.Watch = watch
	path = filepath.Join(t.TempDir(), "s")
	stop, err := fake.Listen(context.Background(), srv, path)
	must(t, err)
	t.Cleanup(stop)
	return path
}

func TestSocketID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	id := func(file string) uint64 { return SocketID(t.Context(), file) }
	if n := id(path); n != 0 {
		t.Errorf("without a file: %d", n)
	}
	must(t, os.WriteFile(path, nil, 0o600))
	first := id(path)
	must(t, os.Rename(path, path+"2"))
	must(t, os.WriteFile(path, nil, 0o600))
	if again := id(path); first == 0 || again == first || id("unix://"+path) != again || id("tcp://x:1") != 0 {
		t.Errorf("first %d, another file %d", first, again)
	}
}
