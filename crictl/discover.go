package crictl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/proc"
)

// EndpointEnv is the environment variable that names the runtime's socket, the same as crictl's.
const EndpointEnv = "CONTAINER_RUNTIME_ENDPOINT"

// CrictlConfig is where crictl keeps its configuration, unless the variable CrictlConfigEnv names another file.
const (
	CrictlConfig    = "/etc/crictl.yaml"
	CrictlConfigEnv = "CRI_CONFIG_FILE"
)

// DiscoverOptions configure Discover.
type DiscoverOptions struct {
	Flag   string              // --runtime-endpoint; empty when not given
	Getenv func(string) string // nil means an empty environment
	Root   string              // the host's root directory as this process sees it; empty means "/"
}

// A Tried is a source that was consulted and gave no endpoint.
type Tried struct {
	Source Source
	What   string // the flag, variable, process, file or socket
	Why    string // such as "not set"
}

// A Discovery holds the endpoint that was found, the sources tried before it, and the kubelet that runs here.
type Discovery struct {
	Endpoint Endpoint
	Kubelet  *Kubelet // nil when none runs on this host or none is visible
	Tried    []Tried  // in the order tried
	// NotTaken are processes that are named like a kubelet and are not the node's, and why.
	NotTaken []Tried
}

// A NoEndpointError reports that no source gave an endpoint.
type NoEndpointError struct {
	Tried []Tried
	Late  string // why the search was not ended; empty where it was
}

// Error returns one line. Why each source gave nothing is in Tried.
func (e *NoEndpointError) Error() string {
	if e.Late != "" {
		return "looking for the runtime's endpoint: " + e.Late
	}
	return fmt.Sprintf("no container runtime endpoint found, in %d places looked at", len(e.Tried))
}

// Discover chooses the runtime's endpoint from the first of these sources that names one: the flag; the environment;
// the running kubelet's settings; /etc/crictl.yaml, or the file that CRI_CONFIG_FILE names; the first well-known socket
// that exists; the default of a running kubelet that names none; the settings of a kubelet that does not run; the
// address given to the running shims. It checks only that well-known sockets exist; that another one is missing is for
// Probe to find out.
//
// The settings of the running kubelet are read in any case. The error is an *EndpointError when the flag or the
// variable is not the address of a unix socket, or names a regular file, a *NoEndpointError when nothing was found, or
// not in time, else that the context was cancelled; the Discovery then lists the sources tried.
func Discover(ctx context.Context, opts DiscoverOptions) (Discovery, error) {
	d := &discovery{root: cmp.Or(opts.Root, "/")}
	aboutKubelet := d.findKubelet(ctx)
	env := ""
	if opts.Getenv != nil {
		env, d.config = opts.Getenv(EndpointEnv), opts.Getenv(CrictlConfigEnv)
	}
	for _, given := range []struct {
		source              Source
		what, value, reason string
	}{
		{SourceFlag, "--runtime-endpoint", opts.Flag, "given with --runtime-endpoint"},
		{SourceEnv, "$" + EndpointEnv, env, "given by the environment variable " + EndpointEnv},
	} {
		if given.value == "" {
			d.reject(given.source, given.what, "not set")
			continue
		}
		// An explicit choice: there is no fallback to another runtime.
		url, err := ParseEndpoint(given.value)
		if bad, ok := errors.AsType[*EndpointError](err); ok {
			bad.Source = given.source
			return d.Discovery, bad
		}
		info, err := within(ctx, "looking up "+url, func() (fs.FileInfo, error) {
			return SeenBy(d.root, 0).Stat(pathOf(url))
		})
		if err == nil && info.Mode().IsRegular() { // a folder may have taken the place of a runtime's socket
			return d.Discovery, &EndpointError{
				Value: given.value, Source: given.source, Problem: "is a file, not a socket",
				Hint: "leave it out to ask the runtime of this node's kubelet",
			}
		}
		d.Endpoint = Endpoint{URL: url, Source: given.source, Reason: given.reason}
		return d.Discovery, nil
	}
	d.Tried = append(d.Tried, aboutKubelet...)
	found := ctx.Err() == nil && (d.fromKubelet() || d.fromConfig(ctx) || d.fromWellKnown(ctx) || d.fromDefault() ||
		d.fromStopped(ctx) || d.fromShims(ctx))
	switch {
	case found:
		if d.badConfig != "" {
			d.Endpoint.Reason += "; passed over " + d.badConfig
		}
		return d.Discovery, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return d.Discovery, &NoEndpointError{d.Tried, "it took too long"}
	case ctx.Err() != nil:
		return d.Discovery, fmt.Errorf("looking for the runtime's endpoint: %w", ctx.Err())
	}
	return d.Discovery, &NoEndpointError{Tried: d.Tried}
}

// A discovery is the state of one Discover.
type discovery struct {
	Discovery
	root      string
	config    string // $CRI_CONFIG_FILE
	badConfig string // name of crictl's configuration and its mistake
}

// take takes an endpoint if value is one.
func (d *discovery) take(source Source, what, value, reason string) bool {
	url, err := ParseEndpoint(value)
	if bad, ok := errors.AsType[*EndpointError](err); ok {
		return d.reject(source, what, printable(fmt.Sprintf("its endpoint %q %s", bad.Value, bad.Problem)))
	}
	d.Endpoint = Endpoint{URL: url, Source: source, Reason: reason}
	return true
}

func (d *discovery) reject(source Source, what, why string) bool {
	d.Tried = append(d.Tried, Tried{source, what, why})
	return false
}

// fromKubelet takes the endpoint of the running kubelet.
func (d *discovery) fromKubelet() bool {
	k := d.Kubelet
	switch {
	case k == nil:
		return false
	case k.Endpoint == "":
		why := "neither its arguments nor its configuration file name an endpoint"
		if k.Unreadable != "" {
			why += "; " + k.Unreadable
		}
		return d.reject(SourceKubelet, k.title(), why)
	}
	where := k.EndpointFrom + " of " + k.title()
	return d.take(SourceKubelet, where, k.Endpoint, where)
}

func (k *Kubelet) title() string { return fmt.Sprintf("the running kubelet (pid %d)", k.PID) }

// fromConfig takes runtime-endpoint of crictl's configuration. The file that the environment names is the operator's,
// and not below the host's root.
func (d *discovery) fromConfig(ctx context.Context) bool {
	name, read := CrictlConfig, SeenBy(d.root, 0).Read
	if d.config != "" {
		name, read = d.config, kubeletconfig.ReadFile
	}
	what := printable(name)
	value, err := within(ctx, "reading "+name, func() (string, error) {
		data, err := read(name)
		if err != nil {
			return "", err
		}
		// The one key that matters here. Other keys are ignored.
		//
		//	runtime-endpoint: unix:///run/containerd/containerd.sock
		//	timeout: 10
		var config struct {
			RuntimeEndpoint string `json:"runtime-endpoint"`
		}
		if err := yaml.Unmarshal(data, &config); err != nil {
			return "", fmt.Errorf("malformed: %w", err)
		}
		return config.RuntimeEndpoint, nil
	})
	if err != nil {
		d.reject(SourceConfig, what, reasonOf(err))
	} else if d.take(SourceConfig, what, value, "runtime-endpoint in "+what) {
		return true
	}
	if why := d.Tried[len(d.Tried)-1].Why; why != Absent && (err != nil || value != "") {
		d.badConfig = what + ": " + why
	}
	return false
}

// fromWellKnown takes the first well-known socket that exists.
func (d *discovery) fromWellKnown(ctx context.Context) bool {
	for _, in := range Installations() {
		for _, path := range in.Sockets {
			info, err := within(ctx, "looking up "+path, func() (fs.FileInfo, error) { return SeenBy(d.root, 0).Stat(path) })
			if err == nil && info.Mode().Type() != fs.ModeSocket {
				err = errNotSocket
			}
			if err == nil {
				return d.take(SourceWellKnown, path, path, "the first well-known socket that exists, that of "+in.Name)
			}
			d.reject(SourceWellKnown, path, reasonOf(err))
		}
	}
	return false
}

// fromDefault takes the kubelet's default if a kubelet runs that names no endpoint: the socket is missing because the
// runtime is down, which is worth reporting.
func (d *discovery) fromDefault() bool {
	if d.Kubelet == nil || d.Kubelet.Endpoint != "" {
		return false
	}
	return d.take(SourceKubelet, d.Kubelet.title(), kubeletconfig.Defaults().ContainerRuntimeEndpoint,
		"default of "+d.Kubelet.title()+", which names no endpoint, and no well-known socket exists")
}

// fromStopped takes the endpoint in the unit and the configuration file of a kubelet that does not run: without a
// runtime a kubelet exits.
func (d *discovery) fromStopped(ctx context.Context) bool {
	value, err := within(ctx, "reading kubelet.service", func() (string, error) {
		s := kubeletconfig.ReadUnit(SeenBy(d.root, 0).Kubelet())
		if !s.IsSet("containerRuntimeEndpoint") {
			return "", nil
		}
		return s.ContainerRuntimeEndpoint, nil
	})
	if err != nil || value == "" {
		return false
	}
	return d.take(SourceKubelet, "kubelet.service", value, "setting of kubelet.service, which does not run")
}

// fromShims takes the address of the runtime that one of containerd's shims of Kubernetes was given: containerd removes
// its socket when it ends, but shims go on. The address is on their command line (-namespace k8s.io -address
// /run/containerd/containerd.sock). Those of other users and of pods do not count.
func (d *discovery) fromShims(ctx context.Context) bool {
	all, _ := within(ctx, "listing shims", func() ([]process, error) {
		return processes(d.root, func(comm string) bool { return strings.HasPrefix(comm, "containerd-shim") })
	})
	for _, p := range all {
		i, j := slices.Index(p.argv, "-namespace"), slices.Index(p.argv, "-address")
		own := p.otherUser() == "" && !proc.Nested(p.status) && p.shimAbove(d.root) == 0
		if own && min(i, j) > 0 && max(i, j)+1 < len(p.argv) && p.argv[i+1] == "k8s.io" {
			return d.take(SourceWellKnown, "the running shims", p.argv[j+1],
				"the address given to a running shim of Kubernetes")
		}
	}
	return false
}
