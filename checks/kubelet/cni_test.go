package kubelet

import (
	"testing"

	"github.com/kdiag/kdiag/crictl"
)

const calico = `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[
 {"type":"calico","ipam":{"type":"calico-ipam"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},
 {"type":"portmap","snat":true,"capabilities":{"portMappings":true}},{"type":"bandwidth"}]}`

func TestReadCNI(t *testing.T) {
	const k3sConf = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	for _, tc := range []struct {
		name  string
		files []string
		want  CNI
	}{
		{"a list, and others after it", []string{
			"etc/cni/net.d/10-calico.conflist", calico, "etc/cni/net.d/20-flannel.conf", "{",
			"etc/cni/net.d/calico-kubeconfig", "", "etc/cni/net.d/00-sub.conf/x", "",
			"opt/cni/bin/calico", "", "opt/cni/bin/portmap", "", "usr/lib/cni/calico-ipam", "",
			"opt/cni/bin/bandwidth/x", "",
		}, CNI{
			BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, File: "10-calico.conflist", Name: "k8s-pod-network",
			Plugins: []string{"calico", "calico-ipam", "portmap", "bandwidth"}, Missing: []string{"bandwidth"},
			Others: []string{"20-flannel.conf"},
		}},
		{"a broken file before a good one", []string{
			"etc/cni/net.d/05-broken.conf", `{"cniVersion":`, "etc/cni/net.d/10-calico.conflist", calico,
		}, CNI{
			File: "05-broken.conf", Others: []string{"10-calico.conflist"},
			Problem: "05-broken.conf: error parsing configuration: unexpected end of JSON input",
		}},
		{"a single plugin, in the folder of K3s", []string{
			"etc/cni/net.d/README", "", k3sConf + "/10-flannel.json", `{"name":"cbr0","type":"flannel"}`,
			"var/lib/rancher/k3s/data/cni/flannel", "",
		}, CNI{
			ConfDir: k3sConf, BinDirs: []string{"/var/lib/rancher/k3s/data/cni"}, File: "10-flannel.json", Name: "cbr0",
			Plugins: []string{"flannel"},
		}},
		{"nothing", nil, CNI{Problem: "there is no network configuration in /etc/kubernetes/cni/net.d, " +
			"/etc/cni/net.d, /var/lib/rancher/k3s/agent/etc/cni/net.d, /var/snap/microk8s/current/args/cni-network"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			h.file(tc.files...)
			got, err := ReadCNI(t.Context(), h.root, crictl.RuntimeConfig{})
			must(t, err)
			if tc.want.ConfDir == "" {
				tc.want.ConfDir = "/etc/cni/net.d"
			}
			equal(t, tc.want, got)
		})
	}
}

// TestLostFolders has one folder that is whole, one without its content, and one that is gone.
func TestLostFolders(t *testing.T) {
	h := newTree(t)
	h.file("a/bolt/meta.db", "", "b/x", "")
	got, err := ReadCNI(t.Context(), h.root, crictl.RuntimeConfig{Folders: []string{"/a/bolt", "/b/task", "/c/task"}})
	must(t, err)
	equal(t, []string{"/b/task", "/c"}, got.Folders)
}

// TestWholeFirst has a configuration without its plugin before a good one, as CRI-O and containerd take them.
func TestWholeFirst(t *testing.T) {
	h := newTree(t)
	h.file("c/05-lost.conf", `{"name":"lost","type":"lost"}`, "c/10-rig.conf", `{"name":"rig","type":"bridge"}`, "b/bridge", "")
	for passes, want := range map[bool]string{true: "10-rig.conf", false: "05-lost.conf"} {
		setup := crictl.RuntimeConfig{ConfDir: "/c", BinDirs: []string{"/b"}, PassesOver: passes}
		got, err := ReadCNI(t.Context(), h.root, setup)
		must(t, err)
		equal(t, want, got.File)
	}
}

// TestLostBridge has the bridge of a sandbox among the interfaces of the runtime, and not.
func TestLostBridge(t *testing.T) {
	h := newTree(t)
	h.file("c/10-net.conflist", `{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"bridge"},{"type":"portmap"}]}`,
		"proc/55/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 785 1\n",
		"proc/56/net/dev", "Inter-|   Receive\n face |bytes\n  cni0: 444 7\n",
		"var/lib/cni/results/cni-loopback-a1-lo", `{"containerId":"a1","result":{"interfaces":[{"name":"lo","sandbox":"/n/a"}]}}`,
		"var/lib/cni/results/net-a1-eth0", `{"containerId":"a1","result":{"interfaces":[{"name":"cni0"},{"name":"veth0"},`+
			`{"name":"eth0","sandbox":"/n/a"}]}}`,
		"var/lib/cni/results/net-b2-eth0", `{"containerId":"b2","result":{"interfaces":[{"name":"br1"}]}}`,
		"var/lib/cni/results/net-c3-eth0", `{"containerId":"c3","result":`)
	for pid, want := range map[int]CNI{55: {LostBridge: "cni0", CutOff: []string{"a1"}}, 56: {}, 0: {}, 57: {}} {
		got, err := ReadCNI(t.Context(), h.root, crictl.RuntimeConfig{ConfDir: "/c", PID: pid})
		must(t, err)
		equal(t, want, CNI{LostBridge: got.LostBridge, CutOff: got.CutOff})
	}
}
