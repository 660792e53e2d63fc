package crictl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
func (h tree) link(target, name string) {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		h.t.Fatal(err)
	}
}

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
	h.file("proc/"+pid+"/status", "Name:\t"+comm+"\nUid:\t0\t0\t0\t0\nNSpid:\t"+pid+"\n")
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

		notTaken []int // which of tried are kubelets that were not taken
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
				h.process("812", "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml",
					"--container-runtime-endpoint", "unix:///run/flag.sock")
				h.file("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/file.sock\n")
				h.file("etc/crictl.yaml", "runtime-endpoint: unix:///run/crictl.sock\n")
			},
			want: Endpoint{
				"unix:///run/flag.sock", SourceKubelet,
				"--container-runtime-endpoint of the running kubelet (pid 812)",
			},
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
				{SourceKubelet, "--container-runtime-endpoint of the running kubelet (pid 812)", "not the absolute path"},
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
				{SourceWellKnown, containerdSocket, "another kind of file"},
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
			want: Endpoint{
				"unix:///run/k3s/containerd/containerd.sock", SourceKubelet,
				"built-in default of the running kubelet (pid 900)",
			},
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
				{SourceKubelet, "kubelet (pid 812)", "another pid namespace"},
				{SourceConfig, "/etc/crictl.yaml", "does not exist"},
				{SourceWellKnown, containerdSocket, "does not exist"},
			},
		},
		{
			name: "another user's kubelet beside the node's",
			host: func(h tree) {
				h.process("700", "kubelet", "kubelet", "--container-runtime-endpoint=/run/evil.sock")
				h.file("proc/700/status", "Name:\tkubelet\nUid:\t65534\t65534\t65534\t65534\n")
				// a program with the set-user-ID bit
				h.process("701", "kubelet", "kubelet", "--container-runtime-endpoint=/run/evil.sock")
				h.file("proc/701/status", "Name:\tkubelet\nUid:\t65534\t0\t0\t0\n")
				h.process("702", "kubelet", "kubelet", "--container-runtime-endpoint=/run/evil.sock") // one that gave root away
				h.file("proc/702/status", "Name:\tkubelet\nUid:\t0\t65534\t0\t65534\n")
				h.process("812", "kubelet", "kubelet", "--container-runtime-endpoint=/run/good.sock")
			},
			want:   Endpoint{"unix:///run/good.sock", SourceKubelet, "of the running kubelet (pid 812)"},
			values: true,
			tried: []Tried{
				{SourceFlag, "--runtime-endpoint", "not set"},
				{SourceEnv, "$CONTAINER_RUNTIME_ENDPOINT", "not set"},
				{SourceKubelet, "kubelet (pid 700)", "runs as user 65534"},
				{SourceKubelet, "kubelet (pid 701)", "runs as user 65534"},
				{SourceKubelet, "kubelet (pid 702)", "runs as user 65534"},
			},
			notTaken: []int{2, 3, 4},
		},
		{
			name: "neither kubelet nor socket, but the kubelet's file",
			host: func(h tree) {
				h.file("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/left.sock\n")
				h.process("900", "containerd-shim", "containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "a", "-address",
					"/run/shims.sock")
			},
			want: Endpoint{
				"unix:///run/left.sock", SourceKubelet,
				"setting of kubelet.service, which does not run",
			},
		},
		{
			name: "the kubelet's file, and kubeadm's flags over it",
			host: func(h tree) {
				h.file("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/left.sock\n")
				h.file("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/flags.sock --pod-infra-container-image=registry.k8s.io/pause:3.9\"\n")
				h.file("usr/lib/systemd/system/kubelet.service", "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n"+
					"ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS\n")
			},
			want: Endpoint{"unix:///run/flags.sock", SourceKubelet, "setting of kubelet.service"},
		},
		{
			name: "nothing but shims",
			host: func(h tree) {
				for _, pid := range []string{"900", "901"} {
					h.process(pid, "containerd-shim", "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", pid,
						"-address", "/run/x/containerd.sock")
				}
				for _, pid := range []string{"902", "903", "904"} {
					h.process(pid, "containerd-shim", "/usr/bin/containerd-shim-runc-v2", "-namespace", "moby", "-id", pid,
						"-address", "/run/docker.sock")
				}
			},
			want: Endpoint{"unix:///run/x/containerd.sock", SourceWellKnown, "given to a running shim of Kubernetes"},
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
			var notTaken []Tried
			for _, i := range tc.notTaken {
				notTaken = append(notTaken, got.Tried[i])
			}
			if diff := cmp.Diff(notTaken, got.NotTaken); diff != "" {
				t.Errorf("not taken (-want +got):\n%s", diff)
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

// TestDiscoverFollowsLinksBelowItsRoot has links with absolute targets where a host has them, below a root that is
// not ours.
func TestDiscoverFollowsLinksBelowItsRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(outside, []byte("runtime-endpoint: /run/outside.sock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		host func(tree)
		want string
	}{
		"the kubelet's file in a root of its own": {func(h tree) {
			h.process("812", "kubelet", "kubelet", "--config=/etc/k.yaml")
			h.file("proc/812/root/data/k.yaml", "containerRuntimeEndpoint: /run/own.sock\n")
			h.file("data/k.yaml", "containerRuntimeEndpoint: /run/file.sock\n")
			h.link("/data/k.yaml", "proc/812/root/etc/k.yaml")
		}, "unix:///run/own.sock"},
		"crictl.yaml": {func(h tree) {
			h.file("data/crictl.yaml", "runtime-endpoint: /run/crictl.sock\n")
			h.link("/data/crictl.yaml", "etc/crictl.yaml")
		}, "unix:///run/crictl.sock"},
		"a well-known socket": {func(h tree) {
			h.socket("data/cri-dockerd.sock")
			h.link("/data", "var/run")
		}, "unix:///var/run/cri-dockerd.sock"},
		"a way out": {func(h tree) {
			h.link(outside, "etc/crictl.yaml")
			h.socket(crioSocket)
		}, "unix://" + crioSocket},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTree(t)
			tc.host(h)
			got, err := Discover(t.Context(), DiscoverOptions{Root: h.root})
			if err != nil || got.Endpoint.URL != tc.want {
				t.Errorf("got %+v, error %v; want %s", got.Endpoint, err, tc.want)
			}
		})
	}
}

// TestDiscoverOfBadKubelet wants no default for a kubelet that names an endpoint which is none.
func TestDiscoverOfBadKubelet(t *testing.T) {
	h := newTree(t)
	h.process("812", "kubelet", "kubelet", "--container-runtime-endpoint=unix://unix:///run/x.sock")
	_, err := Discover(t.Context(), DiscoverOptions{Root: h.root})
	none, ok := errors.AsType[*NoEndpointError](err)
	if !ok || !slices.ContainsFunc(none.Tried, func(tried Tried) bool {
		return strings.Contains(tried.Why, "is not the absolute path")
	}) {
		t.Errorf("got %v", err)
	}
}

func TestDiscoverNothing(t *testing.T) {
	h := newTree(t)
	d, err := Discover(t.Context(), DiscoverOptions{Root: h.root})
	var e *NoEndpointError
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	want := 4
	for _, in := range Installations() {
		want += len(in.Sockets)
	}
	if len(e.Tried) != want || len(d.Tried) != want {
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

func FuzzCrictlConfig(f *testing.F) {
	for _, s := range []string{
		"", "runtime-endpoint: unix:///run/x.sock\n", "runtime-endpoint: [a]\n", "{", "a: *b", "- x", "runtime-endpoint: 7",
		"&a [*a]", "runtime-endpoint: \"\\u0000\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if endpoint, err := parseCrictlConfig(data); err != nil && endpoint != "" {
			t.Errorf("both %q and %v", endpoint, err)
		}
	})
}
