package crictl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/testkit"
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
		testkit.Must(t, err)
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
	for _, tc := range []struct {
		name     string
		env      string
		host     host
		want     Endpoint // Reason: a part of it
		tried    []string // sources that were set and not taken, with the beginning of why; nil is not compared
		notTaken int      // how many of them are kubelets of others
	}{
		{
			name: "environment", env: "unix:///run/y.sock", host: host{containerdSocket: "socket"},
			want: Endpoint{"unix:///run/y.sock", SourceEnv, EndpointEnv}, tried: []string{},
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
			name: "another node's kubelet, one with the set-user-ID bit, one that gave root away, and the node's",
			host: host{
				"700 kubelet":     "kubelet --container-runtime-endpoint=/run/kind.sock",
				"proc/700/status": "NSpid:\t700\t199\n",
				"701 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/701/status": "Name:\tkubelet\nUid:\t4000000000\t0\t0\t0\n",
				"702 kubelet":     "kubelet --container-runtime-endpoint=/run/evil.sock",
				"proc/702/status": "Name:\tkubelet\nUid:\t0\t4000000000\t0\t4000000000\n",
				"812 kubelet":     "kubelet --container-runtime-endpoint=/run/good.sock",
				"etc/crictl.yaml": "runtime-endpoint: unix:///run/crictl.sock\n",
			},
			want: Endpoint{"unix:///run/good.sock", SourceKubelet, "of the running kubelet (pid 812)"},
			tried: []string{
				"kubelet (pid 700): runs in another pid namespace", "kubelet (pid 701): runs as user 4000000000",
				"kubelet (pid 702): runs as user 4000000000",
			},
			notTaken: 2,
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
			host: host{"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/left.sock\n"},
			want: Endpoint{"unix:///run/left.sock", SourceKubelet, "setting of kubelet.service, which does not run"},
		},
		{
			name: "nothing but shims",
			host: host{
				"901 containerd-shim": "shim -namespace moby -id 1 -address /run/docker.sock",
				"903 containerd-shim": "shim -namespace k8s.io -id 2 -address /run/x/containerd.sock",
				"880 containerd-shim": "shim -namespace k8s.io -id 4 -address /run/evil.sock",
				"proc/880/status":     child(903),
			},
			want: Endpoint{"unix:///run/x/containerd.sock", SourceWellKnown, "given to a running shim of Kubernetes"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := DiscoverOptions{Root: tc.host.root(t), Getenv: func(key string) string {
				return map[string]string{EndpointEnv: tc.env}[key]
			}}
			got, err := Discover(t.Context(), opts)
			testkit.Must(t, err)
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
			testkit.Equal(t, "kubelets that were not taken", tc.notTaken, len(got.NotTaken))
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
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := Discover(late, DiscoverOptions{Root: root})
	if e, ok := errors.AsType[*NoEndpointError](err); !ok || e.Late == "" {
		t.Errorf("late: %v", err)
	}
}

// TestHostFiles has links that lead out of the root, and a file in the host's root that the root of a process lacks.
func TestHostFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	testkit.Must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	root := host{
		"data/target": "inside", "data/large": strings.Repeat("x", 2<<20+1),
		"proc/7/root/data/target": "the process's own", "proc/7/cwd/relative": "where it works",
		"data/absolute": "-> /data/target", "data/up": "-> ../../../../../../data/target",
		"data/out": "-> " + outside,
	}.root(t)
	testkit.Must(t, unix.Mkfifo(filepath.Join(root, "data/fifo"), 0o600))
	for pid, names := range map[int]map[string]string{
		0: {
			"/data/target": "inside", "/data/absolute": "inside", "/data/up": "inside", "/data/out": Absent,
			"/data/large": "is larger than 2097152 bytes",
			"/data/fifo":  "is not a regular file", "/data": "is not a regular file", "/data/target/x": Absent,
			"": Absent,
		},
		7: {"/data/target": "the process's own", "/data/absolute": "inside", "relative": "where it works"},
	} {
		for name, want := range names {
			data, err := SeenBy(root, pid).Read(name)
			testkit.Equal(t, fmt.Sprint(name, " of ", pid), want, string(data)+testkit.Text(err))
		}
	}
}

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

func TestKubelet(t *testing.T) {
	const flag = "--container-runtime-endpoint"
	for _, tc := range []struct {
		name string
		host host
		want *Kubelet
	}{
		{
			"flags over the file and its drop-ins; what is bad is named, and the rest counts",
			host{
				"812 kubelet": "kubelet --config=/etc/k.yaml --config-dir=/etc/k.d --root-dir=/data/kubelet " +
					"--maximum-dead-containers-per-container=3 --minimum-container-ttl-duration 2m " +
					"--read-only-port=0 --manifest-url=http://localhost/pods --runtime-request-timeout=soon",
				"etc/k.yaml": "staticPodPath: /etc/kubernetes/manifests\nreadOnlyPort: 10255\nstaticPodURL: x\n" +
					"podLogsDir: /data/logs\ncontainerRuntimeEndpoint: /run/a\n",
				"etc/k.d/10.conf": "staticPodPath: /etc/static\n",
			},
			&Kubelet{
				PID: 812, Name: "kubelet", ConfigPath: "/etc/k.yaml", Endpoint: "/run/a",
				EndpointFrom: "containerRuntimeEndpoint in the configuration file", RequestTimeout: 2 * time.Minute,
				Unreadable: "runtimeRequestTimeout has a wrong value", Collection: Collection{
					DeadPerContainer: new(3), MinAge: 2 * time.Minute, RootDir: "/data/kubelet",
					StaticPodPath: "/etc/static",
					StaticPodURL:  "http://localhost/pods", PodLogsDir: "/data/logs",
				},
			},
		},
		{
			"k3s hands arguments on",
			host{
				"5 k3s-agent": "/usr/local/bin/k3s agent --kubelet-arg=feature-gates=EventedPLEG=true," +
					"CRIListStreaming=true --kubelet-arg config=/k.yaml --container-runtime-endpoint /run/a",
				"k.yaml": "runtimeRequestTimeout: 9s\n",
			},
			&Kubelet{
				PID: 5, Name: "k3s-agent", ConfigPath: "/k.yaml", Endpoint: "/run/a", EndpointFrom: flag,
				EventedPLEG: true, CRIListStreaming: true, RequestTimeout: 9 * time.Second,
			},
		},
		{"k3s without an agent", host{"5 k3s-server": "k3s server --disable-agent"}, nil},
		{
			"MicroK8s's arguments in a file",
			host{
				"5 kubelite": "/snap/microk8s/6000/kubelite --kubelet-args-file=/var/snap/microk8s/6000/args/kubelet",
				"var/snap/microk8s/6000/args/kubelet": "# made by snap\n--config=${SNAP_DATA}/k.yaml\n" +
					"--container-runtime-endpoint ${SNAP_COMMON}/run/containerd.sock\n",
				"var/snap/microk8s/6000/k.yaml": "runtimeRequestTimeout: 9s\n",
			},
			&Kubelet{
				PID: 5, Name: "kubelite", ConfigPath: "/var/snap/microk8s/6000/k.yaml",
				Endpoint: "/var/snap/microk8s/common/run/containerd.sock", EndpointFrom: flag,
				RequestTimeout: 9 * time.Second,
			},
		},
		{
			"zombie, and a program that sounds alike",
			host{"5 kubelet": "", "proc/5/cmdline": "", "6 kubelet-csr-app": "/kubelet-csr-approver --config=/x"},
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &discovery{root: tc.host.root(t)}
			d.findKubelet(t.Context())
			testkit.Equal(t, "result", tc.want, d.Kubelet)
		})
	}
}

// FuzzKubeletArgs feeds command lines, which kdiag does not control.
func FuzzKubeletArgs(f *testing.F) {
	for _, s := range []string{
		"kubelet\x00--config=/a\x00--config\x00/b\x00", "kubelet --config /a", "", "\x00\x00",
		"k3s\x00server\x00--kubelet-arg=config=/x\x00",
		"kubelet\x00--\x00--config=/a", "kubelet\x00--config", "kubelet\x00--feature-gates=A=true,B,=,C=x",
	} {
		f.Add(s, "kubelet")
	}
	f.Fuzz(func(t *testing.T, cmdline, comm string) {
		if k := newKubeletProcess("/none", process{name: comm, argv: splitCmdline([]byte(cmdline))}); k != nil {
			// Both forms of a flag must give the same values.
			joined := k.Flags()
			var rewritten []string
			for name, values := range joined {
				for _, v := range values {
					rewritten = append(rewritten, "--"+name+"="+v)
				}
			}
			testkit.Equal(t, "flags that are apart", joined, kubeletconfig.ParseFlags(rewritten))
		}
	})
}

// TestRivals compares kubelet 812 with others.
func TestRivals(t *testing.T) {
	root := host{
		containerdSocket: "socket", "proc/812/root": "-> ../..", "812 kubelet": "kubelet",
		"900 kubelet": "kubelet --container-runtime-endpoint unix://" + containerdSocket, "proc/900/root": "-> ../..",
		"proc/900/fd/3": "-> socket:[77]", "proc/900/status": child(1),
		"901 kubelet": "kubelet", "proc/901/root": "-> ../..", "proc/901/fd/3": "-> /dev/null", // only called so
		"902 kubelet": "kubelet", "proc/902/root/" + containerdSocket: "socket", "proc/902/fd/3": "-> socket:[78]", // a node
		"903 kubelet": "kubelet", "proc/903/root": "-> ../..", "proc/903/fd/3": "-> socket:[79]", "proc/903/status": child(812),
		"904 kubelet":   "kubelet --container-runtime-endpoint " + crioSocket,
		"proc/904/root": "-> ../..", "proc/904/fd/3": "-> socket:[80]",
	}.root(t)
	got := Rivals(t.Context(), root, 812, []int{900, 901, 902, 903, 904})
	testkit.Equal(t, "rivals", []int{900}, got)
}

// TestRuntimeConfig reads the reports of containerd 1.6 and 2.
func TestRuntimeConfig(t *testing.T) {
	const cni = `{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d","Networks":[
		{"Config":{"Plugins":[{"Network":{"type":"loopback","ipam":{}}}]},"IFName":"lo"},
		{"Config":{"Plugins":[{"Network":{"type":"bridge","ipam":{"type":"host-local"}}}]},"IFName":"eth0"}]}`
	handler := func(options string) string {
		return `{"containerd":{"defaultRuntimeName":"x","runtimes":{"x":{"runtimeType":"io.containerd.` +
			options + `}}}}`
	}
	network := RuntimeConfig{
		ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"},
		Plugins: []string{"loopback", "bridge", "host-local"},
	}
	with := func(driver string, programs ...string) RuntimeConfig {
		s := network
		s.CgroupDriver, s.Programs = driver, programs
		return s
	}
	for _, tt := range []struct {
		config, cni string
		want        RuntimeConfig
	}{
		{handler(`runc.v2","options":null`), cni, with("cgroupfs", "containerd-shim-runc-v2", "runc")},
		{
			handler(`runc.v2","runtimePath":"/opt/shim","options":{"BinaryName":"/opt/crun","SystemdCgroup":true}`),
			cni, with("systemd", "/opt/shim", "/opt/crun"),
		},
		{`{"sandboxImage":"registry.k8s.io/pause:3.9"}`, "", RuntimeConfig{}}, // CRI-O
		{
			`{"containerdRootDir":"/var/lib/containerd","rootDir":"/var/lib/containerd/io.containerd.grpc.v1.cri",
			"stateDir":"/run/containerd/io.containerd.grpc.v1.cri"}`, "", RuntimeConfig{Folders: []string{
				"/var/lib/containerd/io.containerd.metadata.v1.bolt", "/run/containerd/io.containerd.runtime.v2.task",
			}},
		},
	} {
		testkit.Equal(t, tt.config, tt.want, configIn(tt.config, tt.cni))
	}
}

// TestNetworkFolders reads what CRI-O 1.36 answers, and the flags of cri-dockerd 0.4.
func TestNetworkFolders(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	testkit.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "[crio]\n  [crio.network]\n    network_dir = \"/etc/cni/net.d\"\n"+
			"    plugin_dirs = [\"/opt/cni/bin\", \"/usr/libexec/cni\"]\n")
	})}
	go func() { _ = server.Serve(lis) }()
	defer server.Close()
	root := host{
		"7 crio": "crio", "8 cri-dockerd": "cri-dockerd", "9 containerd": "containerd",
		"10 cri-dockerd": "cri-dockerd --cni-bin-dir=/a,/b --cni-conf-dir /c",
	}.root(t)
	for pid, want := range map[int]RuntimeConfig{
		7:  {ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin", "/usr/libexec/cni"}},
		8:  {ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}},
		9:  {},
		10: {ConfDir: "/c", BinDirs: []string{"/a", "/b"}},
	} {
		got := RuntimeConfig{PID: pid}
		got.NetworkFolders(t.Context(), root, socket)
		want.PID, want.PassesOver = pid, pid != 9
		testkit.Equal(t, fmt.Sprint(pid), want, got)
	}
}
