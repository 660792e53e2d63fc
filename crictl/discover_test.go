package crictl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A tree is a host's file system in a temporary directory.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	h := tree{t, t.TempDir()}
	if err := os.MkdirAll(filepath.Join(h.root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h tree) file(name, text string) {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// socket makes a socket file on which nothing listens. Unlike bind(2), mknod(2) takes any length of path.
func (h tree) socket(name string) {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mknod(name, unix.S_IFSOCK|0o600, 0); err != nil {
		h.t.Fatal(err)
	}
}

func (h tree) process(pid, comm string, argv ...string) {
	h.t.Helper()
	h.file("proc/"+pid+"/comm", comm+"\n")
	h.file("proc/"+pid+"/cmdline", strings.Join(append(argv, ""), "\x00"))
	h.file("proc/"+pid+"/status", "Name:\t"+comm+"\nNSpid:\t"+pid+"\n")
}

const (
	containerdSocket = "/run/containerd/containerd.sock"
	crioSocket       = "/run/crio/crio.sock"
)

func TestDiscover(t *testing.T) {
	for _, tc := range []struct {
		name   string
		flag   string
		env    string
		host   func(tree)
		want   Endpoint // Reason: a part of it
		tried  []Tried  // Why: a part of it
		values bool     // compare tried
	}{
		{
			name: "flag", flag: "/run/x.sock", env: "/run/y.sock",
			want: Endpoint{"unix:///run/x.sock", SourceFlag, "--runtime-endpoint"},
		},
		{
			name: "environment", env: "unix:///run/y.sock",
			host:   func(h tree) { h.socket(containerdSocket) },
			want:   Endpoint{"unix:///run/y.sock", SourceEnv, "CONTAINER_RUNTIME_ENDPOINT"},
			values: true,
			tried:  []Tried{{SourceFlag, "--runtime-endpoint", "not set"}},
		},
		{
			name: "kubelet's flag before its file and crictl.yaml",
			host: func(h tree) {
				h.process("812", "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--container-runtime-endpoint", "unix:///run/flag.sock")
				h.file("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/file.sock\n")
				h.file("etc/crictl.yaml", "runtime-endpoint: unix:///run/crictl.sock\n")
			},
			want: Endpoint{"unix:///run/flag.sock", SourceKubelet, "--container-runtime-endpoint of the running kubelet (pid 812)"},
		},
		{
			name: "kubelet's file",
			host: func(h tree) {
				h.process("812", "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
				h.file("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/file.sock\n")
			},
			want: Endpoint{"unix:///run/file.sock", SourceKubelet, "containerRuntimeEndpoint in the configuration file of the running kubelet"},
		},
		{
			name: "kubelet with TCP, then crictl.yaml with other keys",
			host: func(h tree) {
				h.process("812", "kubelet", "kubelet", "--container-runtime-endpoint=tcp://x:1")
				h.file("etc/crictl.yaml", "runtime-endpoint: /run/crictl.sock\ntimeout: 10\ndebug: [what, ever]\nnew-key: {a: 1}\n")
			},
			want:   Endpoint{"unix:///run/crictl.sock", SourceConfig, "/etc/crictl.yaml"},
			values: true,
			tried: []Tried{
				{SourceFlag, "--runtime-endpoint", "not set"},
				{SourceEnv, "$CONTAINER_RUNTIME_ENDPOINT", "not set"},
				{SourceKubelet, "--container-runtime-endpoint of the running kubelet (pid 812)", "TCP address"},
			},
		},
		{
			name: "malformed crictl.yaml, then the second well-known socket",
			host: func(h tree) {
				h.file("etc/crictl.yaml", "runtime-endpoint: [\x1b\n")
				h.file(containerdSocket, "")
				h.socket(crioSocket)
				h.socket("/run/k0s/containerd.sock")
			},
			want:   Endpoint{"unix://" + crioSocket, SourceWellKnown, "CRI-O"},
			values: true,
			tried: []Tried{
				{SourceFlag, "--runtime-endpoint", "not set"},
				{SourceEnv, "$CONTAINER_RUNTIME_ENDPOINT", "not set"},
				{SourceKubelet, "the running kubelet", "no kubelet runs"},
				{SourceConfig, "/etc/crictl.yaml", "malformed"},
				{SourceWellKnown, containerdSocket, "a regular file, not a socket"},
			},
		},
		{
			name: "kubelet silent, socket missing: its default",
			host: func(h tree) { h.process("812", "kubelet", "kubelet") },
			want: Endpoint{"unix://" + containerdSocket, SourceKubelet, "default of the running kubelet (pid 812)"},
		},
		{
			name: "k3s uses its own socket though another containerd runs",
			host: func(h tree) {
				h.process("900", "k3s-server", "/usr/local/bin/k3s server")
				h.socket(containerdSocket)
			},
			want: Endpoint{"unix:///run/k3s/containerd/containerd.sock", SourceKubelet, "built-in default of the kubelet in k3s-server (pid 900)"},
		},
		{
			name: "only another node's kubelet",
			host: func(h tree) {
				h.process("812", "kubelet", "kubelet", "--container-runtime-endpoint=/run/kind.sock")
				h.file("proc/812/status", "NSpid:\t812\t199\n")
				h.socket(crioSocket)
			},
			want:   Endpoint{"unix://" + crioSocket, SourceWellKnown, "CRI-O"},
			values: true,
			tried: []Tried{
				{SourceFlag, "--runtime-endpoint", "not set"},
				{SourceEnv, "$CONTAINER_RUNTIME_ENDPOINT", "not set"},
				{SourceKubelet, "kubelet (pid 812)", "pid namespace of its own"},
				{SourceConfig, "/etc/crictl.yaml", "does not exist"},
				{SourceWellKnown, containerdSocket, "does not exist"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			if tc.host != nil {
				tc.host(h)
			}
			got, err := Discover(t.Context(), DiscoverOptions{
				Flag: tc.flag, Root: h.root,
				Getenv: func(name string) string {
					if name == EndpointEnv {
						return tc.env
					}
					return ""
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			e := got.Endpoint
			if e.URL != tc.want.URL || e.Source != tc.want.Source || !strings.Contains(e.Reason, tc.want.Reason) {
				t.Errorf("got %+v, want %+v", e, tc.want)
			}
			if !tc.values {
				return
			}
			same := slices.EqualFunc(tc.tried, got.Tried, func(want, got Tried) bool {
				return want.Source == got.Source && want.What == got.What && strings.Contains(got.Why, want.Why)
			})
			if !same {
				t.Errorf("tried:\n%s", cmp.Diff(tc.tried, got.Tried))
			}
		})
	}
}

func TestDiscoverBadValues(t *testing.T) {
	h := newTree(t)
	h.socket(containerdSocket)
	for _, tc := range []struct {
		opts DiscoverOptions
		want Source
	}{
		{DiscoverOptions{Flag: "tcp://1.2.3.4:1"}, SourceFlag},
		{DiscoverOptions{Getenv: func(string) string { return "relative" }}, SourceEnv},
	} {
		tc.opts.Root = h.root
		_, err := Discover(t.Context(), tc.opts)
		var e *EndpointError
		if !errors.As(err, &e) || e.Source != tc.want {
			t.Errorf("%s: got %v", tc.want, err)
		}
	}
}

func TestDiscoverNothing(t *testing.T) {
	h := newTree(t)
	d, err := Discover(t.Context(), DiscoverOptions{Root: h.root})
	var e *NoEndpointError
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	if want := 4 + len(wellKnown()); len(e.Tried) != want || len(d.Tried) != want {
		t.Errorf("%d places tried, want %d: %+v", len(e.Tried), want, e.Tried)
	}
}

func TestDiscoverInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Discover(ctx, DiscoverOptions{Root: newTree(t).root})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDiscoverReadsKubeletWithFlag(t *testing.T) {
	h := newTree(t)
	h.process("77", "kubelet", "/usr/bin/kubelet", "--runtime-request-timeout=45s")
	d, err := Discover(t.Context(), DiscoverOptions{Root: h.root, Flag: "/run/x.sock"})
	if err != nil || d.Kubelet == nil || d.Kubelet.RequestTimeout != 45*time.Second {
		t.Errorf("got %+v, %v", d.Kubelet, err)
	}
}

func FuzzCrictlConfig(f *testing.F) {
	for _, s := range []string{
		"", "runtime-endpoint: unix:///run/x.sock\n", "runtime-endpoint: [a]\n", "{", "a: *b", "- x", "runtime-endpoint: 7",
		"&a [*a]", "runtime-endpoint: \"\\u0000\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		endpoint, err := parseCrictlConfig(data)
		if err != nil && endpoint != "" {
			t.Errorf("both %q and %v", endpoint, err)
		}
		if c, err := parseKubeletConfig(data); err == nil && len(data) == 0 && c.endpoint != "" {
			t.Errorf("an empty file gave %q", c.endpoint)
		}
	})
}
