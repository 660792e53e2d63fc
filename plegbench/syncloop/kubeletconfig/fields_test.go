package kubeletconfig

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// lookup follows a path with dots through the JSON names of a type. Keys of maps are all there.
func lookup(t reflect.Type, path string) (reflect.Type, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if path == "" {
		return t, true
	}
	name, rest, _ := strings.Cut(path, ".")
	if t.Kind() == reflect.Map {
		return lookup(t.Elem(), rest)
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for f := range t.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return lookup(f.Type, rest)
		}
	}
	return nil, false
}

// Every field of the real type is either honoured or has a reason why not, never both, and no name is a typing error.
func TestFieldsAreComplete(t *testing.T) {
	config := reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]()
	fine, reasons := honoured()[2:], map[string]limit{} // without apiVersion and kind
	for _, f := range Flags() {
		fine = append(fine, f.Field)
	}
	for _, l := range limits() {
		reasons[l.field] = l
		kind, ok := lookup(config, l.field)
		if !ok {
			t.Errorf("%s: no such field", l.field)
			continue
		}
		if l.why == "" {
			t.Errorf("%s: no reason", l.field)
		}
		if kind.Kind() == reflect.Bool && l.does == "" {
			t.Errorf("%s: say which of true and false is what happens", l.field)
		}
		if slices.Contains(fine, l.field) && l.field != "featureGates" {
			t.Errorf("%s is honoured and is not", l.field)
		}
	}
	for _, field := range fine {
		if _, ok := lookup(config, field); !ok {
			t.Errorf("%s: no such field", field)
		}
	}
	for f := range config.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, ok := reasons[name]; !ok && name != "" && !slices.Contains(fine, name) {
			t.Errorf("%s: neither honoured nor not", name)
		}
	}
}

func TestFlags(t *testing.T) {
	names := map[string]bool{}
	kinds := map[Kind]string{String: "string", Bool: "bool", Int: "int", Duration: "struct", Strings: "slice", Pairs: "map", Less: "map", Bools: "map", Headers: "map", Taints: "slice"}
	for _, f := range Flags() {
		if names[f.Name] || f.Usage == "" {
			t.Errorf("--%s: twice, or without usage", f.Name)
		}
		names[f.Name] = true
		kind, ok := lookup(reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration](), f.Field)
		if !ok || !strings.Contains(kind.Kind().String(), kinds[f.Kind]) {
			t.Errorf("--%s: field %s is a %v, not a %s", f.Name, f.Field, kind, kinds[f.Kind])
		}
	}
}
