package crictl

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Source is where an endpoint came from. The values are the values of endpointSource in reports.
type Source string

// The sources in the order in which Discover consults them, and the simulated one.
const (
	SourceFlag      Source = "flag"
	SourceEnv       Source = "env"
	SourceKubelet   Source = "kubelet"
	SourceConfig    Source = "crictl.yaml"
	SourceWellKnown Source = "well-known"
	SourceSimulated Source = "simulated"
)

// An Endpoint is a runtime socket and why it was chosen.
type Endpoint struct {
	URL    string // unix:///run/containerd/containerd.sock
	Source Source
	Reason string // one sentence for a person, such as "--container-runtime-endpoint of the running kubelet (pid 812)"
}

const unixScheme = "unix://"

// maxSocketPath is the longest path that connect(2) takes: sun_path has 108 bytes, of which one ends it.
const maxSocketPath = 107

// An EndpointError reports a value that is not the address of a unix socket.
type EndpointError struct {
	Value   string // as given
	Source  Source // where it came from; empty when it was only parsed
	Problem string // continues "runtime endpoint VALUE", such as "is a TCP address"
	Hint    string // how to write it
}

// Error returns one line, with control characters of the value quoted. The hint is not part of it.
func (e *EndpointError) Error() string {
	from := ""
	if e.Source != "" {
		from = " (" + string(e.Source) + ")"
	}
	return fmt.Sprintf("runtime endpoint %q%s %s", e.Value, from, e.Problem)
}

// ParseEndpoint reads the address of a unix socket: /run/x.sock, unix:/run/x.sock or unix:///run/x.sock, and returns
// the last form. The error is an *EndpointError. Whether the socket exists is not checked.
func ParseEndpoint(s string) (url string, err error) {
	problem := ""
	p, hasScheme := strings.CutPrefix(s, "unix:")
	if hasScheme {
		p = strings.TrimPrefix(p, "//")
	}
	switch {
	case s == "":
		problem = "is empty"
	case !utf8.ValidString(s), strings.ContainsFunc(s, unicode.IsControl):
		problem = "contains a control character"
	case !strings.HasPrefix(p, "/"), strings.Contains(p, "://"):
		problem = "is not the absolute path of a unix socket"
	case len(p) > maxSocketPath:
		problem = fmt.Sprintf("is longer than the %d bytes that the system takes", maxSocketPath)
	}
	if problem != "" {
		return "", &EndpointError{
			Value: s, Problem: problem,
			Hint: "give the path of the runtime's socket on this node, such as unix:///run/containerd/containerd.sock",
		}
	}
	return unixScheme + path.Clean(p), nil
}

// SameEndpoint reports whether two endpoints are the address of one socket. /var/run is a link to /run.
func SameEndpoint(a, b string) bool {
	plain := func(s string) string {
		if url, err := ParseEndpoint(s); err == nil {
			s = pathOf(url)
		}
		if strings.HasPrefix(s, "/var/run/") {
			return strings.TrimPrefix(s, "/var")
		}
		return s
	}
	return plain(a) == plain(b)
}

// pathOf returns the path of a URL that ParseEndpoint returned.
func pathOf(url string) string { return strings.TrimPrefix(url, unixScheme) }
