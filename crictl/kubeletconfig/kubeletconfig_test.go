package kubeletconfig

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kdiag/kdiag/internal/testkit"
)

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

// lines joins the lines of a file.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		file    string            // /k.yaml
		dropIns map[string]string // below /d
		args    []string
		want    string // the differences from the defaults
		other   []string
		bad     []string
		origin  map[string]string // of fields
	}{
		{
			name: "zeros of tools mean the default",
			file: lines("maxPods: 0", "syncFrequency: 0s", "memorySwap: {}", "rotateCertificates: false",
				"logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}"),
		},
		{
			name: "zeros that count",
			file: lines("kind: KubeletConfiguration", "featureGates: {PLEGOnDemandRelist: false}", "healthzPort: 0", "registryPullQPS: 0",
				"enableServer: false", "evictionHard: {}"),
			want: `{"healthzPort": 0, "registryPullQPS": 0, "enableServer": false, "evictionHard": {},
				"featureGates": {"PLEGOnDemandRelist": false}}`,
		},
		{
			name: "drop-ins merge by RFC 7396",
			file: lines("maxPods: 7", "podPidsLimit: 9", "featureGates: {A: true, B: true}", "clusterDNS: [10.0.0.1]"),
			dropIns: map[string]string{
				"10-a.conf": lines("maxPods: 8", "featureGates: {B: null, C: true}", "clusterDNS: [10.0.0.2]"),
				"20-b.conf": lines("podPidsLimit: null", "maxPods: 9"),
			},
			want: `{"maxPods": 9, "featureGates": {"A": true, "C": true}, "clusterDNS": ["10.0.0.2"]}`,
			origin: map[string]string{
				"maxPods": "/d/20-b.conf", "featureGates.A": "/k.yaml", "featureGates.C": "/d/10-a.conf", "port": "",
			},
		},
		{
			name: "flags over files",
			file: lines("maxPods: 7", "featureGates: {EventedPLEG: false, B: true}", "logging: {verbosity: 2}",
				"evictionHard: {a: 1Gi}"),
			args: []string{
				"--max-pods=8", "--max-pods", "9", "--feature-gates=EventedPLEG=true", "-v=5", "--register-node=false",
				"--sync-frequency=90s", "--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns", "10.0.0.3",
				"--eviction-hard", "memory.available<1Gi", "--eviction-soft-grace-period=memory.available = 1m",
				"--rotate-certificates", "--container-runtime-endpoint=unix:///x,y=z", "--", "--max-pods=10",
			},
			want: `{"maxPods": 9, "featureGates": {"EventedPLEG": true, "B": true}, "logging": {"verbosity": 5},
				"registerNode": false, "syncFrequency": "1m30s", "clusterDNS": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
				"evictionHard": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"},
				"rotateCertificates": true, "containerRuntimeEndpoint": "unix:///x,y=z"}`,
			origin: map[string]string{
				"maxPods": "--max-pods", "featureGates.B": "/k.yaml", "featureGates.EventedPLEG": "--feature-gates",
			},
		},
		{
			name: "a drop-in is merged over what follows from the file",
			file: lines("evictionHard: {memory.available: 5%}", "mergeDefaultEvictionSettings: true",
				"maxParallelImagePulls: 4", "nodeStatusUpdateFrequency: 3s"),
			dropIns: map[string]string{"1.conf": lines("nodeStatusUpdateFrequency: 4s")},
			want: `{"evictionHard": {"memory.available": "5%", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
				"imagefs.available": "15%", "imagefs.inodesFree": "5%"}, "mergeDefaultEvictionSettings": true,
				"maxParallelImagePulls": 4, "serializeImagePulls": false,
				"nodeStatusUpdateFrequency": "4s", "nodeStatusReportFrequency": "3s"}`,
		},
		{
			name:  "other fields",
			file:  lines("protectKernelDefaults: true", "MaxPods: 7", "authentication: {oidc: {}, anonymous: {enabled: true}}"),
			want:  `{"authentication": {"anonymous": {"enabled": true}}}`,
			other: []string{"MaxPods", "authentication.oidc", "protectKernelDefaults"},
		},
		{
			name: "what is bad costs nothing else",
			file: lines("maxPods: many", "syncFrequency: 10", "cgroupDriver: systemd",
				"featureGates: {A: maybe, B: true}", "staticPodURLHeader: secret"),
			dropIns: map[string]string{"1": "a: [\n", "2": "kind: Pod\n", "3": "text\n", "4": ""},
			args: []string{
				"--file-check-frequency=1", "--healthz-port=x", "--max-pods=3000000000",
				"--eviction-hard=memory.available", "--register-node=maybe",
			},
			want: `{"cgroupDriver": "systemd", "featureGates": {"A": false, "B": true}}`,
			bad: []string{
				"/d/1", "/d/2", "/d/3", "--eviction-hard", "--register-node", "--healthz-port", "featureGates",
				"fileCheckFrequency", "maxPods", "staticPodURLHeader", "syncFrequency",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			args, files := c.args, map[string]string{}
			if c.file != "" {
				args, files["/k.yaml"] = append([]string{"--config=/k.yaml", "--config-dir=/d"}, args...), c.file
			}
			for name, text := range c.dropIns {
				files["/d/"+name] = text
			}
			s := Read(ParseFlags(args), inMemory(files), false)
			want := Defaults()
			if strings.Contains(c.want, "evictionHard") {
				want.EvictionHard = nil // json merges into it
			}
			testkit.Must(t, json.Unmarshal([]byte(cmp.Or(c.want, "{}")), &want))
			var bad []string
			for _, p := range s.Problems {
				bad = append(bad, p.Where)
			}
			for field, want := range c.origin {
				testkit.Equal(t, "origin of "+field, want, s.Origin(field))
			}
			type read struct {
				Config
				Other, Bad []string
			}
			testkit.Equal(t, "result", read{want, c.other, c.bad}, read{s.Config, s.Other, bad})
		})
	}
}

// TestReadWithoutConfig reads the settings that have another default without --config, and their origins.
func TestReadWithoutConfig(t *testing.T) {
	type read struct {
		port                     int32
		thresholds               map[string]string
		portFrom, thresholdsFrom string
	}
	files := inMemory(map[string]string{
		"/k.yaml":   "",
		"/d/1.conf": lines("readOnlyPort: 0", "evictionHard: {a: 5%}", "mergeDefaultEvictionSettings: true"),
	})
	for args, want := range map[string]read{
		"":                                       {10255, map[string]string{}, WithoutConfig, WithoutConfig},
		"--config=/k.yaml":                       {0, Defaults().EvictionHard, "", ""},
		"--read-only-port=0 --eviction-hard=a<1": {0, map[string]string{"a": "1"}, "--read-only-port", "--eviction-hard"},
		"--config-dir=/d --read-only-port=7":     {7, map[string]string{"a": "5%"}, "--read-only-port", "/d/1.conf"},
	} {
		s := Read(ParseFlags(strings.Fields(args)), files, true)
		got := read{s.ReadOnlyPort, s.EvictionHard, s.Origin("readOnlyPort"), s.Origin("evictionHard")}
		testkit.Equal(t, args, want, got, gocmp.AllowUnexported(read{}))
		testkit.Equal(t, args, 0, len(s.Problems))
	}
}

// TestFieldsAreTheKubelets compares the fields and their defaults with the kubelet's own type.
func TestFieldsAreTheKubelets(t *testing.T) {
	fields := func(from, as any) (all map[string]any) {
		t.Helper()
		data, err := json.Marshal(from)
		testkit.Must(t, err)
		testkit.Must(t, json.Unmarshal(data, as))
		data, err = json.Marshal(as)
		testkit.Must(t, err)
		testkit.Must(t, json.Unmarshal(data, &all))
		return all
	}
	ours, theirs := fields(Defaults(), &Config{}), fields(Defaults(), &kubeletconfigv1beta1.KubeletConfiguration{})
	for field, value := range ours {
		got, ok := theirs[field]
		same := field == "logging" || field == "crashLoopBackOff" || gocmp.Equal(value, got)
		if !isZero(value) && (!ok || !same) {
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
}

// TestUnitArgs reads the unit that kubeadm makes.
func TestUnitArgs(t *testing.T) {
	const lib, etc = "/usr/lib/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service"
	got := unitArgs("kubelet.service", inMemory(map[string]string{
		lib: "[Service]\nExecStart=/usr/bin/kubelet\n",
		lib + ".d/10-kubeadm.conf": lines("[Service]",
			`Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml --x"`,
			"EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env", "EnvironmentFile=-/etc/default/kubelet",
			"ExecStart=",
			"ExecStart=-/usr/bin/kubelet \"--b=c\" \\\n $KUBELET_CONFIG_ARGS "+
				"$KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS --y=${Y}"),
		etc + ".d/20-more.conf":              "[Service]\nEnvironment=Y=1\n",
		"/var/lib/kubelet/kubeadm-flags.env": "# flags\nKUBELET_KUBEADM_ARGS=\"--node-ip=::1\"\n",
	}))
	want := []string{
		"/usr/bin/kubelet", "--b=c", "--config=/var/lib/kubelet/config.yaml", "--x", "--node-ip=::1", "--y=1",
	}
	testkit.Equal(t, "result", want, got)
}

func FuzzReadUnit(f *testing.F) {
	f.Add("[Service]\nEnvironment=\"A=b c\"\nExecStart=/x $A ${A} 'd e'\n")
	f.Fuzz(func(t *testing.T, text string) {
		ReadUnit(inMemory(map[string]string{"/etc/systemd/system/kubelet.service": text}))
	})
}
