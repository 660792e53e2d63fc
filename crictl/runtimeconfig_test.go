package crictl

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		{handler(`runtime.v1.linux","options":null`), cni, with("cgroupfs")},
		{`{"sandboxImage":"registry.k8s.io/pause:3.9"}`, "", RuntimeConfig{}}, // CRI-O
		{`{"containerd":{"defaultRuntimeName":"y","runtimes":{"x":{"options":{"SystemdCgroup":true}}}}}`, cni, network},
		{
			`{"containerdRootDir":"/var/lib/containerd","rootDir":"/var/lib/containerd/io.containerd.grpc.v1.cri",
			"stateDir":"/run/containerd/io.containerd.grpc.v1.cri"}`, "", RuntimeConfig{Folders: []string{
				"/var/lib/containerd/io.containerd.metadata.v1.bolt", "/run/containerd/io.containerd.runtime.v2.task",
			}},
		},
		{"", "", RuntimeConfig{}},
	} {
		if diff := cmp.Diff(tt.want, configIn(tt.config, tt.cni)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.config, diff)
		}
	}
}

// TestNetworkFolders reads what CRI-O 1.36 answers, and the flags of cri-dockerd 0.4.
func TestNetworkFolders(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	must(t, err)
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
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", pid, diff)
		}
	}
}
