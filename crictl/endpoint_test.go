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
		hint     string // part of EndpointError.Hint
	}{
		{in: "/run/x.sock", want: "unix:///run/x.sock"},
		{in: "unix:///run/x.sock", want: "unix:///run/x.sock"},
		{in: "unix:/run/x.sock", want: "unix:///run/x.sock"},
		{in: "UNIX:///run/x.sock", want: "unix:///run/x.sock"},
		{in: "unix:////run//./x.sock", want: "unix:///run/x.sock"},
		{in: "/run/with space.sock", want: "unix:///run/with space.sock"},
		{in: "/run/a:b.sock", want: "unix:///run/a:b.sock"},
		{in: "/run/ü.sock", want: "unix:///run/ü.sock"},
		{in: long, want: "unix://" + long},
		{in: "", problem: "empty", hint: "unix:///run/"},
		{in: "  ", problem: "empty"},
		{in: "unix://", problem: "names no path"},
		{in: "unix:", problem: "names no path"},
		{in: "run/x.sock", problem: "not an absolute path", hint: "unix:///run/x.sock"},
		{in: "unix://run/x.sock", problem: "not an absolute path", hint: "unix:///run/x.sock"},
		{in: "containerd", problem: "not an absolute path"},
		{in: " /run/x.sock", problem: "begins or ends with a blank", hint: "write /run/x.sock"},
		{in: "unix:///run/x.sock ", problem: "begins or ends with a blank", hint: "write unix:///run/x.sock"},
		{in: "unix://unix:///run/x.sock", problem: "has unix:// twice", hint: "write unix:///run/x.sock"},
		{in: "unix:unix:///run/x.sock", problem: "has unix:// twice", hint: "write unix:///run/x.sock"},
		{in: "unix:///unix:///run/x.sock", problem: "has unix:// twice", hint: "write unix:///run/x.sock"},
		{in: "unix:///run/x.sock,unix:///run/y.sock", problem: "has unix:// twice", hint: "write unix:///run/y.sock"},
		{in: "@abstract", problem: "abstract"},
		{in: "unix-abstract:x", problem: "abstract"},
		{in: "unix:@abstract", problem: "abstract"},
		{in: "tcp://127.0.0.1:2376", problem: "TCP address", hint: "unix socket"},
		{in: "127.0.0.1:2376", problem: "TCP address"},
		{in: "[::1]:2376", problem: "TCP address"},
		{in: "localhost:1", problem: "TCP address"},
		{in: "dns:///host:1", problem: "TCP address"},
		{in: "http://localhost/", problem: "web address"},
		{in: "HTTPS://localhost/", problem: "web address"},
		{in: "npipe:////./pipe/containerd", problem: "named pipe"},
		{in: `\\.\pipe\containerd`, problem: "named pipe"},
		{in: "vsock://2:1024", problem: "unknown scheme vsock://"},
		{in: "/run/x.sock\n", problem: "control character", hint: "line break"},
		{in: "/run/x\x00.sock", problem: "control character"},
		{in: "/run/\x1b[2Jx.sock", problem: "control character"},
		{in: "/run/\xff.sock", problem: "UTF-8"},
		{in: long + "a", problem: "108 bytes long"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := ParseEndpoint(tc.in)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.problem == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *EndpointError
			if !errors.As(err, &e) {
				t.Fatalf("error %v is no *EndpointError", err)
			}
			if e.Value != tc.in || !strings.Contains(e.Problem, tc.problem) || !strings.Contains(e.Hint, tc.hint) ||
				e.Hint == "" {
				t.Errorf("got %#v", e)
			}
		})
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
		{"", 5, ""},
		{"12345", 5, "12345"},
		{"123456", 5, "1...6"},
		{"123456", 0, "..."},
		{"äöü世界äöü世界", 10, "äöü世界äöü世界"},
		{"äöü世界äöü世界", 9, "äöü...ü世界"},
		{"a\nb\tc\r", 20, `a\nb\tc\r`},
		{"\x1b[31mred\x00", 20, `\x1b[31mred\x00`},
		{"bad \xff\xc3\x28", 20, `bad \xff\xc3(`},
		{"\u202egnp.exe", 20, `\u202egnp.exe`},
		{"\n\n\n\n\n\n\n\n\n\n\n", 10, `\n\n\n\n...\n\n\n`},
		{
			"mkdir /run/containerd/io.containerd.grpc.v1.cri/sandboxes/392bbd: read-only file system", 40,
			"mkdir /run/containe...d-only file system",
		},
	} {
		if got := printable(tt.in, tt.most); got != tt.want {
			t.Errorf("%q to %d: %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}
