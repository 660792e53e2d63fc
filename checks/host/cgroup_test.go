package host

import "testing"

func TestParseCgroup(t *testing.T) {
	tests := []struct {
		name, in string
		want     cgroupName
	}{
		{"systemd v2", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1b2c_3d.slice/cri-containerd-" + idA + ".scope\n", cgroupName{idA, "1b2c-3d"}},
		{"systemd v2 guaranteed", "0::/kubepods.slice/kubepods-pod1b2c_3d.slice/cri-containerd-" + idA + ".scope\n", cgroupName{idA, "1b2c-3d"}},
		{"crio with a child", "0::/kubepods.slice/kubepods-pod1.slice/crio-" + idA + ".scope/container\n", cgroupName{idA, "1"}},
		{"systemd below --cgroup-root", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1b2c_3d.slice/cri-containerd-" + idA + ".scope\n", cgroupName{idA, "1b2c-3d"}},
		{"cgroupfs v1", "9:name=systemd:/\n4:memory:/kubepods/burstable/pod1b2c-3d/" + idA + "\n", cgroupName{idA, "1b2c-3d"}},
		{"nested in a node of kind", "0::/docker/" + idB + "/kubelet/kubepods/pod7/" + idA + "\n", cgroupName{idA, "7"}},
		{"path mismatch", "1:cpu:/system.slice/kubepods-pod1.slice:cri-containerd:" + idA + "\n", cgroupName{idA, ""}},
		{"alone", "0::/k8s.io/" + idA + "\n", cgroupName{idA, ""}},
		{"service", "0::/system.slice/containerd.service\n", cgroupName{}},
		{"pod only", "0::/kubepods/pod7\n", cgroupName{}},
		{"broken", "0:\n::\n\n", cgroupName{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseCgroup([]byte(tt.in)); got != tt.want {
				t.Errorf("parseCgroup(%q) = %+v, want %+v", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add([]byte("0::/kubepods.slice/kubepods-pod1.slice/crio-" + idA + ".scope\n"))
	f.Add([]byte("4:memory:/kubepods/burstable/pod1b2c-3d/" + idA))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseCgroup(b); got.id != "" && !isID(got.id) || got.id == "" && got.podUID != "" {
			t.Errorf("parseCgroup(%q) = %+v", b, got)
		}
	})
}
