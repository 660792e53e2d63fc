package crictl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// EndpointEnv is the environment variable that names the runtime's socket, the same as crictl's.
const EndpointEnv = "CONTAINER_RUNTIME_ENDPOINT"

// CrictlConfig is where crictl keeps its configuration.
const CrictlConfig = "/etc/crictl.yaml"

// lookTimeout bounds each look at the host: the search for the kubelet, each configuration file, each socket. Reading
// /proc or a file can hang on a node with stuck processes or a dead disk; the next source may still answer.
const lookTimeout = 2 * time.Second

// DiscoverOptions say where to look for an endpoint.
type DiscoverOptions struct {
	Flag   string              // --runtime-endpoint; empty when not given
	Getenv func(string) string // nil means an empty environment
	Root   string              // the host's root directory as this process sees it; empty means "/"
}

// A Tried is a source that was consulted and gave no endpoint.
type Tried struct {
	Source Source
	What   string // the flag, variable, process, file or socket
	Why    string // why it gave none, such as "not set"
}

// A Discovery is the endpoint that was found, what was tried before it, and the kubelet that runs here.
type Discovery struct {
	Endpoint Endpoint
	Kubelet  *Kubelet // nil when none runs on this host or none may be seen
	Tried    []Tried  // in the order tried
	// NotTaken are processes that call themselves kubelet on this host and were not taken for the node's, and why.
	NotTaken []Tried
}

// A NoEndpointError says that no source gave an endpoint.
type NoEndpointError struct {
	Tried []Tried
}

// Error returns one line. Why each source gave nothing is in Tried.
func (e *NoEndpointError) Error() string {
	return fmt.Sprintf("no container runtime endpoint found, in %d places looked at", len(e.Tried))
}

// Discover chooses the runtime's endpoint: the flag, else the environment, else what the running kubelet was told, else
// /etc/crictl.yaml, else the first well-known socket that exists, else the default of a kubelet that runs and says
// nothing, else what a kubelet that does not run was told, or what the shims of a runtime that does not run were. Only the well-known sockets are looked at; that a chosen one does not exist is for Probe to find out.
//
// The settings of the running kubelet are read in any case. The error is an *EndpointError when the flag or the variable
// is no address of a unix socket, a *NoEndpointError when nothing was found, or the context's; the Discovery holds what
// was learnt until then.
func Discover(ctx context.Context, opts DiscoverOptions) (Discovery, error) {
	if opts.Root == "" {
		opts.Root = "/"
	}
	d := &discovery{root: opts.Root}
	defaultURL := d.findKubelet(ctx)
	found, err := d.choose(ctx, opts)
	if err == nil && !found {
		found = d.useDefault(defaultURL) || d.fromLeft(ctx)
	}
	switch {
	case err != nil:
		return d.Discovery, err
	case found:
		return d.Discovery, nil
	case ctx.Err() != nil:
		return d.Discovery, fmt.Errorf("looking for the runtime's endpoint: %w", ctx.Err())
	}
	return d.Discovery, &NoEndpointError{Tried: d.Tried}
}

// A discovery is a Discovery in the making.
type discovery struct {
	Discovery
	root string
	// aboutKubelet is what was tried to find the kubelet. It enters Tried when the kubelet's turn comes.
	aboutKubelet []Tried
}

func (d *discovery) choose(ctx context.Context, opts DiscoverOptions) (found bool, err error) {
	for _, g := range []struct {
		source      Source
		what, value string
		reason      string
	}{
		{SourceFlag, "--runtime-endpoint", opts.Flag, "given with --runtime-endpoint"},
		{SourceEnv, "$" + EndpointEnv, getenv(opts.Getenv, EndpointEnv), "given by the environment variable " + EndpointEnv},
	} {
		if g.value == "" {
			d.reject(g.source, g.what, "not set")
			continue
		}
		// A person gave this one. Going on to another runtime behind his back would be wrong.
		url, err := ParseEndpoint(g.value)
		if err != nil {
			return false, withSource(err, g.source)
		}
		return d.use(Endpoint{URL: url, Source: g.source, Reason: g.reason}), nil
	}
	return d.fromKubelet() || d.fromConfig(ctx) || d.fromWellKnown(ctx), nil
}

func (d *discovery) use(e Endpoint) bool {
	d.Endpoint = e
	return true
}

func (d *discovery) reject(source Source, what, why string) bool {
	d.Tried = append(d.Tried, Tried{source, what, why})
	return false
}

// fromKubelet takes what the running kubelet was told.
func (d *discovery) fromKubelet() bool {
	d.Tried = append(d.Tried, d.aboutKubelet...)
	k := d.Kubelet
	if k == nil {
		if len(d.aboutKubelet) == 0 {
			return d.reject(SourceKubelet, "the running kubelet", "no kubelet runs on this host")
		}
		return false
	}
	if k.Endpoint == "" {
		why := "neither its arguments nor its configuration file name an endpoint"
		if k.Unreadable != "" {
			why = "its arguments name no endpoint, and " + k.Unreadable
		}
		return d.reject(SourceKubelet, k.title(), why)
	}
	url, err := ParseEndpoint(k.Endpoint)
	if err != nil {
		return d.reject(SourceKubelet, k.EndpointFrom+" of "+k.title(), printable(problemOf(err), errLimit))
	}
	return d.use(Endpoint{URL: url, Source: SourceKubelet, Reason: k.EndpointFrom + " of " + k.title()})
}

func (k *Kubelet) title() string {
	if k.Name == "kubelet" {
		return fmt.Sprintf("the running kubelet (pid %d)", k.PID)
	}
	return fmt.Sprintf("the kubelet in %s (pid %d)", printable(k.Name, errLimit), k.PID)
}

// fromConfig takes runtime-endpoint of /etc/crictl.yaml.
func (d *discovery) fromConfig(ctx context.Context) bool {
	value, err := bounded(ctx, lookTimeout, func() (value string, err error) {
		err = InRoot(d.root, CrictlConfig, func(path string) error {
			data, err := readFile(path)
			if err == nil {
				value, err = parseCrictlConfig(data)
			}
			return err
		})
		return value, err
	})
	if err != nil {
		return d.reject(SourceConfig, CrictlConfig, reasonOf(err))
	}
	if value == "" {
		return d.reject(SourceConfig, CrictlConfig, "has no runtime-endpoint")
	}
	url, err := ParseEndpoint(value)
	if err != nil {
		return d.reject(SourceConfig, CrictlConfig, printable(problemOf(err), errLimit))
	}
	return d.use(Endpoint{URL: url, Source: SourceConfig, Reason: "runtime-endpoint in " + CrictlConfig})
}

// useDefault takes the kubelet's own default when it runs, names no endpoint, and no other source gave one: the socket
// is missing because the runtime is down, and that is worth saying.
func (d *discovery) useDefault(url string) bool {
	if d.Kubelet == nil || d.Kubelet.Endpoint != "" || url == "" {
		return false
	}
	return d.use(Endpoint{
		URL: url, Source: SourceKubelet,
		Reason: "default of " + d.Kubelet.title() + ", which names no endpoint, and no well-known socket exists",
	})
}

func getenv(get func(string) string, name string) string {
	if get == nil {
		return ""
	}
	return get(name)
}

func withSource(err error, s Source) error {
	var e *EndpointError
	if errors.As(err, &e) {
		e.Source = s
	}
	return err
}

// problemOf is an EndpointError without the words "runtime endpoint".
func problemOf(err error) string {
	var e *EndpointError
	if errors.As(err, &e) {
		return fmt.Sprintf("its endpoint %q %s", e.Value, e.Problem)
	}
	return err.Error()
}

// errStuck says that the host did not answer within lookTimeout.
var errStuck = errors.New("looking there did not come back in time")

// bounded runs look in a goroutine of its own and gives up after d or with ctx. A look that hangs in the kernel is left
// behind; it cannot be stopped. A panic of the look is an error.
func bounded[T any](ctx context.Context, d time.Duration, look func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.err = fmt.Errorf("a fault of kdiag's own: %v", v)
			}
			done <- r
		}()
		r.value, r.err = look()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var zero T
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return zero, errStuck
	case <-ctx.Done():
		return zero, fmt.Errorf("interrupted: %w", ctx.Err())
	}
}

// oneLine joins the lines of an error of another package and makes it printable.
func oneLine(s string) string {
	return printable(strings.Join(strings.Fields(s), " "), errLimit)
}
