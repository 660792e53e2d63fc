package crictl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A host is a host's file system. A name "812 kubelet" stands for a process with these arguments, between blanks;
// other names are paths, and their values the text of a file, "-> TARGET" or "socket".
type host map[string]string

// root makes the file system in a temporary directory.
func (h host) root(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		switch target, link := strings.CutPrefix(text, "-> "); {
		case err != nil:
		case link:
			err = os.Symlink(target, name)
		case text == "socket":
			err = unix.Mknod(name, unix.S_IFSOCK|0o600, 0) // unlike bind(2) it takes any length of path
		default:
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		must(t, err)
	}
	write("proc/version", "")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		pid, comm, process := strings.Cut(name, " ")
		if !process {
			write(name, h[name])
			continue
		}
		write("proc/"+pid+"/comm", comm+"\n")
		write("proc/"+pid+"/cmdline", strings.ReplaceAll(h[name]+" ", " ", "\x00"))
		write("proc/"+pid+"/status", "Name:\t"+comm+"\nUid:\t0\t0\t0\t0\nNSpid:\t"+pid+"\n")
	}
	return root
}

// child is the status of a process of root's.
func child(of int) string { return fmt.Sprintf("PPid:\t%d\nUid:\t0\t0\t0\t0\n", of) }

const (
	containerdSocket = "/run/containerd/containerd.sock"
	crioSocket       = "/run/crio/crio.sock"
)

func TestDiscover(t *testing.T) {
	named := filepath.Join(t.TempDir(), "crictl.yaml")
	must(t, os.WriteFile(named, []byte("runtime-endpoint: /run/named.sock\n"), 0o600))
	for _, tc := range []struct {
		name     string
		env      string
		config   string // CRI_CONFIG_FILE
		host     host
		want     Endpoint // Reason: a part of it; the zero Endpoint for none
		tried    []string // sources that were set and not taken, with the beginning of why; nil is not compared
		notTaken int      // how many of them are kubelets of others
	}{
		{
			name: "environment", env: "unix:///run/y.sock", host: host{containerdSocket: "socket"},
			want: Endpoint{"unix:///run/y.sock", SourceEnv, EndpointEnv}, tried: []string{},
		},
		{
			name: "kubelet's flag before its file and crictl.yaml",
			host: host{
				"812 kubelet":     "kubelet --config=/etc/k.yaml --container-runtime-endpoint unix:///run/flag.sock",
				"etc/k.yaml":      "containerRuntimeEndpoint: unix:///run/file.sock\n",
				"etc/crictl.yaml": "runtime-endpoint: unix:///run/crictl.sock\n",
			},
			want: Endpoint{
				"unix:///run/flag.sock", SourceKubelet, "--container-runtime-endpoint of the running kubelet (pid 812)",
			},
		},
		{
			name: "kubelet with TCP, then crictl.yaml with other keys",
			host: host{
				"812 kubelet":     "kubelet --container-runtime-endpoint=tcp://x:1",
				"etc/crictl.yaml": "runtime-endpoint: /run/crictl.sock\ntimeout: 10\ndebug: [what, ever]\nx: {a: 1}\n",
			},
			want: Endpoint{"unix:///run/crictl.sock", SourceConfig, "/etc/crictl.yaml"},
			tried: []string{
				"--container-runtime-endpoint of the running kubelet (pid 812): " +
					`its endpoint "tcp://x:1" is not the absolute path`,
			},
		},
		{
			name: "malformed crictl.yaml, then the second well-known socket",
			host: host{
				"etc/crictl.yaml": "runtime-endpoint: [\x1b\n", containerdSocket: "",
				crioSocket: "socket", "/run/k0s/containerd.sock": "socket",
			},
			want: Endpoint{
				"unix://" + crioSocket, SourceWellKnown, "that of CRI-O; passed over /etc/crictl.yaml: malformed: ",
			},
			tried: []string{
				"the running kubelet: no kubelet is visible", "/etc/crictl.yaml: malformed",
				containerdSocket + ": it is another kind of file",
			},
		},
		{
			name: "no default for a kubelet that names an endpoint which is none",
			host: host{"812 kubelet": "kubelet --container-runtime-endpoint=unix://unix:///run/x.sock"},
		},
		{
			name: "only another node's kubelet",
			host: host{
				"812 kubelet":     "kubelet --container-runtime-endpoint=/run/kind.sock",
				"proc/812/status": "NSpid:\t812\t199\n", crioSocket: "socket",
			},
			want: Endpoint{"unix://" + crioSocket, SourceWellKnown, "CRI-O"},
			tried: []string{
				"kubelet (pid 812): runs in another pid namespace", "/etc/crictl.yaml: does not exist",
				containerdSocket + ": does not exist",
			},
		},
		{
			name: "another user's kubelet, one with the set-user-ID bit, one that gave root away, and the node's",
			host: host{
				"700 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/700/status": "Name:\tkubelet\nUid:\t4000000000\t4000000000\t4000000000\t4000000000\n",
				"701 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/701/status": "Name:\tkubelet\nUid:\t4000000000\t0\t0\t0\n",
				"702 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/702/status": "Name:\tkubelet\nUid:\t0\t4000000000\t0\t4000000000\n",
				"812 kubelet":     "kubelet --container-runtime-endpoint=/run/good.sock",
			},
			want: Endpoint{"unix:///run/good.sock", SourceKubelet, "of the running kubelet (pid 812)"},
			tried: []string{
				"kubelet (pid 700): runs as user 4000000000", "kubelet (pid 701): runs as user 4000000000",
				"kubelet (pid 702): runs as user 4000000000",
			},
			notTaken: 3,
		},
		{
			name: "kubelets of a pod in the host's pid namespace, the kubelet in a container of Docker",
			host: host{
				"11 containerd-shim": "", "proc/11/cwd": "-> /run/containerd/task/k8s.io/1",
				"12 containerd-shim": "", "proc/12/cwd": "-> /run/containerd/task/moby/2",
				"20 containerd-shim": "", "proc/20/cwd": "-> /moby/", "proc/20/status": child(11),
				"700 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/700/status": child(20),
				"812 kubelet":     "kubelet --container-runtime-endpoint=/run/good.sock",
				"proc/812/status": child(12),
			},
			want:     Endpoint{"unix:///run/good.sock", SourceKubelet, "of the running kubelet (pid 812)"},
			tried:    []string{"kubelet (pid 700): runs in a pod"},
			notTaken: 1,
		},
		{
			name: "neither kubelet nor socket, but the kubelet's file",
			host: host{
				"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/left.sock\n",
				"900 containerd-shim":         "shim -namespace k8s.io -id a -address /run/shims.sock",
			},
			want: Endpoint{"unix:///run/left.sock", SourceKubelet, "setting of kubelet.service, which does not run"},
		},
		{
			name: "nothing but shims",
			host: host{
				"901 containerd-shim": "shim -namespace moby -id 1 -address /run/docker.sock",
				"903 containerd-shim": "shim -namespace k8s.io -id 2 -address /run/x/containerd.sock",
				"870 containerd-shim": "shim -namespace k8s.io -id 3 -address /run/evil.sock", // in pods
				"proc/870/status":     "Uid:\t0\t0\t0\t0\nNSpid:\t870\t7\n",
				"880 containerd-shim": "shim -namespace k8s.io -id 4 -address /run/evil.sock",
				"proc/880/status":     child(903),
			},
			want: Endpoint{"unix:///run/x/containerd.sock", SourceWellKnown, "given to a running shim of Kubernetes"},
		},
		{
			name: "crictl.yaml where the variable names it", config: named,
			host: host{"etc/crictl.yaml": "runtime-endpoint: /run/other.sock\n"},
			want: Endpoint{"unix:///run/named.sock", SourceConfig, named},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := DiscoverOptions{Root: tc.host.root(t), Getenv: func(key string) string {
				return map[string]string{EndpointEnv: tc.env, CrictlConfigEnv: tc.config}[key]
			}}
			got, err := Discover(t.Context(), opts)
			none, _ := errors.AsType[*NoEndpointError](err)
			if tc.want == (Endpoint{}) && (none == nil || len(none.Tried) != len(got.Tried)) ||
				tc.want != (Endpoint{}) && err != nil {
				t.Fatalf("got %+v, error %v", got, err)
			}
			e := got.Endpoint
			if e.URL != tc.want.URL || e.Source != tc.want.Source || !strings.Contains(e.Reason, tc.want.Reason) {
				t.Errorf("got %+v, want %+v", e, tc.want)
			}
			var tried []string
			for _, one := range got.Tried {
				if one.Why != "not set" {
					tried = append(tried, one.What+": "+one.Why)
				}
			}
			if tc.tried != nil && !slices.EqualFunc(tried, tc.tried, strings.HasPrefix) {
				t.Errorf("tried (-want +got):\n%s", cmp.Diff(tc.tried, tried))
			}
			if len(got.NotTaken) != tc.notTaken {
				t.Errorf("not taken: %+v, want %d", got.NotTaken, tc.notTaken)
			}
		})
	}
}

func TestDiscoverFails(t *testing.T) {
	root := host{containerdSocket: "socket"}.root(t)
	for source, opts := range map[Source]DiscoverOptions{
		SourceFlag: {Flag: "tcp://1.2.3.4:1", Root: root},
		SourceEnv:  {Getenv: func(string) string { return "/proc/version" }, Root: root},
	} {
		_, err := Discover(t.Context(), opts)
		if e, ok := errors.AsType[*EndpointError](err); !ok || e.Source != source {
			t.Errorf("%s: %v", source, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Discover(ctx, DiscoverOptions{Root: root}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := Discover(late, DiscoverOptions{Root: root})
	if e, ok := errors.AsType[*NoEndpointError](err); !ok || e.Late == "" {
		t.Errorf("late: %v", err)
	}
}
