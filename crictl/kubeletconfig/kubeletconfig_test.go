package kubeletconfig

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// inMemory are files by name; drop-ins are below /d.
func inMemory(files map[string]string) Files {
	return Files{
		Read: func(name string) ([]byte, error) {
			text, ok := files[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
		DropIns: func(dir string) (names []string, err error) {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
					names = append(names, rest)
				}
			}
			return names, nil
		},
	}
}

func seconds(n int) Duration { return Duration{time.Duration(n) * time.Second} }

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string // /k.yaml is the file, /d the folder of drop-ins
		args   []string
		change func(c *Config)
		other  []string
		bad    []string
	}{
		{name: "nothing", change: func(*Config) {}},
		{
			name:  "file over defaults",
			files: map[string]string{"/k.yaml": head + "maxPods: 7\nsyncFrequency: 10s\nresolvConf: ''\nserializeImagePulls: false\n"},
			change: func(c *Config) {
				c.MaxPods, c.SyncFrequency, c.ResolverConfig, c.SerializeImagePulls = 7, seconds(10), "", false
			},
		},
		{
			name: "zeros of tools mean the default",
			files: map[string]string{"/k.yaml": head + "maxPods: 0\nsyncFrequency: 0s\nimageMinimumGCAge: 0s\nmemorySwap: {}\nrotateCertificates: false\n" +
				"logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}\ncpuManagerReconcilePeriod: 0s\n"},
			change: func(*Config) {},
		},
		{
			name:  "zeros that count",
			files: map[string]string{"/k.yaml": "featureGates: {PLEGOnDemandRelist: false}\nhealthzPort: 0\nregistryPullQPS: 0\nenableServer: false\nevictionHard: {}\n"},
			change: func(c *Config) {
				c.HealthzPort, c.RegistryPullQPS, c.EnableServer, c.EvictionHard = 0, 0, false, map[string]string{}
				c.FeatureGates = map[string]bool{"PLEGOnDemandRelist": false}
			},
		},
		{
			name: "drop-ins merge by RFC 7396",
			files: map[string]string{
				"/k.yaml":      "maxPods: 7\npodPidsLimit: 9\nfeatureGates: {A: true, B: true}\nclusterDNS: [10.0.0.1]\n",
				"/d/10-a.conf": "maxPods: 8\nfeatureGates: {B: null, C: true}\nclusterDNS: [10.0.0.2]\n",
				"/d/20-b.conf": "podPidsLimit: null\nmaxPods: 9\n",
			},
			args: []string{"--config-dir", "/d"},
			change: func(c *Config) {
				c.MaxPods, c.FeatureGates, c.ClusterDNS = 9, map[string]bool{"A": true, "C": true}, []string{"10.0.0.2"}
			},
		},
		{
			name:  "flags over files",
			files: map[string]string{"/k.yaml": "maxPods: 7\nfeatureGates: {EventedPLEG: false, B: true}\nlogging: {verbosity: 2}\nevictionHard: {a: 1Gi}\n"},
			args: []string{
				"--max-pods=8", "--max-pods", "9", "--feature-gates=EventedPLEG=true", "-v=5", "--register-node=false",
				"--sync-frequency=90s",
				"--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns", "10.0.0.3",
				"--eviction-hard", "memory.available<1Gi", "--eviction-soft-grace-period=memory.available = 1m",
				"--rotate-certificates",
				"--container-runtime-endpoint=unix:///x,y=z", "--", "--max-pods=10",
			},
			change: func(c *Config) {
				c.MaxPods, c.FeatureGates = 9, map[string]bool{"EventedPLEG": true, "B": true}
				c.Logging.Verbosity, c.RegisterNode, c.SyncFrequency = 5, false, seconds(90)
				c.ClusterDNS = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
				c.EvictionHard = map[string]string{"memory.available": "1Gi"}
				c.EvictionSoftGracePeriod, c.RotateCertificates = map[string]string{"memory.available": "1m"}, true
				c.ContainerRuntimeEndpoint = "unix:///x,y=z"
			},
		},
		{
			name:   "eviction merged",
			files:  map[string]string{"/k.yaml": "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true\n"},
			change: func(c *Config) { c.EvictionHard["memory.available"], c.MergeDefaultEvictionSettings = "5%", true },
		},
		{
			name:  "settings that follow from others",
			files: map[string]string{"/k.yaml": "maxParallelImagePulls: 4\nnodeStatusUpdateFrequency: 3s\n"},
			change: func(c *Config) {
				c.MaxParallelImagePulls, c.SerializeImagePulls = 4, false
				c.NodeStatusUpdateFrequency, c.NodeStatusReportFrequency = seconds(3), seconds(3)
			},
		},
		{
			name:   "other fields",
			files:  map[string]string{"/k.yaml": "failSwapOn: true\nMaxPods: 7\nlogging: {format: json, verbosity: 1}\nauthentication: {anonymous: {enabled: true}}\n"},
			change: func(c *Config) { c.Logging.Verbosity = 1 },
			other:  []string{"MaxPods", "authentication", "failSwapOn", "logging.format"},
		},
		{
			name: "what is bad costs nothing else",
			files: map[string]string{
				"/k.yaml": "maxPods: many\nsyncFrequency: 10\ncgroupDriver: systemd\nfeatureGates: {A: maybe, B: true}\nstaticPodURLHeader: secret\n",
				"/d/1":    "a: [\n", "/d/2": "kind: Pod\n", "/d/3": "text\n", "/d/4": "",
			},
			args: []string{"--config-dir=/d", "--file-check-frequency=1", "--healthz-port=x", "--max-pods=3000000000",
				"--eviction-hard=memory.available", "--register-node=maybe"},
			change: func(c *Config) {
				c.CgroupDriver, c.FeatureGates = "systemd", map[string]bool{"A": false, "B": true}
			},
			bad: []string{
				"/d/1", "/d/2", "/d/3", "--eviction-hard", "--register-node", "--healthz-port", "featureGates",
				"fileCheckFrequency",
				"maxPods", "staticPodURLHeader", "syncFrequency",
			},
		},
		{name: "no file", args: []string{"--config=/none"}, change: func(*Config) {}, bad: []string{"/none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if c.files != nil {
				args = append([]string{"--config=/k.yaml"}, args...)
			}
			s := Read(ParseFlags(args), inMemory(c.files))
			want := Defaults()
			c.change(&want)
			var bad []string
			for _, p := range s.Problems {
				bad = append(bad, p.Where)
			}
			if diff := cmp.Diff(want, s.Config); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.other, s.Other); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.bad, bad); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFieldsAreTheKubelets wants every field to be one of the kubelet's own, with a default that the kubelet's type
// takes.
func TestFieldsAreTheKubelets(t *testing.T) {
	data, err := json.Marshal(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs map[string]any
	var real kubeletconfigv1beta1.KubeletConfiguration
	if err := json.Unmarshal(data, &real); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(Defaults()); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &ours); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(real); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &theirs); err != nil {
		t.Fatal(err)
	}
	for field, value := range ours {
		if got, ok := theirs[field]; !isZero(value) &&
			(!ok || field != "logging" && field != "crashLoopBackOff" && cmp.Diff(value, got) != "") {
			t.Errorf("%s: %v, the kubelet's type has %v", field, value, got)
		}
	}
	names := map[string]bool{}
	for _, f := range Flags() {
		field, _, _ := strings.Cut(f.Field, ".")
		if _, ok := ours[field]; names[f.Name] || field != "" && !ok {
			t.Errorf("--%s: twice, or without a field %s", f.Name, field)
		}
		names[f.Name] = true
	}
	for _, field := range zeroCounts() {
		if _, ok := ours[field]; !ok {
			t.Errorf("no field %s", field)
		}
	}
}

func TestHostFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("real/20.conf", "maxPods: 2")
	write("real/10/b.conf", "")
	write("real/30.yaml", "")
	if err := os.Symlink("real", filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	names, err := DropIns(filepath.Join(dir, "d"))
	if diff := cmp.Diff([]string{"10/b.conf", "20.conf"}, names); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if s := Read(map[string][]string{"config-dir": {filepath.Join(dir, "d")}}, HostFiles()); s.MaxPods != 2 ||
		len(s.Files) != 2 || !s.IsSet("maxPods") || s.IsSet("port") {
		t.Errorf("%+v", s)
	}
	// A pipe that nobody writes to would hold whoever opens it for ever.
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write("large", strings.Repeat("#", maxFile+1))
	for _, name := range []string{pipe, dir, "/dev/zero", filepath.Join(dir, "large"), filepath.Join(dir, "none")} {
		if _, err := ReadFile(name); err == nil {
			t.Errorf("%s could be read", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, body := range []string{"", "maxPods: 1\n", "featureGates: {A: true}\nlogging: {verbosity: 2}\n",
		"evictionHard: {a: b}\nauthentication: {anonymous: {}}\n", "a: [\n", "logging: 7\n"} {
		f.Add([]byte(head+body), "max-pods", "7")
		f.Add([]byte(head+body), "v", "1")
	}
	f.Fuzz(func(t *testing.T, data []byte, flag, value string) {
		flags := map[string][]string{"config": {"/k.yaml"}}
		if flag != "config" && flag != "config-dir" {
			flags[flag] = []string{value}
		}
		s := Read(flags, inMemory(map[string]string{"/k.yaml": string(data)}))
		if s.EvictionHard == nil {
			t.Error("no eviction thresholds")
		}
		for _, p := range s.Problems {
			if p.Where == "" || p.Err == nil {
				t.Errorf("%+v", p)
			}
		}
	})
}
