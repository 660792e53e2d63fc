package kubelet

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

var update = flag.Bool("update", false, "write the defaults that the kubelet's type documents")

// documented returns the defaults that the kubelet's type has in its comments, by field. They are in testdata, with the
// line of go.mod that they are from: the source may be out of a user's reach.
func documented(t *testing.T) map[string]string {
	t.Helper()
	type defaults struct {
		Module   string
		Defaults map[string]string
	}
	gomod, err := os.ReadFile("../../go.mod")
	must(t, err)
	module := regexp.MustCompile(`k8s\.io/kubelet v\S+`).FindString(string(gomod))
	const golden = "testdata/defaults.json"
	if *update {
		text, err := json.MarshalIndent(defaults{module, commented(t)}, "", "  ")
		must(t, err)
		must(t, os.WriteFile(golden, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(golden)
	must(t, err)
	var got defaults
	must(t, json.Unmarshal(text, &got))
	if got.Module != module {
		t.Errorf("%s is of %s, and go.mod has %s: write it anew with -update", golden, got.Module, module)
	}
	return got.Defaults
}

// commented reads them from the type's source, where the comment of a field is before it.
func commented(t *testing.T) map[string]string {
	t.Helper()
	method := reflect.ValueOf((*kubeletconfigv1beta1.KubeletConfiguration).DeepCopy).Pointer()
	source, _ := runtime.FuncForPC(method).FileLine(method)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(source), "types.go"))
	must(t, err)
	all := map[string]string{}
	field := regexp.MustCompile(`// Default: (.*)\n(?:\s*//.*\n)*.*json:"(\w+)`)
	for _, m := range field.FindAllStringSubmatch(string(text), -1) {
		value := strings.Trim(strings.TrimSuffix(m[1], " (disabled)"), `"`)
		all[m[2]] = valueText(strings.Replace(value, "nil", "", 1))
	}
	return all
}

// TestExplainedAreTheKubelets compares the settings with the kubelet's type: fields, and the defaults in its comments.
func TestExplainedAreTheKubelets(t *testing.T) {
	fields := map[string]reflect.Type{}
	for f := range reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Type
	}
	comments, compared := documented(t), 0
	seen := map[string]bool{}
	for _, s := range ExplainDefaults().Settings {
		outer, inner, nested := strings.Cut(s.Field, ".")
		field, ok := fields[outer]
		if nested && outer != "featureGates" {
			_, ok = field.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, inner) })
		}
		if !ok && s.Field != "" || seen[s.Name] || s.Means == "" || s.Value != s.Default || s.From != "default" {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		if want, ok := comments[s.Field]; ok {
			compared++
			// Unlimited pulls are nil there, and 0 in Config.
			if s.Default != want && !(s.Field == "maxParallelImagePulls" && want == "-") {
				t.Errorf("%s has the default %q; the type's comment: %q", s.Name, s.Default, want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("the comments have the defaults of %d settings: %v", compared, comments)
	}
}

func TestExplain(t *testing.T) {
	const distribution = "unix:///run/k3s/containerd/containerd.sock"
	for _, tc := range []struct {
		name, comm, args string
		files            []string
		want             map[string]Explained // the settings that differ from the defaults or are set
		problems         int
	}{
		{
			"without --config some defaults are older", "kubelet", "--container-runtime-endpoint=unix:///x", nil,
			map[string]Explained{
				"readOnlyPort":             {Value: "10255", Where: "without --config", From: "default"},
				"evictionHard":             {Value: "-", Where: "without --config", From: "default"},
				"containerRuntimeEndpoint": {Value: "unix:///x", Where: "--container-runtime-endpoint", From: "flag"},
			},
			0,
		},
		{
			"each origin", "kubelet", "--config=/k.yaml --config-dir=/d --housekeeping-interval 1h0m0s --max-pods=120",
			[]string{
				"k.yaml", "maxPods: 7\nsyncFrequency: 0s\nkubeReserved: {cpu: '1', memory: 1Gi}\nreadOnlyPort: 10255\n" +
					"podPidsLimit: 4194304\nstaticPodURLHeader: {Authorization: [secret]}\n",
				"d/1.conf", "crashLoopBackOff: {maxContainerRestartPeriod: 60s}\nfeatureGates: {CRIListStreaming: true}\n",
			},
			map[string]Explained{
				"maxPods":               {Value: "120", Where: "--max-pods", From: "flag"},
				"housekeeping-interval": {Value: "1h", Where: "--housekeeping-interval", From: "flag"},
				"kubeReserved":          {Value: "cpu: 1, memory: 1Gi", Where: "/k.yaml", From: "file"},
				"readOnlyPort":          {Value: "10255", Where: "/k.yaml", From: "file"},
				"podPidsLimit":          {Value: "4194304", Where: "/k.yaml", From: "file"},
				"crashLoopBackOff":      {Value: "1m", Where: "/d/1.conf", From: "drop-in"},
				"CRIListStreaming":      {Value: "true", Where: "/d/1.conf", From: "drop-in"},
			},
			0,
		},
		{
			"K3s", "k3s-server", "server --kubelet-arg=max-pods=99", nil,
			map[string]Explained{
				"maxPods":                  {Value: "99", Where: "--max-pods", From: "flag"},
				"containerRuntimeEndpoint": {Value: distribution, From: "embedder"},
			},
			1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			h.process("812", tc.comm, append([]string{tc.comm}, strings.Fields(tc.args)...)...)
			h.file(tc.files...)
			e, err := Explain(h.root, 812)
			must(t, err)
			want := maps.Clone(tc.want)
			for _, s := range e.Settings {
				w, ok := want[s.Name]
				if !ok {
					w = Explained{Value: s.Default, From: "default"}
				}
				delete(want, s.Name)
				if got := (Explained{Value: s.Value, Where: s.Where, From: s.From}); got != w {
					t.Errorf("%s: %+v, want %+v", s.Name, got, w)
				}
			}
			if len(want) > 0 || len(e.Problems) != tc.problems || e.PID != 812 || e.Process != tc.comm {
				t.Errorf("%+v, without %v", e, want)
			}
			if data, err := json.Marshal(e); err != nil || strings.Contains(string(data), "secret") {
				t.Errorf("%s, %v", data, err)
			}
		})
	}
	if _, err := Explain(newTree(t).root, 812); err == nil {
		t.Error("no process, and no error")
	}
}
