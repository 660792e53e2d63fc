package crictl

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{
		"/run/x.sock", "unix:///run/x.sock", "unix:run", "tcp://a:1", "", "unix://", "npipe:////./pipe/x", "a:1",
		"/run/\x1b[0m", "@x", "unix:////run//./x.sock", "/" + strings.Repeat("a", maxSocketPath),
		"://", "unix:/../..", "/\xff", "unix://///",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		url, err := ParseEndpoint(s)
		if err != nil {
			var e *EndpointError
			if url != "" || !errors.As(err, &e) || e.Problem == "" || e.Hint == "" {
				t.Fatalf("%q: %q, %#v", s, url, err)
			}
			if strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Fatalf("%q: control characters in %q", s, err)
			}
			return
		}
		path, ok := strings.CutPrefix(url, "unix:///")
		if !ok || len(path)+1 > maxSocketPath || strings.ContainsFunc(url, unicode.IsControl) {
			t.Fatalf("%q: %q", s, url)
		}
		if again, err := ParseEndpoint(url); err != nil || again != url {
			t.Fatalf("%q: %q does not parse to itself: %q, %v", s, url, again, err)
		}
	})
}
