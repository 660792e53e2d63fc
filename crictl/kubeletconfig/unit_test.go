package kubeletconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnitArgs(t *testing.T) {
	const lib, etc = "/usr/lib/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"kubeadm", map[string]string{
			lib: "[Service]\nExecStart=/usr/bin/kubelet\n",
			lib + ".d/10-kubeadm.conf": lines("[Service]",
				`Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml --x"`,
				"EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env", "EnvironmentFile=-/etc/default/kubelet",
				"ExecStart=",
				"ExecStart=-/usr/bin/kubelet \"--b=c\" \\\n $KUBELET_CONFIG_ARGS "+
					"$KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS --y=${Y}"),
			etc + ".d/20-more.conf":              "[Service]\nEnvironment=Y=1\n",
			"/var/lib/kubelet/kubeadm-flags.env": "# flags\nKUBELET_KUBEADM_ARGS=\"--node-ip=::1\"\n",
		}, []string{
			"/usr/bin/kubelet", "--b=c", "--config=/var/lib/kubelet/config.yaml", "--x", "--node-ip=::1", "--y=1",
		}},
		{"a drop-in of the same name counts once", map[string]string{
			lib: "[Service]\nExecStart=a\n", lib + ".d/1.conf": "[Service]\nExecStart=b\n",
			etc + ".d/1.conf": "[Service]\nEnvironment=X=1\n",
		}, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, unitArgs("kubelet.service", inMemory(tt.files))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzReadUnit(f *testing.F) {
	f.Add("[Service]\nEnvironment=\"A=b c\"\nExecStart=/x $A ${A} 'd e'\n")
	f.Fuzz(func(t *testing.T, text string) {
		ReadUnit(inMemory(map[string]string{"/etc/systemd/system/kubelet.service": text}))
	})
}
