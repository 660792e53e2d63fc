package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func amount(s string) Value { return Value{Quantity: quantity(s)} }

func TestParse(t *testing.T) {
	least := amount("50Mi")
	tests := []struct {
		name string
		in   Statements
		want []Threshold
	}{
		{"nothing", Statements{}, nil},
		{"the kubelet's own", Statements{Hard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}}, []Threshold{
			{Signal: ImageFsAvailable, Value: Value{Share: 0.15}},
			{Signal: ImageFsInodesFree, Value: Value{Share: 0.05}},
			{Signal: MemoryAvailable, Value: amount("100Mi")},
			{Signal: NodeFsAvailable, Value: Value{Share: 0.1}},
			{Signal: NodeFsInodesFree, Value: Value{Share: 0.05}},
		}},
		{"soft with least amounts", Statements{
			Hard: map[string]string{"memory.available": "100Mi"}, Soft: map[string]string{"memory.available": "1Gi"},
			SoftGrace: map[string]string{"memory.available": "1m30s"}, MinReclaim: map[string]string{"memory.available": "50Mi"},
		}, []Threshold{
			{Signal: MemoryAvailable, Value: amount("100Mi"), MinReclaim: &least},
			{Signal: MemoryAvailable, Value: amount("1Gi"), Grace: 90 * time.Second, MinReclaim: &least},
		}},
		{
			"switched off",
			Statements{Hard: map[string]string{"memory.available": "0%", "nodefs.available": "100%", "pid.available": "1k"}},
			[]Threshold{{Signal: PIDAvailable, Value: amount("1k")}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRejects(t *testing.T) {
	memory := func(s string) map[string]string { return map[string]string{"memory.available": s} }
	for name, in := range map[string]Statements{
		"no such signal":        {Hard: map[string]string{"memory.free": "1Gi"}},
		"no number":             {Hard: memory("much")},
		"negative":              {Hard: memory("-1Gi")},
		"zero":                  {Hard: memory("0")},
		"above all":             {Hard: memory("101%")},
		"below none":            {Hard: memory("-1%")},
		"not a number":          {Hard: memory("NaN%")},
		"soft without a period": {Soft: memory("1Gi")},
		"soft, negative period": {Soft: memory("1Gi"), SoftGrace: memory("-1s")},
		"least of no signal":    {MinReclaim: map[string]string{"x": "1Gi"}},
		"least, negative":       {MinReclaim: memory("-1")},
	} {
		if got, err := Parse(in); err == nil {
			t.Errorf("%s: %v without an error", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "-5%", "1e3", "NaN%", "+Inf%"} {
		f.Add("memory.available", s)
	}
	f.Fuzz(func(t *testing.T, signal, text string) {
		all, err := Parse(Statements{Hard: map[string]string{signal: text}, MinReclaim: map[string]string{signal: text}})
		for _, th := range all {
			v := th.Value
			if err != nil || v.Quantity == nil && !(v.Share >= 0 && v.Share <= 1) || v.Quantity != nil && v.Quantity.Sign() <= 0 {
				t.Errorf("%s=%s: %v, %v", signal, text, th, err)
			}
		}
	})
}
