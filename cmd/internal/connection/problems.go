package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
)

// Problems returns the error of opening a runtime as problems for a document: a runtime that was not found, and bad
// usage where the format is that of a program, which expects a document. Other errors are returned.
func Problems(err error, format string) (problems []string, _ error) {
	if none, ok := errors.AsType[*crictl.NoEndpointError](err); ok {
		problems = []string{"no runtime socket was found; name one with --runtime-endpoint"}
		if none.Late != "" {
			problems[0] = none.Error() + "; name one with --runtime-endpoint"
		}
		return append(problems, passedOver(none.Tried)...), nil
	}
	if err == nil || format == string(render.Text) {
		return nil, err
	}
	_, message, hint := cli.ExitCode(err)
	return slices.DeleteFunc([]string{message, hint}, func(line string) bool { return line == "" }), nil
}

// passedOver lists the rejected endpoints, one line for each reason: most well-known sockets do not exist on any one
// node.
func passedOver(tried []crictl.Tried) []string {
	var lines []string
	at := map[string]int{}
	for _, t := range tried {
		if i, known := at[t.Why]; known {
			lines[i] += ", " + t.What
			continue
		}
		at[t.Why] = len(lines)
		lines = append(lines, t.Why+": "+t.What)
	}
	return lines
}

// Denied is the problem of a user who may not open the socket.
func Denied(endpoint string) string {
	return endpoint + ": permission denied; run with sudo"
}

// ProbeTimeout bounds Probe: the runtime behind a slower socket may hang.
const ProbeTimeout = time.Second

// Probe connects to an endpoint once, without an RPC. The error is one of usage if the endpoint is not a
// socket.
func Probe(ctx context.Context, env cli.Env, endpoint string) (crictl.Connect, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	c := crictl.Dialer(env.Sockets.Dial).Probe(ctx, endpoint)
	return c, cli.Reject(c.State == crictl.ConnectNotSocket, fmt.Sprintf("%s is not a socket: %s", endpoint, c.Err),
		"the socket of containerd is usually /run/containerd/containerd.sock, that of CRI-O /run/crio/crio.sock")
}

// Shorten bounds a text of a runtime or of a kubelet's settings. No real one comes near; a broken one must not fill the
// report.
func Shorten(s string) string { return crictl.Shorten(s, 128) }
