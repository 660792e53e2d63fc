//go:build e2e

package containerd

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

func TestMain(m *testing.M) { nodebox.Main(m) }

// A node is a private containerd, and clients of it: kdiag's and the kubelet's.
type node struct {
	*nodebox.Containerd
	client *crictl.Client
	cri    *remote.Service
}

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{Containerd: nodebox.Start(t, nodebox.Options{Network: true, RootSize: 1 << 30})}
	var err error
	n.client, err = crictl.Dial(n.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = n.client.Close() })
	n.cri, err = remote.Dial(n.Endpoint(), remote.Options{})
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = n.cri.Close() })
	return n
}

// finish waits for the end of a run, and returns its document and exit code.
func finish[T any](t *testing.T, p *e2etest.Process) (*T, int) {
	t.Helper()
	o := p.Wait()
	return e2etest.Decode[T](t, o), o.Code
}
