package target

import (
	"context"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
)

// ProbeTimeout bounds Probe. The runtime behind a slower socket may hang.
const ProbeTimeout = time.Second

// Probe connects to an endpoint once, without an RPC. The error is that of NotSocket.
func Probe(ctx context.Context, endpoint string) (crictl.Connect, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	c := crictl.Probe(ctx, endpoint)
	return c, NotSocket(endpoint, c)
}

// NotSocket returns a *cli.UsageError for an endpoint that is not a socket, and nil for all others.
func NotSocket(endpoint string, c crictl.Connect) error {
	if c.State != crictl.ConnectNotSocket {
		return nil
	}
	return &cli.UsageError{
		Problem: fmt.Sprintf("%s is not a socket: %s", endpoint, c.Err),
		Hint:    "the socket of containerd is usually /run/containerd/containerd.sock, that of CRI-O /run/crio/crio.sock",
	}
}
