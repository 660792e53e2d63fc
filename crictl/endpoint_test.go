package crictl

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

func TestParseEndpoint(t *testing.T) {
	long := "/" + strings.Repeat("a", maxSocketPath-1)
	for _, tc := range []struct {
		in, want string
		problem  string // part of EndpointError.Problem
	}{
		{in: "/run/x.sock", want: "unix:///run/x.sock"},
		{in: "unix:///run/x.sock", want: "unix:///run/x.sock"},
		{in: "unix:////run//./x.sock", want: "unix:///run/x.sock"},
		{in: long, want: "unix://" + long},
		{in: "", problem: "empty"},
		{in: "unix://unix:///run/x.sock", problem: "not the absolute path"},
		{in: "tcp://127.0.0.1:2376", problem: "not the absolute path"},
		{in: "/run/x.sock\n", problem: "control character"},
		{in: "/run/\xff.sock", problem: "control character"},
		{in: long + "a", problem: "longer than"},
	} {
		got, err := ParseEndpoint(tc.in)
		bad, _ := errors.AsType[*EndpointError](err)
		if got != tc.want || (bad == nil) != (tc.problem == "") {
			t.Errorf("%q: %q, %v", tc.in, got, err)
		}
		if bad != nil && (bad.Value != tc.in || !strings.Contains(bad.Problem, tc.problem)) {
			t.Errorf("%q: %+v", tc.in, bad)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{
		"/run/x.sock", "unix:///run/x.sock", "unix:run", "tcp://a:1", "", "unix://", "npipe:////./pipe/x", "a:1",
		"/run/\x1b[0m", "@x", "://", "unix:/../..", "/\xff", "unix://///",
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

func TestPrintable(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"123456", 5, "1...6"},
		{"äöü世界äöü世界", 9, "äöü...ü世界"},
		{"\x1b[31mred\x00", 20, `\x1b[31mred\x00`},
		{"bad \xff\xc3\x28", 20, `bad \xff\xc3(`},
		{"\u202egnp.exe", 20, `\u202egnp.exe`},
		{"\n\n\n\n\n\n\n\n\n\n\n", 10, `\n\n\n\n...\n\n\n`},
	} {
		if got := printable(tt.in, tt.most); got != tt.want {
			t.Errorf("%q to %d: %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}
