package crictl

import (
	"fmt"
	"net"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Source is where an endpoint came from. The values are those of the contract's endpointSource.
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
	Problem string // what is wrong, continuing "runtime endpoint VALUE", such as "is a TCP address"
	Hint    string // what to write instead
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
	bad := func(problem, hint string) (string, error) {
		return "", &EndpointError{Value: s, Problem: problem, Hint: hint}
	}
	const example = "give the path of the runtime's socket, such as unix:///run/containerd/containerd.sock"
	switch {
	case strings.TrimSpace(s) == "":
		return bad("is empty", example)
	case !utf8.ValidString(s):
		return bad("is not valid UTF-8 text", example)
	case strings.ContainsFunc(s, unicode.IsControl):
		return bad("contains a control character", "check the value for a line break or other invisible characters")
	case strings.TrimSpace(s) != s:
		return bad("begins or ends with a blank", "write "+strings.TrimSpace(s))
	}
	p := s
	if rest, ok := cutScheme(s, "unix:"); ok {
		p = strings.TrimPrefix(rest, "//")
	} else if problem := otherScheme(s); problem != "" {
		return bad(problem, "kdiag asks the runtime of the node that it runs on, through a unix socket such as "+
			"unix:///run/containerd/containerd.sock")
	}
	twice := strings.LastIndex(p, unixScheme)
	switch {
	case p == "":
		return bad("names no path", example)
	case twice >= 0:
		return bad("has "+unixScheme+" twice", "write "+p[twice:])
	case strings.HasPrefix(p, "@"):
		return bad("is an abstract socket", "only sockets in the file system are supported; "+example)
	case !strings.HasPrefix(p, "/"):
		return bad("is not an absolute path", "if it is relative to the root directory, write "+unixScheme+"/"+p)
	}
	p = path.Clean(p)
	if len(p) > maxSocketPath {
		return bad(fmt.Sprintf("is %d bytes long, and the system takes at most %d", len(p), maxSocketPath),
			"use a shorter path, such as a symbolic link under /run")
	}
	return unixScheme + p, nil
}

// pathOf returns the path of a URL that ParseEndpoint returned.
func pathOf(url string) string { return strings.TrimPrefix(url, unixScheme) }

// otherScheme describes an address that is not that of a unix socket; empty for what may be a path.
func otherScheme(s string) (problem string) {
	for _, known := range []struct{ scheme, problem string }{
		{"tcp:", "is a TCP address"},
		{"dns:", "is a TCP address"},
		{"ipv4:", "is a TCP address"},
		{"ipv6:", "is a TCP address"},
		{"http:", "is a web address"},
		{"https:", "is a web address"},
		{"npipe:", "is a Windows named pipe"},
		{`\\.\pipe`, "is a Windows named pipe"},
		{"unix-abstract:", "is an abstract socket"},
	} {
		if _, ok := cutScheme(s, known.scheme); ok {
			return known.problem
		}
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok && !strings.Contains(scheme, "/") {
		return "has the unknown scheme " + scheme + "://"
	}
	if _, _, err := net.SplitHostPort(s); err == nil && !strings.Contains(s, "/") {
		return "is a TCP address"
	}
	return ""
}

// cutScheme is strings.CutPrefix without regard to case.
func cutScheme(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
