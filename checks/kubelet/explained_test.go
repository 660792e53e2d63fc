package kubelet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kdiag/kdiag/internal/testkit"
)

// documented returns the defaults that the kubelet's type has in its comments, by field. They are in testdata, with the
// line of go.mod that they are from: the source may be out of a user's reach.
func documented(t *testing.T) map[string]string {
	t.Helper()
	type defaults struct {
		Module   string
		Defaults map[string]string
	}
	module := regexp.MustCompile(`k8s\.io/kubelet v\S+`).FindString(testkit.Read(t, "../../go.mod"))
	const golden = "testdata/defaults.json"
	if *testkit.Update {
		text, err := json.MarshalIndent(defaults{module, commented(t)}, "", "  ")
		must(t, err)
		must(t, os.WriteFile(golden, append(text, '\n'), 0o644))
	}
	var got defaults
	must(t, json.Unmarshal([]byte(testkit.Read(t, golden)), &got))
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
	all := map[string]string{}
	field := regexp.MustCompile(`// Default: (.*)\n(?:\s*//.*\n)*.*json:"(\w+)`)
	for _, m := range field.FindAllStringSubmatch(testkit.Read(t, filepath.Join(filepath.Dir(source), "types.go")), -1) {
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
