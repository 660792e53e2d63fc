package kubeletconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func file(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(path, []byte(head+body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

// want is the configuration of a kubelet that was told nothing.
func want() *kubeletconfigv1beta1.KubeletConfiguration {
	return &kubeletconfigv1beta1.KubeletConfiguration{
		TypeMeta:      metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		SyncFrequency: seconds(60), FileCheckFrequency: seconds(20), HTTPCheckFrequency: seconds(20),
		NodeStatusUpdateFrequency: seconds(10), NodeStatusReportFrequency: seconds(300), NodeLeaseDurationSeconds: 40,
		ImageMinimumGCAge: seconds(120), ImageGCHighThresholdPercent: new(int32(85)), ImageGCLowThresholdPercent: new(int32(80)),
		RuntimeRequestTimeout: seconds(120), EvictionPressureTransitionPeriod: seconds(300), MaxPods: 110,
		RegistryPullQPS: new(int32(5)), RegistryBurst: 10, EventRecordQPS: new(int32(50)), EventBurst: 100,
		KubeAPIQPS: new(int32(50)), KubeAPIBurst: 100, ContentType: "application/vnd.kubernetes.protobuf",
		NodeStatusMaxImages: new(int32(50)), SerializeImagePulls: new(true), RegisterNode: new(true), SeccompDefault: new(false),
		MergeDefaultEvictionSettings: new(false), CgroupDriver: "cgroupfs", ResolverConfig: new("/etc/resolv.conf"),
		PodLogsDir: "/var/log/pods", Address: "127.0.0.1", ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		ContainerLogMaxSize: "10Mi", ContainerLogMaxFiles: new(int32(5)), ContainerLogMaxWorkers: new(int32(1)),
		ContainerLogMonitorInterval: new(seconds(10)),
		CrashLoopBackOff:            kubeletconfigv1beta1.CrashLoopBackOffConfig{MaxContainerRestartPeriod: new(seconds(300))},
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		},
	}
}

func TestLoad(t *testing.T) {
	cases := []struct {
		name   string
		body   string
		flags  map[string][]string
		change func(c *kubeletconfigv1beta1.KubeletConfiguration)
		not    []Unsupported
	}{
		{"file over defaults", "maxPods: 7\nsyncFrequency: 10s\nresolvConf: ''\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.MaxPods, c.SyncFrequency, c.ResolverConfig = 7, seconds(10), new("")
		}, nil},
		{"flags over file", "maxPods: 7\nfeatureGates: {EventedPLEG: false, PLEGOnDemandRelist: false}\nlogging: {verbosity: 2}\n", map[string][]string{
			"max-pods": {"8", "9"}, "feature-gates": {"EventedPLEG=true"}, "v": {"5"}, "register-node": {"false"}, "sync-frequency": {"90s"},
			"cluster-dns": {"10.0.0.1,10.0.0.2", "10.0.0.3"}, "manifest-url-header": {"a:b,c:d", "a:e"}, "eviction-hard": {"memory.available<1Gi"},
			"eviction-soft": {"memory.available < 2Gi"}, "eviction-soft-grace-period": {"memory.available=1m"},
			"register-with-taints": {"k=v:NoSchedule,l:NoExecute"}, "container-runtime-endpoint": {"unix:///x,y=z"}, "port": {"1234"},
		}, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.MaxPods, c.FeatureGates = 9, map[string]bool{"EventedPLEG": true, "PLEGOnDemandRelist": false}
			c.Logging.Verbosity, c.RegisterNode, c.SyncFrequency = 5, new(false), seconds(90)
			c.ClusterDNS = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
			c.StaticPodURLHeader = map[string][]string{"a": {"b", "e"}, "c": {"d"}}
			c.EvictionHard, c.EvictionSoft = map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "2Gi"}
			c.EvictionSoftGracePeriod = map[string]string{"memory.available": "1m"}
			c.RegisterWithTaints = []v1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}
			c.ContainerRuntimeEndpoint, c.Port = "unix:///x,y=z", 1234
		}, nil},
		{"eviction merged", "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.EvictionHard["memory.available"], c.MergeDefaultEvictionSettings = "5%", new(true)
		}, nil},
		{"eviction off", "evictionHard: {}\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) { c.EvictionHard = map[string]string{} }, nil},
		{"parallel pulls", "maxParallelImagePulls: 4\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.MaxParallelImagePulls, c.SerializeImagePulls = new(int32(4)), new(false)
		}, nil},
		{"logs", "containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\ncontainerLogMaxWorkers: 2\ncontainerLogMonitorInterval: 0s\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.ContainerLogMaxSize, c.ContainerLogMaxFiles, c.ContainerLogMaxWorkers = "1Mi", new(int32(3)), new(int32(2))
		}, nil},
		{"logs by flags", "containerLogMaxSize: 1Mi\n", map[string][]string{
			"container-log-max-size": {"2Mi"}, "container-log-max-files": {"3"}, "enable-debugging-handlers": {"false"},
		}, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.ContainerLogMaxSize, c.ContainerLogMaxFiles, c.EnableDebuggingHandlers = "2Mi", new(int32(3)), new(false)
		}, nil},
		{"frequent reports", "nodeStatusUpdateFrequency: 3s\n", nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
			c.NodeStatusUpdateFrequency, c.NodeStatusReportFrequency = seconds(3), seconds(3)
		}, nil},
		{
			"not honoured", "failSwapOn: true\nhealthzPort: 10248\nfeatureGates: {MemoryQoS: true}\nauthentication: {anonymous: {enabled: false}, x509: {clientCAFile: /ca}}\n", nil,
			func(c *kubeletconfigv1beta1.KubeletConfiguration) {
				c.FailSwapOn, c.HealthzPort, c.FeatureGates = new(true), new(int32(10248)), map[string]bool{"MemoryQoS": true}
				c.Authentication.Anonymous.Enabled, c.Authentication.X509.ClientCAFile = new(false), "/ca"
			},
			[]Unsupported{
				{"authentication.anonymous.enabled", "false", "the server is plain HTTP on loopback and asks nobody who they are"},
				{"authentication.x509.clientCAFile", `"/ca"`, "the server is plain HTTP on loopback and asks nobody who they are"},
				{"failSwapOn", "true", "swap is not looked at"},
				{"featureGates.MemoryQoS", "true", "this feature is not here to be turned on or off"},
				{"healthzPort", "10248", "/healthz is served at port, with everything else"},
			},
		},
		{
			"what tools write", "cpuManagerReconcilePeriod: 0s\nmemorySwap: {}\nrotateCertificates: false\nfailSwapOn: false\nauthorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 0s}}\n",
			nil, func(c *kubeletconfigv1beta1.KubeletConfiguration) {
				c.FailSwapOn, c.Authorization.Mode = new(false), "AlwaysAllow"
			}, nil,
		},
		{
			"address", "address: 0.0.0.0\n", nil, func(*kubeletconfigv1beta1.KubeletConfiguration) {},
			[]Unsupported{{"address", "0.0.0.0", "the server asks nobody who they are, so it listens on loopback only"}},
		},
		{"loopback address", "", map[string][]string{"address": {"::1"}}, func(c *kubeletconfigv1beta1.KubeletConfiguration) { c.Address = "::1" }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, not, err := Load(file(t, c.body), c.flags)
			if err != nil {
				t.Fatal(err)
			}
			want := want()
			c.change(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.not, not); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadNothing(t *testing.T) {
	got, not, err := Load("", nil)
	if err != nil || len(not) > 0 {
		t.Errorf("error %v, unsupported %v", err, not)
	}
	if diff := cmp.Diff(want(), got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadResolvesPaths(t *testing.T) {
	path := file(t, "staticPodPath: manifests\npodLogsDir: ../logs\nresolvConf: /abs\n")
	got, _, err := Load(path, map[string][]string{"resolv-conf": {"here"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	want := []string{filepath.Join(dir, "manifests"), filepath.Join(filepath.Dir(dir), "logs"), "here"}
	if diff := cmp.Diff(want, []string{got.StaticPodPath, got.PodLogsDir, *got.ResolverConfig}); diff != "" {
		t.Error(diff)
	}
}

func TestLoadErrors(t *testing.T) {
	cases := []struct {
		name, body string
		flags      map[string][]string
		want       string
	}{
		{"unknown field", "maxPodz: 1\n", nil, `unknown field "maxPodz"`},
		{"other case", "MaxPods: 1\n", nil, `unknown field "MaxPods"`},
		{"twice", "maxPods: 1\nmaxPods: 2\n", nil, `key "maxPods" already set in map`},
		{"wrong type", "maxPods: many\n", nil, ": maxPods does not take a value of this kind"},
		{"wrong type inside", "logging: {verbosity: -3}\n", nil, ": logging.verbosity does not take a value of this kind"},
		{"bad duration", "syncFrequency: 10\n", nil, ": syncFrequency does not take a value of this kind"},
		{"no YAML", "maxPods: [\n", nil, ": yaml: line 3: did not find expected node content"},
		{"negative duration", "syncFrequency: -1s\n", nil, "syncFrequency is -1s: it must be more than 0"},
		{"thresholds", "imageGCLowThresholdPercent: 90\n", nil, "imageGCLowThresholdPercent is 90: it must be less than imageGCHighThresholdPercent (85), both of 0 to 100"},
		{"cgroup driver", "cgroupDriver: magic\n", nil, "cgroupDriver is magic: it must be cgroupfs or systemd"},
		{"port", "port: 70000\n", nil, "port is 70000"},
		{"parallel and serial", "maxParallelImagePulls: 4\nserializeImagePulls: true\n", nil, "maxParallelImagePulls is 4"},
		{"soft without grace", "evictionSoft: {memory.available: 1Gi}\n", nil, "evictionSoft is memory.available: it must be given an evictionSoftGracePeriod too"},
		{"log size", "", map[string][]string{"container-log-max-size": {"ten"}}, "containerLogMaxSize is ten: it must be a quantity, such as 10Mi"},
		{"log files", "", map[string][]string{"container-log-max-files": {"1"}}, "containerLogMaxFiles is 1: it must be 2 or more"},
		{"log workers", "containerLogMaxWorkers: 0\n", nil, "containerLogMaxWorkers is 0: it must be 1 or more"},
		{"log interval", "containerLogMonitorInterval: 2s\n", nil, "containerLogMonitorInterval is 2s: it must be at least 3s"},
		{"unknown flag", "", map[string][]string{"nope": {"1"}}, "--nope: no such flag"},
		{"number", "", map[string][]string{"max-pods": {"x"}}, `--max-pods: "x" is not a whole number, or too great`},
		{"number below 0", "", map[string][]string{"v": {"4", "-3"}}, `--v: "-3" is not a value that it takes`},
		{"too great a number", "", map[string][]string{"max-pods": {"3000000000"}}, `--max-pods: "3000000000" is not a whole number, or too great`},
		{"duration", "", map[string][]string{"sync-frequency": {"1"}}, `--sync-frequency: "1" is not a duration, such as 1m30s`},
		{"pairs", "", map[string][]string{"eviction-hard": {"memory.available>1"}}, `--eviction-hard: "memory.available>1" is not of the form name<value`},
		{"gates", "", map[string][]string{"feature-gates": {"A=maybe"}}, `--feature-gates: A: "maybe" is neither true nor false`},
		{"taints", "", map[string][]string{"register-with-taints": {"a=b"}}, `--register-with-taints: "a=b" is not of the form key=value:effect`},
		{"bool", "", map[string][]string{"register-node": {"maybe"}}, `--register-node: "maybe" is neither true nor false`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Load(file(t, c.body), c.flags)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, _, err := Load(filepath.Join(t.TempDir(), "none"), nil); err == nil || !strings.HasPrefix(err.Error(), "reading the configuration: ") {
		t.Errorf("error %v", err)
	}
	path := file(t, "")
	const kind = "this is not of kind KubeletConfiguration and apiVersion kubelet.config.k8s.io/v1beta1"
	for content, want := range map[string]string{
		"apiVersion: v1\nkind: Pod\n":     kind,
		"maxPods: 7\n":                    kind,
		"root:x:0:0:root:/root:/bin/sh\n": "this is no KubeletConfiguration: it has no fields",
		"":                                "this is no KubeletConfiguration: it has no fields",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(path, nil); err == nil || err.Error() != path+": "+want {
			t.Errorf("%q: error %v, want %s", content, err, want)
		}
	}
}

// TestLoadNoFile gives names of what is no file. A pipe that nobody writes to would hold whoever opens it for ever.
func TestLoadNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, t.TempDir(), "/dev/zero"} {
		if _, _, err := Load(name, nil); err == nil || !strings.HasPrefix(err.Error(), "reading the configuration: "+name+" is no regular file") {
			t.Errorf("error %v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, body := range []string{"", "maxPods: 1\n", "featureGates: {A: true}\nlogging: {verbosity: 2}\n", "evictionHard: {a: b}\nauthentication: {anonymous: {}}\n", "a: [\n", "logging: 7\n"} {
		f.Add([]byte(head+body), "max-pods", "7")
		f.Add([]byte(head+body), "v", "1")
	}
	f.Add([]byte(head), "register-with-taints", "a=b:c,d:e")
	f.Add([]byte(head), "manifest-url-header", "a:b,a:c")
	f.Fuzz(func(t *testing.T, data []byte, flag, value string) {
		doc, err := parse(data, "/etc/kubernetes")
		if err != nil {
			return
		}
		if err := overlay(doc, map[string][]string{flag: {value}}); err != nil {
			if !strings.HasPrefix(err.Error(), "--"+flag+": ") {
				t.Errorf("error without the flag's name: %v", err)
			}
			return
		}
		for _, u := range unsupported(doc) {
			if u.Why == "" || u.Value == "" {
				t.Errorf("%+v: no reason", u)
			}
		}
	})
}
