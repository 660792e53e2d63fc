package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// plain are the settings of a kubelet that was told nothing.
func plain() Settings {
	return Settings{
		PID: 812, Endpoint: "unix:///run/containerd/containerd.sock", RequestTimeout: 2 * time.Minute, SerializePulls: true,
		CgroupDriver: "cgroupfs", RootDir: "/var/lib/kubelet", PodLogsDir: "/var/log/pods", MaxPods: 110, PodPidsLimit: -1,
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		},
		NodeStatusEvery: 10 * time.Second, LeaseSeconds: 40, SyncFrequency: time.Minute, HealthzAddress: "127.0.0.1:10248",
		Address: "0.0.0.0:10250", CertDir: "/var/lib/kubelet/pki", NodeName: "worker-1",
	}
}

// rancher gives them the thresholds of K3s and RKE2.
func rancher(s *Settings) {
	s.EvictionHard = map[string]string{"imagefs.available": "5%", "nodefs.available": "5%"}
	s.EvictionOff = []string{"imagefs.inodesFree", "memory.available", "nodefs.inodesFree"}
	s.Own = "evictionHard names imagefs.available and nodefs.available alone, as K3s and RKE2 have it by default: nothing is evicted for want of memory or inodes"
}

func TestReadSettings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		host   func(tree)
		change func(*Settings)
	}{
		{"told nothing", func(h tree) { h.process("812", "kubelet", "/usr/bin/kubelet") }, func(*Settings) {}},
		{
			"what kubeadm writes: zeros mean the default",
			func(h tree) {
				h.process("812", "kubelet", "/usr/bin/kubelet", "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
					"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/var/lib/kubelet/config.yaml")
				h.file("var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n"+
					"containerRuntimeEndpoint: \"\"\nhealthzBindAddress: 127.0.0.1\nhealthzPort: 10248\nnodeStatusUpdateFrequency: 0s\n"+
					"rotateCertificates: true\nruntimeRequestTimeout: 0s\nsyncFrequency: 0s\ncpuManagerReconcilePeriod: 0s\n")
			},
			func(s *Settings) {
				s.Files, s.CgroupDriver, s.RotateClient = []string{"/var/lib/kubelet/config.yaml"}, "systemd", true
				s.Kubeconfig = "/etc/kubernetes/kubelet.conf"
			},
		},
		{
			"flags over drop-ins over the file",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/k.yaml", "--config-dir=/k.d", "--max-pods=120", "--cert-dir", "/pki",
					"--feature-gates=EventedPLEG=false", "--eviction-hard=memory.available<1Gi,nodefs.available<5%", "--hostname-override=Other",
					"--read-only-port=10255", "--rotate-certificates", "--root-dir=/data")
				h.file("k.yaml", "maxPods: 100\nsyncFrequency: 10s\naddress: 10.0.0.1\nfeatureGates: {EventedPLEG: true, A: true}\nevictionHard: {a: b}\ntlsCertFile: /s.crt\n")
				h.file("k.d/20.conf", "maxParallelImagePulls: 5\nsyncFrequency: 30s\n")
				h.file("k.d/10.conf", "syncFrequency: 20s\nport: 1\nfeatureGates: {A: null, B: true}\n")
				h.file("k.d/30.yaml", "syncFrequency: 40s\n")
			},
			func(s *Settings) {
				s.Files = []string{"/k.yaml", "/k.d/10.conf", "/k.d/20.conf"}
				s.MaxPods, s.SyncFrequency, s.Address, s.ReadOnlyAddress = 120, 30*time.Second, "10.0.0.1:1", "10.0.0.1:10255"
				s.FeatureGates = map[string]bool{"EventedPLEG": false, "B": true}
				s.EvictionHard = map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"}
				s.EvictionOff = []string{"imagefs.available", "imagefs.inodesFree", "nodefs.inodesFree"}
				s.SerializePulls, s.RotateClient, s.RootDir, s.CertDir, s.NodeName = false, true, "/data", "/pki", "other"
				s.TLSCertFile = "/s.crt"
				s.Harmful = []Setting{{
					Name: "evictionHard.nodefs.inodesFree", Value: "not named",
					Harm: "The kubelet neither frees inodes nor evicts before there are none, and then no file can be made.",
				}}
			},
		},
		{
			"in a container: its files, through its root",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/k.yaml")
				h.file("k.yaml", "maxPods: 1\n")
				h.file("proc/812/root/k.yaml", "maxPods: 2\n")
			},
			func(s *Settings) { s.Files, s.MaxPods = []string{"/k.yaml"}, 2 },
		},
		{
			"the node's name is that of its certificate",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--kubeconfig=/kubelet.conf", "--hostname-override=x")
				certificate, key := newIssuer(h.t).pair("system:node:ip-10-0-0-7.ec2.internal", time.Now(), time.Now())
				h.file("kubelet.conf", kubeconfig("https://127.0.0.1:1", "client-certificate: /pki/current.pem\n    client-key: /pki/current.pem"))
				h.file("pki/2026.pem", key+certificate)
				h.link("/pki/2026.pem", "pki/current.pem")
			},
			func(s *Settings) { s.Kubeconfig, s.NodeName = "/kubelet.conf", "ip-10-0-0-7.ec2.internal" },
		},
		{
			"kdiag is in a pod, which has a name of its own",
			func(h tree) {
				h.process("812", "kubelet", "/usr/bin/kubelet")
				h.file("etc/hostname", "Worker-2\n")
			},
			func(s *Settings) { s.NodeName = "worker-2" },
		},
		{
			"K3s",
			func(h tree) {
				h.process("812", "k3s-server", "/usr/local/bin/k3s", "server", "--kubelet-arg=max-pods=99")
				h.file("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "")
				h.file("var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "podPidsLimit: 7\n")
			},
			func(s *Settings) {
				s.Problems = []string{"K3s hands settings to its kubelet inside its process: what is in no file and no argument is shown with the kubelet's default"}
				s.Files = []string{"/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf"}
				s.Kubeconfig = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
				s.MaxPods, s.PodPidsLimit, s.Endpoint = 99, 7, "unix:///run/k3s/containerd/containerd.sock"
			},
		},
		{
			"RKE2, with as many pods as EKS has",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config-dir=/d/agent/etc/kubelet.conf.d", "--kubeconfig=/d/agent/kubelet.kubeconfig", "--max-pods=737")
				h.file("d/agent/kubelet.kubeconfig", "")
				h.file("d/agent/etc/kubelet.conf.d/00-rke2-defaults.conf", "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}\n")
			},
			func(s *Settings) {
				s.Files = []string{"/d/agent/etc/kubelet.conf.d/00-rke2-defaults.conf"}
				s.Kubeconfig, s.MaxPods = "/d/agent/kubelet.kubeconfig", 737
				rancher(s)
			},
		},
		{
			"the same thresholds, which somebody else chose",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--eviction-hard=imagefs.available<5%,nodefs.available<5%")
			},
			func(s *Settings) {
				rancher(s)
				s.Own = ""
				s.Harmful = []Setting{
					{"evictionHard.memory.available", "not named", "The kubelet evicts nothing before memory runs out: the kernel kills instead, whatever it finds."},
					{"evictionHard.nodefs.inodesFree", "not named", "The kubelet neither frees inodes nor evicts before there are none, and then no file can be made."},
				}
			},
		},
		{
			"what is bad is said, and the rest counts",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/none.yaml", "--config-dir=/k.d", "--sync-frequency=soon", "--max-pods=7")
				h.file("k.d/1.conf", "a: [\n")
				h.file("k.d/2.conf", "kind: Pod\n")
				h.file("k.d/3.conf", "aNewField: 1\ncgroupDriver: systemd\n")
			},
			func(s *Settings) {
				s.Files, s.CgroupDriver, s.MaxPods = []string{"/k.d/3.conf"}, "systemd", 7
				s.Problems = []string{
					"/none.yaml does not exist",
					"/k.d/1.conf is not a KubeletConfiguration: error converting YAML to JSON: yaml: line 1: did not find expected node content",
					`/k.d/2.conf is a "Pod", not a KubeletConfiguration`,
					"syncFrequency has a wrong value",
				}
			},
		},
		{
			"all that harms",
			func(h tree) {
				h.process("812", "kubelet", "kubelet", "--config=/k.yaml")
				h.file("k.yaml", "runtimeRequestTimeout: 10m\nfeatureGates: {AllAlpha: true}\nevictionHard: {memory.available: 0%, nodefs.available: 100%, nodefs.inodesFree: 5%}\n"+
					"maxPods: 738\nnodeLeaseDurationSeconds: 160\nnodeStatusUpdateFrequency: 5m\nhealthzPort: 0\nenableServer: false\n")
			},
			func(s *Settings) {
				s.Files, s.RequestTimeout, s.EventedPLEG, s.FeatureGates = []string{"/k.yaml"}, 10*time.Minute, true, map[string]bool{"AllAlpha": true}
				s.EvictionHard = map[string]string{"memory.available": "0%", "nodefs.available": "100%", "nodefs.inodesFree": "5%"}
				s.EvictionOff = []string{"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available"}
				s.MaxPods, s.LeaseSeconds, s.NodeStatusEvery, s.HealthzAddress, s.Address = 738, 160, 5*time.Minute, "", ""
				s.Harmful = []Setting{
					{"evictionHard.memory.available", "0%", "The kubelet evicts nothing before memory runs out: the kernel kills instead, whatever it finds."},
					{"evictionHard.nodefs.available", "100%", "The kubelet neither frees the disk nor evicts before it is full, and then runtime and kubelet fail with it."},
					{"featureGates.EventedPLEG", "true", "This alpha feature has started containers twice and broken static pods (kubernetes/kubernetes#121003, kubernetes/kubernetes#122697), and PLEG is called unhealthy after 10 minutes only."},
					{"maxPods", "738", "The relist asks for the pods that changed one after the other; Kubernetes is tested with 110 on a node."},
					{"nodeLeaseDurationSeconds", "160", "The lease is renewed each 40s only, and the node is Unknown after 40 s (50 s since Kubernetes 1.32) without it."},
					{"runtimeRequestTimeout", "10m0s", "One CRI call that hangs holds the relist past PLEG's threshold of 3m0s."},
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			tc.host(h)
			got, err := ReadSettings(t.Context(), h.root, 812)
			want := plain()
			tc.change(&want)
			if whole := len(want.Problems) == 0 || strings.HasPrefix(tc.name, "K3s"); (err == nil) != whole {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadSettingsOfNoKubelet(t *testing.T) {
	h := newTree(t)
	h.process("812", "nginx", "nginx")
	if _, err := ReadSettings(t.Context(), h.root, 812); err == nil || !strings.HasPrefix(err.Error(), "reading the kubelet's arguments: no kubelet") {
		t.Errorf("error %v", err)
	}
}

func TestHarmfulTimeouts(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		2 * time.Minute:    "",
		30 * time.Second:   "",
		3*time.Minute - 1:  "",
		3 * time.Minute:    "past PLEG's threshold",
		30*time.Second - 1: "are ended after",
	} {
		s := plain()
		s.RequestTimeout = timeout
		got := harmful(&s)
		if want == "" && len(got) == 0 {
			continue
		}
		if want == "" || len(got) != 1 || !strings.Contains(got[0].Harm, want) {
			t.Errorf("%s: %+v, want %q", timeout, got, want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"", "maxPods: 1\n", "evictionHard: {memory.available: 0%}\nfeatureGates: {A: true}\n", "a: [\n", "kind: Pod\n", "maxPods: many\n",
		`{"port":70000,"healthzPort":-1,"maxParallelImagePulls":-7}`, "a: &a [*a]\n", "address: \"\\e[31m\"\n",
	} {
		f.Add([]byte(text), "1")
	}
	f.Fuzz(func(t *testing.T, text []byte, flag string) {
		flags := map[string][]string{"config": {"/k"}, "max-pods": {flag}, "eviction-hard": {flag}, "feature-gates": {flag}, "cgroup-driver": {flag}}
		read := kubeletconfig.Read(flags, kubeletconfig.Files{Read: func(string) ([]byte, error) { return text, nil }})
		var s Settings
		s.fill(&read.Config)
		for _, text := range []string{s.Endpoint, s.CgroupDriver, s.Address, s.HealthzAddress} {
			if text != oneLine(text) {
				t.Errorf("%q is not fit to be shown", text)
			}
		}
		harmful(&s)
	})
}
