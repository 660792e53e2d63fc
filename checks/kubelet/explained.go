package kubelet

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

//go:embed explained.yaml
var explainedData []byte

// An Explanation lists the settings of a kubelet that PLEG and NotReady depend on, and their meaning.
type Explanation struct {
	PID       int         `json:"pid,omitempty"` // of the kubelet; 0 for none, and all values are the defaults
	Process   string      `json:"process,omitempty"`
	Files     []string    `json:"files,omitempty"` // that were read, in order
	Settings  []Explained `json:"settings"`
	Constants []Constant  `json:"constants"`
	Problems  []string    `json:"-"` // files that could not be read
}

// An Explained is a setting and its value.
type Explained struct {
	Name     string `json:"name"`
	Field    string `json:"field,omitempty"` // of KubeletConfiguration, with a dot inside another field
	Flag     string `json:"flag,omitempty"`  // with its dashes
	Value    string `json:"value"`           // "-" for none; that of a map is "key: value, key: value"
	From     string `json:"from"`            // default, file, drop-in, flag, or embedder: a distribution's own default
	Where    string `json:"where,omitempty"` // the flag or file that sets it, or why another default holds
	Default  string `json:"default"`
	Versions string `json:"versions,omitempty"` // where kubelets differ from the newest
	Means    string `json:"means"`
}

// A Constant is a time or limit that no setting changes.
type Constant struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Means string `json:"means"`
}

var defaults = sync.OnceValue(func() (e Explanation) {
	if err := yaml.UnmarshalStrict(explainedData, &e); err != nil {
		panic("explained.yaml: " + err.Error()) // it is a part of the program
	}
	config := kubeletconfig.Defaults()
	fields := fieldsOf(&config)
	for i := range e.Settings {
		s := &e.Settings[i]
		s.Default = cmp.Or(s.Default, valueText(fields[s.Field]))
		s.Value, s.From = s.Default, "default"
		outer, _, _ := strings.Cut(s.Field, ".")
		for _, f := range kubeletconfig.Flags() {
			if f.Name == s.Name || f.Field != "" && f.Field == outer {
				s.Flag = "--" + f.Name
			}
		}
	}
	return e
})

// ExplainDefaults returns the settings of a kubelet that is given none.
func ExplainDefaults() Explanation {
	e := defaults()
	e.Settings = slices.Clone(e.Settings)
	return e
}

// Explain returns the settings of the kubelet with this pid.
func Explain(root string, pid int) (Explanation, error) {
	e := ExplainDefaults()
	g, err := readGiven(root, pid)
	if err != nil {
		return e, err
	}
	e.PID, e.Process, e.Files, e.Problems = pid, oneLine(g.process.Name()), g.files, g.problems
	file, embedded := oneLine(kubeletconfig.Last(g.flags, "config")), g.process.Socket() != ""
	fields := fieldsOf(&g.Config)
	for i := range e.Settings {
		s := &e.Settings[i]
		value := fields[s.Field]
		s.Where = oneLine(g.Origin(s.Field))
		gate, isGate := strings.CutPrefix(s.Field, "featureGates.")
		last := kubeletconfig.Last(g.flags, s.Name)
		switch {
		case s.Field == "" && last != "":
			value, s.Where = last, s.Flag
		case isGate && value == nil && s.Default == "false" && g.Gate(gate):
			value, s.Where = true, oneLine(g.Origin("featureGates.AllAlpha"))
		}
		if value != nil {
			s.Value = valueText(value)
		}
		switch {
		case strings.HasPrefix(s.Where, "--"):
			s.From = "flag"
		case s.Where != "" && s.Where == file:
			s.From = "file"
		case slices.Contains(e.Files, s.Where):
			s.From = "drop-in"
		case s.Field == "containerRuntimeEndpoint" && embedded:
			s.From = "embedder"
		}
	}
	return e, nil
}

// fieldsOf returns the fields of a configuration by name, those inside others also as outer.inner.
func fieldsOf(c *kubeletconfig.Config) (fields map[string]any) {
	data, _ := json.Marshal(c) // texts, numbers, and maps of them
	_ = kjson.UnmarshalCaseSensitivePreserveInts(data, &fields)
	for _, outer := range []string{"featureGates", "crashLoopBackOff"} {
		inner, _ := fields[outer].(map[string]any)
		for name, value := range inner {
			fields[outer+"."+name] = value
		}
	}
	return fields
}

// wholeMinutes matches 2m0s and 1h0m0s.
var wholeMinutes = lazyregexp.New(`^(\d[\dhm]*?[hm])(0m)?0s$`)

// valueText returns a value in a line.
func valueText(value any) string {
	text := ""
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text += ", " + key + ": " + fmt.Sprint(v[key])
		}
		text = strings.TrimPrefix(text, ", ")
	default:
		text = wholeMinutes.ReplaceAllString(fmt.Sprint(v), "$1")
	}
	return cmp.Or(oneLine(text), "-")
}
