package crictl

import (
	"fmt"
	"net"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

const unixScheme = "unix://"

// maxSocketPath is the longest path that connect(2) takes: sun_path has 108 bytes, of which one ends it.
const maxSocketPath = 107

// An EndpointError says that a value is no address of a unix socket.
type EndpointError struct {
	Value   string // as it was given
	Source  Source // who gave it; empty when only parsed
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

// ParseEndpoint reads the address of a unix socket: /run/x.sock, unix:/run/x.sock or unix:///run/x.sock, and returns the
// last form. The error is an *EndpointError. Whether the socket exists is not looked at.
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
	} else if problem, hint := foreignScheme(s); problem != "" {
		return bad(problem, hint)
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

// pathOf is the path of a URL that ParseEndpoint returned.
func pathOf(url string) string { return strings.TrimPrefix(url, unixScheme) }

// foreignScheme recognises addresses that are not of unix sockets. Both results are empty for what may be a path.
func foreignScheme(s string) (problem, hint string) {
	const local = "kdiag asks the runtime of the node that it runs on, through a unix socket such as " +
		"unix:///run/containerd/containerd.sock"
	for _, scheme := range []string{"tcp:", "tcp4:", "tcp6:", "dns:", "ipv4:", "ipv6:"} {
		if _, ok := cutScheme(s, scheme); ok {
			return "is a TCP address", local
		}
	}
	for _, scheme := range []string{"http:", "https:"} {
		if _, ok := cutScheme(s, scheme); ok {
			return "is a web address", local
		}
	}
	for _, scheme := range []string{"npipe:", `\\.\pipe`} {
		if _, ok := cutScheme(s, scheme); ok {
			return "is a Windows named pipe", local
		}
	}
	if _, ok := cutScheme(s, "unix-abstract:"); ok {
		return "is an abstract socket", "only sockets in the file system are supported"
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok && !strings.Contains(scheme, "/") {
		return "has the unknown scheme " + scheme + "://", local
	}
	if !strings.Contains(s, "/") {
		if _, _, err := net.SplitHostPort(s); err == nil {
			return "is a TCP address", local
		}
	}
	return "", ""
}

// cutScheme is strings.CutPrefix without regard to letter case.
func cutScheme(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
