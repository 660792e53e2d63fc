// Package connection opens the runtime that a command's flags mean: the one they name, the one found on this host, or a
// simulated one. It also asks that runtime what the probes of a node need.
package connection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
)

// discoverTimeout bounds the search for the runtime's socket.
const discoverTimeout = 3 * time.Second

// A Connection leads to a runtime, to which nothing has been sent yet. The zero value leads to none.
type Connection struct {
	Endpoint crictl.Endpoint
	Kubelet  *crictl.Kubelet // nil in a simulation, or when no kubelet runs here
	Tried    []crictl.Tried  // the sources before the one that named the endpoint
	NotTaken []crictl.Tried  // processes that call themselves kubelet and were not taken for the node's
	Client   *crictl.Client  // nil where there is no runtime
	Late     chan struct{}   // receives a value when a call has waited for half of its deadline
	Socket   string          // the endpoint as this process sees it, which may have the host below another root
	root     string          // of the host, as this process sees it
	server   *fake.Server    // in a simulation
	scenario string          // of a simulation, as the flag gave it
	close    []func()
}

// Simulated reports whether the runtime is the embedded one.
func (c *Connection) Simulated() bool { return c.Endpoint.Source == crictl.SourceSimulated }

// Close ends the connection and, in a simulation, the runtime.
func (c *Connection) Close() {
	for i := len(c.close) - 1; i >= 0; i-- {
		c.close[i]()
	}
}

// Runtime describes the endpoint for a report.
func (c *Connection) Runtime() checks.Runtime {
	r := checks.Runtime{
		Endpoint:       c.Endpoint.URL,
		EndpointSource: string(c.Endpoint.Source),
		EndpointReason: c.Endpoint.Reason,
	}
	if c.Simulated() {
		r.Simulate = cli.Quote(c.scenario)
	}
	return r
}

// Open finds the runtime that the flags mean. It returns an error of usage for a flag that makes no sense, and a
// *crictl.NoEndpointError when no runtime is found on this host.
func Open(ctx context.Context, env cli.Env, f *cli.Flags) (*Connection, error) {
	if runtime.GOOS != "linux" && f.Simulate == "" && f.Endpoint == "" {
		return nil, cli.Usage("not a Linux node",
			"run kdiag on the node, or read a bundle of it: --from BUNDLE; --simulate SCENARIO needs no node")
	}
	c := &Connection{Late: make(chan struct{}, 1)}
	var err error
	if f.Simulate != "" {
		err = c.simulate(ctx, env, f.Simulate)
	} else {
		err = c.discover(ctx, env, f.Endpoint)
	}
	if err != nil {
		return nil, err
	}
	_, rpc := f.Budget()
	c.Client, err = crictl.Dial(c.Socket, crictl.Options{RPCTimeout: rpc, Late: c.late, Dialer: env.Sockets.Dial})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("preparing a connection to %s: %w", c.Endpoint.URL, err)
	}
	c.close = append(c.close, func() { _ = c.Client.Close() })
	return c, nil
}

// late is called when a call has waited for half of its deadline.
func (c *Connection) late() {
	select {
	case c.Late <- struct{}{}:
	default: // it holds a value already
	}
}

// ParseEndpoint returns the URL of an endpoint as a person gives it to a flag, or an error of usage.
func ParseEndpoint(flag, text string) (string, error) {
	url, err := crictl.ParseEndpoint(text)
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		err = cli.Usage(flag+": "+bad.Error(), bad.Hint)
	}
	return url, err
}

// below returns the address of a socket below root, or the address itself if the socket only exists without the root.
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

// KubeletUses reports whether a kubelet runs here and uses this runtime.
func (c *Connection) KubeletUses() bool {
	return c.Kubelet != nil &&
		(c.Kubelet.Endpoint == "" || crictl.SameEndpoint(c.Kubelet.Endpoint, c.Endpoint.URL))
}

// discover finds the endpoint and the kubelet on this host.
func (c *Connection) discover(ctx context.Context, env cli.Env, flag string) error {
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
		err = &crictl.NoEndpointError{Late: err.Error()}
	}
	if none, ok := errors.AsType[*crictl.NoEndpointError](err); ok && none.Late != "" {
		if t, ok := host.OwnQuota(env.Root); ok {
			none.Late += fmt.Sprintf("; kdiag itself is in %s, which may use %.2g CPUs and was throttled in %s of its periods",
				t.Path, t.Quota, units.Percent(float64(t.Throttled)/float64(t.Periods)))
		}
	}
	if err != nil {
		return err
	}
	c.Endpoint, c.Kubelet, c.Tried, c.NotTaken = d.Endpoint, d.Kubelet, d.Tried, d.NotTaken
	if k := d.Kubelet; k != nil && !c.KubeletUses() && sameFile(env.Root, k.Endpoint, c.Endpoint.URL) {
		k.Endpoint = c.Endpoint.URL // by one name, which everything else compares
	}
	c.root = env.Root
	c.Socket, err = cli.Look(strings.TrimPrefix(c.Endpoint.URL, "unix://"), func() (string, error) {
		return below(env.Root, c.Endpoint.URL), nil
	})
	return err
}

// sameFile reports whether two endpoints lead to one socket on the host, maybe through links.
func sameFile(root, a, b string) bool {
	host := crictl.SeenBy(root, 0)
	a, b = strings.TrimPrefix(a, "unix://"), strings.TrimPrefix(b, "unix://")
	same, err := cli.Look(a, func() (bool, error) {
		first, err := host.Stat(a)
		if err != nil {
			return false, err
		}
		second, err := host.Stat(b)
		return err == nil && os.SameFile(first, second), err
	})
	return err == nil && same
}
