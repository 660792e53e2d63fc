package kubelet

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// plain are the settings of a kubelet that was given none.
func plain() Settings {
	return Settings{
		PID: 812, Endpoint: "unix:///run/containerd/containerd.sock", RequestTimeout: 2 * time.Minute,
		SerializePulls: true, CgroupDriver: "cgroupfs", RootDir: "/var/lib/kubelet", PodLogsDir: "/var/log/pods",
		MaxPods: 110, PodPidsLimit: -1,
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		},
		NodeStatusEvery: 10 * time.Second, LeaseSeconds: 40, SyncFrequency: time.Minute,
		HealthzAddress: "127.0.0.1:10248", Address: "0.0.0.0:10250", CertDir: "/var/lib/kubelet/pki",
		NodeName: "worker-1",
	}
}

// signals have a default threshold.
var signals = []string{
	"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree",
}

// bare makes them the settings of a kubelet without --config.
func bare(s *Settings) {
	s.ReadOnlyAddress, s.EvictionHard, s.EvictionOff = "0.0.0.0:10255", map[string]string{}, signals
	s.Own = "evictionHard names nothing, as a kubelet without --config has it by default: " +
		"nothing is evicted for want of memory, disk or inodes"
}

func TestReadSettings(t *testing.T) {
	noMemory := unevicted["memory.available"]
	certificate, key := newIssuer(t).pair("system:node:ip-10-0-0-7.ec2.internal", time.Now(), time.Now())
	for _, tc := range []struct {
		name   string
		args   string // of the kubelet
		files  []string
		change func(*Settings)
	}{
		{
			"what kubeadm writes: zeros mean the default", "--kubeconfig=/none --config=/k.yaml",
			[]string{
				"k.yaml", "cgroupDriver: systemd\ncontainerRuntimeEndpoint: ''\nhealthzPort: 10248\nsyncFrequency: 0s\n" +
					"nodeStatusUpdateFrequency: 0s\nrotateCertificates: true\nruntimeRequestTimeout: 0s\n",
			},
			func(s *Settings) {
				s.Files, s.CgroupDriver, s.RotateClient = []string{"/k.yaml"}, "systemd", true
				s.Kubeconfig, s.KubeconfigGone = "/none", true
			},
		},
		{
			"the node's name is that of its certificate", "--kubeconfig=/kubelet.conf --hostname-override=x",
			[]string{
				"kubelet.conf", kubeconfig("https://127.0.0.1:1", "client-certificate: /n.pem\n    client-key: /n.pem"),
				"n.pem", key + certificate,
			},
			func(s *Settings) {
				bare(s)
				s.Kubeconfig, s.NodeName = "/kubelet.conf", "ip-10-0-0-7.ec2.internal"
			},
		},
		{
			"K3s", "/usr/local/bin/k3s server --kubelet-arg=max-pods=99",
			[]string{
				"var/lib/rancher/k3s/agent/kubelet.kubeconfig", "",
				"var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "podPidsLimit: 7\nenableServer: false\n",
			},
			func(s *Settings) {
				s.Problems = []string{"K3s hands settings to its kubelet inside its process: " +
					"what is in no file and no argument is shown with the kubelet's default"}
				s.Files = []string{"/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf"}
				s.Kubeconfig = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
				s.MaxPods, s.PodPidsLimit, s.Endpoint = 99, 7, "unix:///run/k3s/containerd/containerd.sock"
				s.Address = ""
			},
		},
		{
			"problems, and the rest counts", "--config=/none.yaml --config-dir=/k.d --sync-frequency=soon --max-pods=7",
			[]string{
				"k.d/1.conf", "a: [\n", "k.d/2.conf", "kind: Pod\n",
				"k.d/3.conf", "aNewField: 1\ncgroupDriver: systemd\n",
			},
			func(s *Settings) {
				s.Files, s.CgroupDriver, s.MaxPods = []string{"/k.d/3.conf"}, "systemd", 7
				s.Problems = []string{
					"/none.yaml does not exist",
					"/k.d/1.conf is not a KubeletConfiguration: error converting YAML to JSON: yaml: line 1: " +
						"did not find expected node content",
					`/k.d/2.conf is a "Pod", not a KubeletConfiguration`, "syncFrequency has a wrong value",
				}
			},
		},
		{
			"static pods that are not read", "--config=/k.yaml",
			[]string{
				"k.yaml", "staticPodPath: /m\nsystemReserved: {cpu: 500m}\n", "m/.keep", "",
				"etc/kubernetes/manifests/shop.yaml", "metadata: {name: shop}\n",
			},
			func(s *Settings) {
				s.Files, s.Reserved = []string{"/k.yaml"}, map[string]string{"systemReserved.cpu": "500m"}
				s.StaticPodPath, s.Unread = "/m", true
			},
		},
		{
			"no static pods, and what was left of others", "--config=/k.yaml",
			[]string{"k.yaml", "maxPods: 7\n", "etc/kubernetes/manifests/old.yaml", "metadata: {name: old}\n"},
			func(s *Settings) { s.Files, s.MaxPods = []string{"/k.yaml"}, 7 },
		},
		{
			"static pods in another folder", "--config=/k.yaml",
			[]string{
				"k.yaml", "staticPodPath: /m\n", "m/shop.yaml", "metadata: {name: shop}\n",
				"etc/kubernetes/manifests/old.yaml", "metadata: {name: old}\n",
			},
			func(s *Settings) { s.Files, s.StaticPodPath = []string{"/k.yaml"}, "/m" },
		},
		{
			"all that harms, and what does not",
			"--config=/k.yaml --cert-dir /pki --root-dir=/data --hostname-override=Other --read-only-port=10255",
			[]string{"k.yaml", "runtimeRequestTimeout: 10m\nfeatureGates: {AllAlpha: true}\nmaxPods: 738\n" +
				"healthzPort: 0\naddress: 10.0.0.1\nport: 1\ntlsCertFile: /s.crt\nmaxParallelImagePulls: 5\n" +
				"evictionHard: {memory.available: 0%, nodefs.available: 100%}\nsyncFrequency: 30s\n" +
				"nodeLeaseDurationSeconds: 160\nnodeStatusUpdateFrequency: 5m\n"},
			func(s *Settings) {
				s.Files, s.RequestTimeout, s.EventedPLEG = []string{"/k.yaml"}, 10*time.Minute, true
				s.RootDir, s.CertDir, s.NodeName, s.TLSCertFile = "/data", "/pki", "other", "/s.crt"
				s.SerializePulls, s.SyncFrequency = false, 30*time.Second
				s.FeatureGates = map[string]bool{"AllAlpha": true}
				s.EvictionHard = map[string]string{"memory.available": "0%", "nodefs.available": "100%"}
				s.EvictionOff = signals
				s.MaxPods, s.LeaseSeconds, s.NodeStatusEvery = 738, 160, 5*time.Minute
				s.HealthzAddress, s.Address, s.ReadOnlyAddress = "", "10.0.0.1:1", "10.0.0.1:10255"
				s.Harmful = []Setting{
					{"evictionHard.memory.available", "0%", noMemory},
					{"evictionHard.nodefs.available", "100%", unevicted["nodefs.available"]},
					{"evictionHard.nodefs.inodesFree", "not named", unevicted["nodefs.inodesFree"]},
					{"featureGates.EventedPLEG", "true", evented},
					{"maxPods", "738", "The relist asks for the pods that changed one after the other; " +
						"Kubernetes is tested with 110 on a node."},
					{"nodeLeaseDurationSeconds", "160", "The lease is renewed each 40s only, " +
						"and the node is Unknown after 40 s (50 s since Kubernetes 1.32) without it."},
					{
						"runtimeRequestTimeout", "10m0s",
						"One CRI call that hangs holds the relist past PLEG's threshold of 3m0s.",
					},
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testkit.NewTree(t)
			process(h, "812", "kubelet", append([]string{"kubelet"}, strings.Fields(tc.args)...)...)
			if tc.name == "K3s" {
				process(h, "812", "k3s-server", strings.Fields(tc.args)...)
			}
			h.Write(tc.files...)
			got, err := ReadSettings(t.Context(), h.Root, 812)
			want := plain()
			tc.change(&want)
			if whole := len(want.Problems) == 0 || tc.name == "K3s"; (err == nil) != whole {
				t.Errorf("error %v", err)
			}
			equal(t, want, got)
		})
	}
	h := testkit.NewTree(t)
	process(h, "812", "nginx", "nginx")
	_, err := ReadSettings(t.Context(), h.Root, 812)
	testkit.Failed(t, "of another process", err, "reading the kubelet's arguments: no kubelet")
}

// TestNamespaces has a kubelet in the UTS and network namespaces of this process, and one in others: its host name is
// not known, and nothing is asked.
func TestNamespaces(t *testing.T) {
	h := testkit.NewTree(t)
	for _, kind := range []string{"uts", "net"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		must(t, err)
		h.Link("proc/7/ns/"+kind, own)
		h.Link("proc/8/ns/"+kind, kind+":[1]")
	}
	want, err := os.Hostname()
	must(t, err)
	equal(t, want, hostName(h.Root, 7))
	equal(t, "", hostName(h.Root, 8)+hostName(h.Root, 9))
	equal(t, false, otherNetwork(h.Root, 7))
	s := plain()
	s.PID, s.Kubeconfig = 8, "/kubelet.conf"
	_, errHealth := AskHealth(t.Context(), h.Root, s, Credentials{})
	_, errServer := AskServer(t.Context(), h.Root, s)
	if !errors.Is(errHealth, errOtherNetwork) || !errors.Is(errServer, errOtherNetwork) {
		t.Errorf("errors %v, %v", errHealth, errServer)
	}
}

// TestParsePods reads a pod of a postStart hook that has not returned, as kubelet 1.36.3 shows it, one without, and one
// that fails.
func TestParsePods(t *testing.T) {
	const hooked = `{"spec":{"containers":[{"name":"c","lifecycle":{"postStart":{"exec":{"command":["sleep","100000"]}}}}]},` +
		`"status":{"phase":"Pending","containerStatuses":[{"name":"c","state":{"waiting":{"reason":"ContainerCreating"}}}]}}`
	const fails = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False",` +
		`"lastTransitionTime":"2026-11-28T18:30:00Z"}],"containerStatuses":[{"name":"a","ready":true,"restartCount":1,` +
		`"state":{"running":{}},"lastState":{"terminated":{"exitCode":2,"reason":"Error","finishedAt":"2026-11-28T18:20:00Z"}}},` +
		`{"name":"c","restartCount":7,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":` +
		`{"exitCode":137,"reason":"OOMKilled","finishedAt":"2026-11-28T18:29:59Z"}}},{"name":"d","state":{"running":{}}}]}}`
	const taken = `{"spec":{},"status":{"phase":"Running","podIPs":[{"ip":"10.1.0.7"},{"ip":"10.1.0.8"}]}}`
	h := testkit.NewTree(t)
	h.Write("proc/1/net/fib_trie", "Local:\n  +-- 10.1.0.0/24 2 0 2\n     |-- 10.1.0.0\n        /24 link UNICAST\n"+
		"     |-- 10.1.0.8\n        /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n")
	h.Write("proc/1/net/arp", "IP address       HW type     Flags       HW address            Mask     Device\n"+
		"10.1.0.7         0x1         0x2         36:dc:c2:b0:5f:ab     *        cni0\n"+
		"10.1.0.7         0x1         0x0         00:00:00:00:00:00     *        eth0\n"+
		"10.1.0.9         0x1         0x0         00:00:00:00:00:00     *        cni0\n")
	pods, err := parsePods([]byte(`{"kind":"PodList","items":[`+hooked+`,`+
		strings.ReplaceAll(hooked, "postStart", "preStop")+`,`+fails+`,`+taken+`,`+
		strings.Replace(taken, "{}", `{"hostNetwork":true}`, 1)+`,`+
		strings.Replace(taken, "0.8", "0.9", 1)+`]}`), unreachable(h.Root))
	must(t, err)
	equal(t, "c", pods[0].Hooked)
	equal(t, "", pods[1].Hooked)
	unready, ended := time.Date(2026, 11, 28, 18, 30, 0, 0, time.UTC), time.Date(2026, 11, 28, 18, 29, 59, 0, time.UTC)
	equal(t, Pod{
		Phase: "Running", Unready: &unready, Restarted: &ended, Restarts: 7,
		State: "c: CrashLoopBackOff after exit code 137 (OOMKilled)",
	}, pods[2])
	equal(t, "its address 10.1.0.8 is also one of the node's own", pods[3].Unreachable)
	equal(t, "", pods[4].Unreachable)
	equal(t, "nobody on cni0 answers for its address 10.1.0.9 (ARP)", pods[5].Unreachable)
}

// TestTwins has a folder of static pods with a backup beside a manifest.
func TestTwins(t *testing.T) {
	const shop, cart = "metadata: {name: shop, namespace: web}\n", "metadata: {name: cart}\n"
	h := testkit.NewTree(t)
	h.Write("m/shop.yaml", shop, "m/shop.yaml.bak", shop, "m/.shop.yaml.swp", shop, "m/cart.yaml", cart, "m/readme", "*")
	got := twins(crictl.SeenBy(h.Root, 0), "/m", "node-7")
	equal(t, []Twin{{Namespace: "web", Name: "shop-node-7", Files: [2]string{"/m/shop.yaml", "/m/shop.yaml.bak"}}}, got,
		cmpopts.IgnoreFields(Twin{}, "Since"))
}
