package crictl

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

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
		{
			"k3s without a file, which hands more on than is seen",
			host{"5 k3s-server": "", "proc/5/cmdline": "/usr/local/bin/k3s server"}, // which wrote its own title
			&Kubelet{
				PID: 5, Name: "k3s-server", Endpoint: "unix://" + k3sSocket, EndpointFrom: "built-in default",
			},
		},
		{"k3s without an agent", host{"5 k3s-server": "k3s server --disable-agent"}, nil},
		{
			"RKE2's kubelet before RKE2",
			host{
				"5 rke2":     "/usr/local/bin/rke2 server",
				"60 kubelet": "kubelet --container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock",
			},
			&Kubelet{
				PID: 60, Name: "kubelet", Endpoint: "unix://" + k3sSocket, EndpointFrom: flag,
				Collection: Collection{ReadOnlyPort: 10255},
			},
		},
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
			"zombie, and programs that sound alike",
			host{
				"5 kubelet": "", "proc/5/cmdline": "", "7 k0s-thing": "/bin/true",
				"6 kubelet-csr-app": "/kubelet-csr-approver --config=/x",
			},
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &discovery{root: tc.host.root(t)}
			d.findKubelet(t.Context())
			if diff := cmp.Diff(tc.want, d.Kubelet); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// FuzzKubeletArgs feeds command lines and process statuses, none of which kdiag controls.
func FuzzKubeletArgs(f *testing.F) {
	for _, s := range []string{
		"kubelet\x00--config=/a\x00--config\x00/b\x00", "kubelet --config /a", "", "\x00\x00",
		"k3s\x00server\x00--kubelet-arg=config=/x\x00",
		"kubelet\x00--\x00--config=/a", "kubelet\x00--config", "kubelet\x00--feature-gates=A=true,B,=,C=x",
	} {
		f.Add(s, "kubelet", "Uid:\t0\t0\t0\t0\n")
	}
	f.Fuzz(func(t *testing.T, cmdline, comm, status string) {
		if k := newKubeletProcess("/none", process{name: comm, argv: splitCmdline([]byte(cmdline))}); k != nil {
			// Both forms of a flag must give the same values.
			joined := k.Flags()
			var rewritten []string
			for name, values := range joined {
				for _, v := range values {
					rewritten = append(rewritten, "--"+name+"="+v)
				}
			}
			if diff := cmp.Diff(joined, kubeletconfig.ParseFlags(rewritten)); diff != "" {
				t.Errorf("(-joined +apart)\n%s", diff)
			}
		}
		p := process{status: status}
		if why := p.otherUser(); why == "" && !strings.Contains(status, "Uid:") ||
			strings.ContainsAny(why, "\x00\x1b\n") {
			t.Errorf("%q: %q", status, why)
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
	if diff := cmp.Diff([]int{900}, got); diff != "" {
		t.Errorf("rivals (-want +got):\n%s", diff)
	}
}
