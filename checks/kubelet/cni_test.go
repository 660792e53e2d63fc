package kubelet

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

const calico = `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[
 {"type":"calico","ipam":{"type":"calico-ipam"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},
 {"type":"portmap","snat":true,"capabilities":{"portMappings":true}},{"type":"bandwidth"}]}`

func TestReadCNI(t *testing.T) {
	const k3sConf = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	// a configuration without its plugin before a good one, as CRI-O and containerd take them
	lost := []string{
		"c/05-lost.conf", `{"name":"lost","type":"lost"}`, "c/10-rig.conf", `{"name":"rig","type":"portmap"}`,
		"b/portmap", "",
	}
	// the bridge of sandboxes among the interfaces of the runtime, and not, and made anew
	bridged := []string{
		"c/10-net.conflist", `{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"bridge"},{"type":"portmap"}]}`,
		"proc/55/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 785 1\n",
		"proc/56/net/dev", "Inter-|   Receive\n face |bytes\n  cni0: 444 7\n veth9: 1 1\n",
		"proc/58/net/dev", "Inter-|   Receive\n face |bytes\n  cni0: 444 7\n veth0: 1 1\n veth9: 1 1\n",
		"sys/class/net/veth0/mtu", "1500\n", "sys/class/net/veth9/master/mtu", "1500\n",
		"var/lib/cni/results/cni-loopback-a1-lo",
		`{"containerId":"a1","result":{"interfaces":[{"name":"lo","sandbox":"/n/a"}]}}`,
		"var/lib/cni/results/net-a1-eth0", `{"containerId":"a1","result":{"interfaces":[{"name":"cni0"},{"name":"veth0"},` +
			`{"name":"eth0","sandbox":"/n/a"}]}}`,
		"var/lib/cni/results/net-b2-eth0",
		`{"containerId":"b2","result":{"interfaces":[{"name":"br1"},{"name":"cni0","sandbox":"/n/b"}]}}`,
		"var/lib/cni/results/net-c3-eth0", `{"containerId":"c3","result":`,
		"var/lib/cni/results/net-d4-eth0",
		`{"containerId":"d4","result":{"interfaces":[{"name":"cni0"},{"name":"veth9"}]}}`,
	}
	dual := []string{
		"c/10-net.conflist", `{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"bridge","ipam":{"ranges":[[{` +
			`"subnet":"10.1.0.0/16"}],[{"subnet":"fd00:1::/64"}]]}},{"type":"portmap"}]}`,
		"proc/55/net/if_inet6", "", "proc/56/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n",
	}
	whole := CNI{ConfDir: "/c", File: "10-net.conflist", Name: "net", Plugins: []string{"bridge", "portmap"}}
	cut, remade := whole, whole
	cut.LostBridge, cut.CutOff = "cni0", []string{"a1", "d4"}
	remade.LostBridge, remade.Loose, remade.CutOff = "cni0", true, []string{"a1"}
	off := whole
	off.IPv6Off = true
	for _, tc := range []struct {
		name  string
		files []string
		setup crictl.RuntimeConfig
		want  CNI
	}{
		{"a list, and others after it", []string{
			"etc/cni/net.d/10-calico.conflist", calico, "etc/cni/net.d/20-flannel.conf", "{",
			"etc/cni/net.d/calico-kubeconfig", "", "etc/cni/net.d/00-sub.conf/x", "",
			"opt/cni/bin/calico", "", "opt/cni/bin/portmap", "", "usr/lib/cni/calico-ipam", "",
			"opt/cni/bin/bandwidth/x", "",
		}, crictl.RuntimeConfig{}, CNI{
			BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, File: "10-calico.conflist", Name: "k8s-pod-network",
			Plugins: []string{"calico", "calico-ipam", "portmap", "bandwidth"}, Missing: []string{"bandwidth"},
			Others: []string{"20-flannel.conf"},
		}},
		{"a broken file before a good one", []string{
			"etc/cni/net.d/05-broken.conf", `{"cniVersion":`, "etc/cni/net.d/10-calico.conflist", calico,
		}, crictl.RuntimeConfig{}, CNI{
			File: "05-broken.conf", Others: []string{"10-calico.conflist"},
			Problem: "05-broken.conf: error parsing configuration: unexpected end of JSON input",
		}},
		{"in the folder of K3s", []string{
			k3sConf + "/10-flannel.json", `{"name":"cbr0","type":"flannel"}`,
			"var/lib/rancher/k3s/data/cni/flannel", "",
		}, crictl.RuntimeConfig{}, CNI{
			ConfDir: k3sConf, BinDirs: []string{"/var/lib/rancher/k3s/data/cni"}, File: "10-flannel.json", Name: "cbr0",
			Plugins: []string{"flannel"},
		}},
		{"nothing, and folders of the runtime: one is whole, one lacks its content, one is gone", []string{
			"a/bolt/meta.db", "", "b/x", "",
		}, crictl.RuntimeConfig{Folders: []string{"/a/bolt", "/b/task", "/c/task"}}, CNI{
			Folders: []string{"/b/task", "/c"}, Problem: "there is no network configuration in /etc/kubernetes/cni/net.d, " +
				"/etc/cni/net.d, /var/lib/rancher/k3s/agent/etc/cni/net.d, /var/snap/microk8s/current/args/cni-network",
		}},
		{"CRI-O", lost, crictl.RuntimeConfig{ConfDir: "/c", BinDirs: []string{"/b"}, PassesOver: true}, CNI{
			ConfDir: "/c", BinDirs: []string{"/b"}, Configured: true, File: "10-rig.conf", Name: "rig",
			Plugins: []string{"portmap"}, Others: []string{"05-lost.conf"},
		}},
		{"containerd", lost, crictl.RuntimeConfig{ConfDir: "/c", BinDirs: []string{"/b"}}, CNI{
			ConfDir: "/c", BinDirs: []string{"/b"}, Configured: true, File: "05-lost.conf", Name: "lost",
			Plugins: []string{"lost"}, Missing: []string{"lost"}, Others: []string{"10-rig.conf"},
		}},
		{"a bridge that is gone", bridged, crictl.RuntimeConfig{ConfDir: "/c", PID: 55}, cut},
		{"a bridge that was made anew", bridged, crictl.RuntimeConfig{ConfDir: "/c", PID: 58}, remade},
		{"a range of IPv6, and no address", dual, crictl.RuntimeConfig{ConfDir: "/c", PID: 55}, off},
		{"a range of IPv6", dual, crictl.RuntimeConfig{ConfDir: "/c", PID: 56}, whole},
		{"a bridge", bridged, crictl.RuntimeConfig{ConfDir: "/c", PID: 56}, whole},
		{"a bridge, by a process that ended", bridged, crictl.RuntimeConfig{ConfDir: "/c", PID: 57}, whole},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testkit.NewTree(t)
			h.Write(tc.files...)
			got, err := ReadCNI(t.Context(), h.Root, tc.setup, Settings{PID: 56})
			must(t, err)
			if tc.want.ConfDir == "" {
				tc.want.ConfDir = "/etc/cni/net.d"
			}
			equal(t, tc.want, got)
		})
	}
}

// TestApart compares the namespaces of the runtime (55), the kubelet (56) and the node's first process.
func TestApart(t *testing.T) {
	const mount = "25 1 8:1 / / rw,relatime %s - ext4 /dev/sda1 rw\n"
	const below = "36 25 0:30 / /var/lib/kubelet rw %s - tmpfs tmpfs rw\n"
	for _, tc := range []struct {
		name                 string
		node, runtime, other string // network namespaces
		mounts               string // of the kubelet
		apart                string
		stay                 bool
	}{
		{"all in one", "1", "1", "1", "", "", false},
		{"the runtime alone", "1", "2", "1", "", "runtime", false},
		{"the kubelet alone", "1", "1", "2", "", "kubelet", false},
		{"a node in a container, seen from outside", "1", "2", "2", "", "", false},
		{"a unit with PrivateTmp", "1", "1", "1", fmt.Sprintf(mount, "master:1"), "", true},
		{
			"a kubelet in a container", "1", "1", "1",
			fmt.Sprintf(mount, "master:1") + fmt.Sprintf(below, "shared:1"), "", false,
		},
		{"a group of its own", "1", "1", "1", fmt.Sprintf(mount, "shared:9 master:1"), "", true},
	} {
		h := testkit.NewTree(t)
		for pid, ns := range map[string]string{"1": tc.node, "55": tc.runtime, "56": tc.other} {
			h.Link("proc/"+pid+"/ns/net", "net:["+ns+"]")
		}
		h.Link("proc/55/ns/mnt", "mnt:[0]")
		h.Link("proc/56/ns/mnt", "mnt:["+strconv.Itoa(min(1, len(tc.mounts)))+"]")
		h.Write("proc/55/mountinfo", fmt.Sprintf(mount, "shared:1"), "proc/56/mountinfo", tc.mounts)
		s := Settings{PID: 56, RootDir: "/var/lib/kubelet"}
		got, err := ReadCNI(t.Context(), h.Root, crictl.RuntimeConfig{PID: 55}, s)
		must(t, err)
		testkit.Equal(t, tc.name, tc.apart, got.Apart)
		testkit.Equal(t, tc.name, tc.stay, got.MountsStay)
	}
}
