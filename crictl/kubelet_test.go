package crictl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

func TestKubelet(t *testing.T) {
	for _, tc := range []struct {
		name string
		host func(tree)
		want *Kubelet
	}{
		{name: "none", host: func(h tree) { h.process("1", "systemd", "/sbin/init") }},
		{
			name: "flags in both forms win over the file",
			host: func(h tree) {
				h.process("812", "kubelet", "/usr/bin/kubelet", "--v=2", "--config", "/etc/k.yaml",
					"--feature-gates=EventedPLEG=true", "--feature-gates", "CRIListStreaming=false,Other=true",
					"--runtime-request-timeout", "3m", "--container-runtime-endpoint=unix:///run/x.sock")
				h.file("etc/k.yaml", "runtimeRequestTimeout: 1m\nfeatureGates: {EventedPLEG: false, CRIListStreaming: true}\n")
			},
			want: &Kubelet{
				PID: 812, Name: "kubelet", ConfigPath: "/etc/k.yaml", Endpoint: "unix:///run/x.sock",
				EndpointFrom: "--container-runtime-endpoint", RequestTimeout: 3 * time.Minute, EventedPLEG: true,
			},
		},
		{
			name: "garbage collection and pods, by flags over the file and its drop-ins",
			host: func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/etc/k.yaml", "--config-dir=/etc/k.d", "--root-dir=/data/kubelet",
					"--maximum-dead-containers-per-container=3", "--minimum-container-ttl-duration", "2m", "--read-only-port=0",
					"--manifest-url=http://localhost/pods")
				h.file("etc/k.yaml", "staticPodPath: /etc/kubernetes/manifests\nreadOnlyPort: 10255\nstaticPodURL: http://x/\n")
				h.file("etc/k.d/10.conf", "staticPodPath: /etc/static\n")
			},
			want: &Kubelet{
				PID: 812, Name: "kubelet", ConfigPath: "/etc/k.yaml", Collection: Collection{
					DeadPerContainer: new(3), MinAge: 2 * time.Minute, RootDir: "/data/kubelet", StaticPodPath: "/etc/static",
					StaticPodURL: "http://localhost/pods",
				},
			},
		},
		{
			name: "containerised: the file is the container's",
			host: func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/k.yaml")
				h.file("k.yaml", "runtimeRequestTimeout: 1s\n")
				h.file("proc/812/root/k.yaml", "runtimeRequestTimeout: 2s\n")
			},
			want: &Kubelet{PID: 812, Name: "kubelet", ConfigPath: "/k.yaml", RequestTimeout: 2 * time.Second},
		},
		{
			name: "what is bad is said, and the rest counts",
			host: func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/k.yaml", "--config-dir=/none", "--runtime-request-timeout=soon")
				h.file("k.yaml", "containerRuntimeEndpoint: /run/a\nruntimeRequestTimeout: later\n")
			},
			want: &Kubelet{
				PID: 812, Name: "kubelet", ConfigPath: "/k.yaml", Endpoint: "/run/a",
				EndpointFrom: "containerRuntimeEndpoint in the configuration file", RequestTimeout: 2 * time.Minute,
				Unreadable: "/none does not exist; runtimeRequestTimeout has a wrong value",
			},
		},
		{
			name: "k3s hands arguments on",
			host: func(h tree) {
				h.process("5", "k3s-agent", "/usr/local/bin/k3s", "agent", "--kubelet-arg=feature-gates=EventedPLEG=true",
					"--kubelet-arg", "config=/k.yaml", "--container-runtime-endpoint", "/run/a")
				h.file("k.yaml", "runtimeRequestTimeout: 9s\n")
			},
			want: &Kubelet{
				PID: 5, Name: "k3s-agent", ConfigPath: "/k.yaml", Endpoint: "/run/a",
				EndpointFrom: "--container-runtime-endpoint", EventedPLEG: true, RequestTimeout: 9 * time.Second,
			},
		},
		{
			name: "k3s without an agent",
			host: func(h tree) { h.process("5", "k3s-server", "k3s", "server", "--disable-agent") },
		},
		{
			name: "RKE2's kubelet before RKE2",
			host: func(h tree) {
				h.process("5", "rke2", "/usr/local/bin/rke2", "server")
				h.process("60", "kubelet", "kubelet", "--container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock")
			},
			want: &Kubelet{
				PID: 60, Name: "kubelet", Endpoint: "unix:///run/k3s/containerd/containerd.sock",
				EndpointFrom: "--container-runtime-endpoint",
			},
		},
		{
			name: "MicroK8s's arguments in a file",
			host: func(h tree) {
				h.process("5", "kubelite", "/snap/microk8s/6000/kubelite",
					"--kubelet-args-file=/var/snap/microk8s/6000/args/kubelet")
				h.file("var/snap/microk8s/6000/args/kubelet",
					"# made by snap\n--config=${SNAP_DATA}/k.yaml\n--container-runtime-endpoint ${SNAP_COMMON}/run/containerd.sock\n")
				h.file("var/snap/microk8s/6000/k.yaml", "runtimeRequestTimeout: 9s\n")
			},
			want: &Kubelet{
				PID: 5, Name: "kubelite", ConfigPath: "/var/snap/microk8s/6000/k.yaml",
				Endpoint:     "/var/snap/microk8s/common/run/containerd.sock",
				EndpointFrom: "--container-runtime-endpoint", RequestTimeout: 9 * time.Second,
			},
		},
		{
			name: "zombie, and programs that sound alike",
			host: func(h tree) {
				h.process("5", "kubelet")
				h.process("6", "kubelet-csr-app", "/kubelet-csr-approver", "--config=/x")
				h.process("7", "k0s-thing", "/bin/true")
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			tc.host(h)
			d := &discovery{root: h.root}
			d.findKubelet(t.Context())
			if diff := cmp.Diff(tc.want, d.Kubelet); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestKubeletForbiddenConfig(t *testing.T) {
	if !asNobody(t) {
		return
	}
	h := newTree(t)
	h.process("5", "kubelet", "kubelet", "--config=/k.yaml")
	h.file("k.yaml", "")
	if err := os.Chmod(filepath.Join(h.root, "k.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	d := &discovery{root: h.root}
	d.findKubelet(t.Context())
	if want := "/k.yaml may not be read by this user"; d.Kubelet.Unreadable != want {
		t.Errorf("got %q", d.Kubelet.Unreadable)
	}
}

// FuzzKubeletArgs feeds command lines and process statuses, none of which kdiag controls.
func FuzzKubeletArgs(f *testing.F) {
	for _, s := range []string{
		"kubelet\x00--config=/a\x00--config\x00/b\x00", "kubelet --config /a", "", "\x00\x00", "k3s\x00server\x00--kubelet-arg=config=/x\x00",
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
		if why := p.otherUser(); why == "" && !strings.Contains(status, "Uid:") || strings.ContainsAny(why, "\x00\x1b\n") {
			t.Errorf("%q: %q", status, why)
		}
	})
}
