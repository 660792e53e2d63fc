package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
)

func definitions() []checks.Definition {
	return []checks.Definition{
		{
			Code: "InspectHang", Title: "the status of one container or sandbox is not answered",
			Means: "The lists answer. The status of one object does not: a lock is held on its behalf, mostly by a runc or a shim that " +
				"waits.\n\nThe kubelet asks one after the other and waits 2m for it.",
			Confirm: []string{
				"crictl inspect -q ID: hangs for this id, answers for others.",
				"ps -eo pid,etime,stat,wchan:32,args --sort=-etime | grep -E 'runc|containerd-shim' | grep -v grep | head -n 20: what is old is stuck.",
				"The kubelet's log repeats the same id.",
			},
			Fix:      []string{"Kill the stuck runc: the lock is freed.", "Kill that one shim; its pod is lost."},
			Mistaken: "RuntimeHung: there nothing answers.",
			Sources:  []string{"kubernetes/kubernetes#45419"},
			RootOf:   []string{"RelistOverloaded"},
		},
		{Code: "RuntimeDown", Title: "nothing listens", Means: "The daemon is stopped."},
	}
}

func TestExplain(t *testing.T) {
	ds := definitions()
	for _, v := range []struct {
		name string
		o    Options
	}{
		{"text.txt", Options{}},
		{"brief.txt", Options{Format: Brief}},
		{"json", Options{Format: JSON}},
	} {
		var one, all strings.Builder
		if err := Definition(&one, ds[0], v.o); err != nil {
			t.Fatal(err)
		}
		if err := Definitions(&all, ds, v.o); err != nil {
			t.Fatal(err)
		}
		golden(t, "explain."+v.name, one.String())
		golden(t, "explain-list."+v.name, all.String())
		if v.o.Format == Brief {
			checkBrief(t, one.String())
			checkBrief(t, all.String())
		}
	}
}

// TestDefinitionsHaveNoNullList checks that a list without causes is an empty JSON array.
func TestDefinitionsHaveNoNullList(t *testing.T) {
	var b strings.Builder
	if err := Definitions(&b, nil, Options{Format: JSON}); err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if string(got["causes"]) != "[]" {
		t.Errorf("causes are %s, want []", got["causes"])
	}
}
