// Package connection opens the runtime that a command's flags mean: the one they name, the one found on this host, or a
// simulated one. It also asks that runtime what the probes of a node need.
package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
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

// simulate starts the embedded runtime.
func (c *Connection) simulate(ctx context.Context, env cli.Env, name string) error {
	scenario, err := Scenario(ctx, name)
	if err != nil {
		return err
	}
	server, err := fake.New(scenario)
	if err != nil {
		return cli.Usage(err.Error(), "kdiag pleg --simulate help lists the scenarios")
	}
	server.Listen = env.Sockets.Listen
	base := os.TempDir()
	if len(base) > 60 {
		base = "/tmp" // the kernel allows a socket's path 107 bytes
	}
	dir, err := os.MkdirTemp(base, "kdiag-")
	if err != nil {
		return cli.Usage("making a folder for the embedded runtime's socket: "+err.Error(), cli.TempHint)
	}
	path := filepath.Join(dir, "cri.sock")
	// The runtime outlives ctx until Close: a node does not go away because kdiag's time is up.
	stop, err := fake.Listen(context.WithoutCancel(ctx), server, path)
	if err != nil {
		_ = os.RemoveAll(dir)
		return fmt.Errorf("starting the embedded runtime: %w", err)
	}
	c.Endpoint = crictl.Endpoint{
		URL: "unix://" + path, Source: crictl.SourceSimulated,
		Reason: "the embedded runtime in scenario " + scenario.Name,
	}
	c.Socket, c.server, c.scenario = c.Endpoint.URL, server, name
	c.close = append(c.close, func() { stop(); _ = os.RemoveAll(dir) })
	return nil
}

// Scenario returns a built-in scenario by its name, or reads one from a file. A name with a slash or a dot
// is a file, whose reading ends with ctx.
func Scenario(ctx context.Context, name string) (fake.Scenario, error) {
	if s, ok := fake.Builtin(name); ok {
		return s, nil
	}
	if !strings.ContainsAny(name, "/.") {
		return fake.Scenario{}, cli.Usage(fmt.Sprintf("there is no scenario %q", name), cmp.Or(
			cli.DidYouMean("", name, fake.Names()),
			"kdiag pleg --simulate help lists them; a file needs a path, such as ./mine.yaml"))
	}
	data, err := deadline.Run(ctx, "reading "+name,
		func(context.Context) ([]byte, error) { return cli.ReadFile(name, maxScenario) })
	if err != nil {
		return fake.Scenario{}, cli.Usage("reading the scenario: "+err.Error(),
			"kdiag pleg --simulate help lists the built-in scenarios")
	}
	s, err := fake.Parse(data)
	s.Name = cmp.Or(s.Name, name)
	if err != nil {
		err = cli.Usage(fmt.Sprintf("%s: %v", name, err), "kdiag runtime serve --help shows the format")
	}
	return s, err
}

// maxScenario bounds a scenario file, in bytes. The built-in ones have a few thousand.
const maxScenario = 4 << 20

// PrintScenarios lists the built-in scenarios, a line each.
func PrintScenarios(w io.Writer) error {
	for _, s := range fake.Builtins() {
		if _, err := fmt.Fprintf(w, "%-20s %s\n", s.Name, s.Summary); err != nil {
			return err
		}
	}
	return nil
}

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
