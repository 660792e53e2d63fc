package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const calico = `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[
 {"type":"calico","ipam":{"type":"calico-ipam"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},
 {"type":"portmap","snat":true,"capabilities":{"portMappings":true}},{"type":"bandwidth"}]}`

func TestReadCNI(t *testing.T) {
	const k3sConf = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	for _, tc := range []struct {
		name string
		host func(tree)
		want CNI
	}{
		{
			"a list, and others after it",
			func(h tree) {
				h.file("etc/cni/net.d/10-calico.conflist", calico)
				h.file("etc/cni/net.d/20-flannel.conf", "{")
				h.file("etc/cni/net.d/calico-kubeconfig", "")
				h.file("etc/cni/net.d/00-sub.conf/x", "")
				h.program("opt/cni/bin/calico")
				h.program("opt/cni/bin/portmap")
				h.file("opt/cni/bin/bandwidth", "not to be run")
				h.program("usr/lib/cni/calico-ipam.real")
				h.link("/usr/lib/cni/calico-ipam.real", "opt/cni/bin/calico-ipam")
			},
			CNI{
				ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, File: "10-calico.conflist", Name: "k8s-pod-network",
				Plugins: []string{"calico", "calico-ipam", "portmap", "bandwidth"}, Missing: []string{"bandwidth"}, Others: []string{"20-flannel.conf"},
			},
		},
		{
			"a broken file before a good one",
			func(h tree) {
				h.file("etc/cni/net.d/05-broken.conf", `{"cniVersion":`)
				h.file("etc/cni/net.d/10-calico.conflist", calico)
			},
			CNI{
				ConfDir: "/etc/cni/net.d", File: "05-broken.conf", Others: []string{"10-calico.conflist"},
				Problem: "05-broken.conf: error parsing configuration: unexpected end of JSON input",
			},
		},
		{
			"a list in a file for one plugin",
			func(h tree) { h.file("etc/cni/net.d/10.conf", calico) },
			CNI{ConfDir: "/etc/cni/net.d", File: "10.conf", Problem: "10.conf: error parsing configuration: missing 'type'"},
		},
		{
			"a single plugin, in the folder of K3s",
			func(h tree) {
				h.file("etc/cni/net.d/README", "")
				h.file(k3sConf+"/10-flannel.json", `{"name":"cbr0","type":"flannel"}`)
				h.program("var/lib/rancher/k3s/data/cni/flannel")
			},
			CNI{ConfDir: k3sConf, BinDirs: []string{"/var/lib/rancher/k3s/data/cni"}, File: "10-flannel.json", Name: "cbr0", Plugins: []string{"flannel"}},
		},
		{
			"GKE",
			func(h tree) {
				h.file("etc/cni/net.d/10-gke.conf", `{"name":"n","type":"ptp","ipam":{"type":"host-local"}}`)
				h.program("home/kubernetes/bin/ptp")
			},
			CNI{
				ConfDir: "/etc/cni/net.d", BinDirs: []string{"/home/kubernetes/bin"}, File: "10-gke.conf", Name: "n",
				Plugins: []string{"ptp", "host-local"}, Missing: []string{"host-local"},
			},
		},
		{
			"OpenShift, and podman's file",
			func(h tree) {
				h.file("etc/cni/net.d/87-podman-bridge.conflist", "{")
				h.file("etc/kubernetes/cni/net.d/00-multus.conf", `{"name":"multus","type":"multus-shim"}`)
				h.program("var/lib/cni/bin/multus-shim")
			},
			CNI{ConfDir: "/etc/kubernetes/cni/net.d", BinDirs: []string{"/var/lib/cni/bin"}, File: "00-multus.conf", Name: "multus", Plugins: []string{"multus-shim"}},
		},
		{
			"no plugins", func(h tree) { h.file("etc/cni/net.d/10.conflist", `{"name":"../..","cniVersion":"1.1.0"}`) },
			CNI{ConfDir: "/etc/cni/net.d", File: "10.conflist", Problem: "10.conflist: names no plugin"},
		},
		{
			"a plugin with a path",
			func(h tree) {
				h.file("etc/cni/net.d/10.conf", `{"name":"n","type":"../../bin/sh"}`)
				h.program("opt/cni/bin/x")
				h.program("bin/sh")
			},
			CNI{
				ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, File: "10.conf", Name: "n",
				Plugins: []string{"../../bin/sh"}, Missing: []string{"../../bin/sh"},
			},
		},
		{
			"nothing", func(tree) {},
			CNI{
				ConfDir: "/etc/cni/net.d",
				Problem: "there is no network configuration in /etc/kubernetes/cni/net.d, /etc/cni/net.d, /var/lib/rancher/k3s/agent/etc/cni/net.d, /var/snap/microk8s/current/args/cni-network",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			tc.host(h)
			got, err := ReadCNI(t.Context(), h.root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzNetwork(f *testing.F) {
	f.Add("10.conflist", []byte(calico))
	f.Add("10.conf", []byte(`{"name":"n","type":"\u001b[31m"}`))
	f.Add("10.conflist", []byte(`{"name":"n","plugins":[null]}`))
	f.Add("10.json", []byte(`null`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		list, err := parseNetwork(name, data)
		if err != nil {
			return
		}
		c := CNI{BinDirs: []string{"/"}}
		c.fill(seenBy(t.TempDir(), 0), list)
		for _, text := range append(c.Plugins, c.Name) {
			if text != oneLine(text) {
				t.Errorf("%q is not fit to be shown", text)
			}
		}
	})
}
