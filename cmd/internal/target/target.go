// Package target opens the runtime that a command means, given, found on the host or simulated, and asks it, the node
// and the logs. It also holds what the diagnosing commands share around that: progress, what kept kdiag from looking,
// the exit code.
package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
)

// discoverTimeout bounds the search for the runtime's socket.
const discoverTimeout = 3 * time.Second

// A Target is a runtime to ask. Nothing has been sent to it yet.
type Target struct {
	Endpoint crictl.Endpoint
	Kubelet  *crictl.Kubelet // nil in a simulation, or when no kubelet runs here
	Tried    []crictl.Tried  // what was passed over on the way to the endpoint
	NotTaken []crictl.Tried  // processes that call themselves kubelet and were not taken for the node's
	Client   *crictl.Client
	socket   string
	fake     *fake.Server // in a simulation
	scenario string       // of a simulation, as it was given
	close    []func()
	once     sync.Once
	late     chan struct{} // closed by dumpNow
	hangs    bool          // a call hung when it was closed
}

func newTarget() *Target { return &Target{late: make(chan struct{})} }

// dumpNow has goroutine dumps taken if they are asked for: when a call has been without an answer for half of its
// deadline, else after the measurement.
func (t *Target) dumpNow(hangs bool) {
	t.once.Do(func() {
		t.hangs = hangs
		close(t.late)
	})
}

// Simulated reports whether the runtime is the embedded one.
func (t *Target) Simulated() bool { return t.Endpoint.Source == crictl.SourceSimulated }

// Socket is the address of the endpoint for this process, which may see the host's files below another root.
func (t *Target) Socket() string { return t.socket }

// Close ends the connection and, in a simulation, the runtime.
func (t *Target) Close() {
	for i := len(t.close) - 1; i >= 0; i-- {
		t.close[i]()
	}
}

// Runtime describes the target for a report.
func (t *Target) Runtime() checks.Runtime {
	r := checks.Runtime{
		Endpoint:       t.Endpoint.URL,
		EndpointSource: string(t.Endpoint.Source),
		EndpointReason: t.Endpoint.Reason,
	}
	if t.Simulated() {
		r.Simulate = Quote(t.scenario)
	}
	return r
}

// Open finds the runtime that the flags mean. It returns an error of usage for a flag that makes no sense and a
// *crictl.NoEndpointError when the host has no runtime that could be asked.
func Open(ctx context.Context, env cli.Env, f *cli.Flags) (*Target, error) {
	_, rpc := f.Budget()
	t := newTarget()
	if runtime.GOOS != "linux" && f.Simulate == "" && f.Endpoint == "" {
		return nil, cli.Usage("this machine is no node: it does not run Linux",
			"run kdiag on the node, or read here what came from it: --from BUNDLE; --simulate SCENARIO needs no node")
	}
	if f.Simulate != "" {
		if err := t.simulate(ctx, env, f.Simulate); err != nil {
			return nil, err
		}
	} else if err := t.discover(ctx, env, f.Endpoint); err != nil {
		return nil, err
	}
	t.socket = t.Endpoint.URL
	if !t.Simulated() {
		var err error
		t.socket, err = cli.Look(strings.TrimPrefix(t.Endpoint.URL, "unix://"), func() (string, error) {
			return below(env.Root, t.Endpoint.URL), nil
		})
		if err != nil {
			return nil, err
		}
	}
	client, err := crictl.Dial(t.socket, crictl.Options{
		RPCTimeout: rpc, Late: func() { t.dumpNow(true) }, Dialer: env.Sockets.Dial,
	})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("preparing a connection to %s: %w", t.Endpoint.URL, err)
	}
	t.Client = client
	t.close = append(t.close, func() { _ = client.Close() })
	return t, nil
}

// ParseEndpoint returns the URL of an endpoint as a person gives it to a flag, or an error of usage.
func ParseEndpoint(flag, text string) (string, error) {
	url, err := crictl.ParseEndpoint(text)
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		err = cli.Usage(flag+": "+bad.Error(), bad.Hint)
	}
	return url, err
}

// below returns a socket's address as this process sees it: below root, unless it is only there without.
func below(root, url string) string {
	path, ok := strings.CutPrefix(url, "unix://")
	if root == "/" || root == "" || !ok {
		return url
	}
	here := ""
	err := crictl.InRoot(root, path, func(opened string) error {
		real, err := os.Readlink(opened)
		if here = real; err != nil { // opened is the plain path, where the kernel cannot resolve below a root
			here = opened
			_, err = os.Lstat(opened)
		}
		return err
	})
	if err == nil {
		return "unix://" + here
	}
	if _, err := os.Lstat(path); err == nil {
		return url
	}
	return "unix://" + filepath.Join(root, path)
}

func (t *Target) discover(ctx context.Context, env cli.Env, flag string) error {
	// Reading another process's files can block when it is stuck in the kernel.
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	d, err := deadline.Run(ctx, "searching the runtime", func(ctx context.Context) (crictl.Discovery, error) {
		return crictl.Discover(ctx, crictl.DiscoverOptions{Flag: flag, Getenv: env.Getenv, Root: env.Root})
	})
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		return cli.Usage(bad.Error(), bad.Hint)
	}
	if errors.Is(err, deadline.ErrAbandoned) {
		return fmt.Errorf("looking for the runtime's socket: %w", err)
	}
	if err != nil {
		return err
	}
	t.Endpoint, t.Kubelet, t.Tried, t.NotTaken = d.Endpoint, d.Kubelet, d.Tried, d.NotTaken
	return nil
}
