package signature

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// baselineYAML has the error and warning records that are no sign of a fault of the node; its head explains the fields.
//
//go:embed baseline.yaml
var baselineYAML []byte

// An ordinaryRecord is a record that a daemon of a healthy node writes too.
type ordinaryRecord struct {
	Lane   Lane     `json:"lane"`
	Texts  []string `json:"texts"`  // a record has all of them
	Why    string   `json:"why"`    // why it is harmless
	Source string   `json:"source"` // how it is known
}

var baseline = sync.OnceValue(func() map[Lane][]ordinaryRecord {
	var all []ordinaryRecord
	if err := yaml.UnmarshalStrict(baselineYAML, &all); err != nil {
		panic("baseline.yaml: " + err.Error()) // it is a part of the program
	}
	lanes := map[Lane][]ordinaryRecord{}
	for _, o := range all {
		lanes[o.Lane] = append(lanes[o.Lane], o)
	}
	return lanes
})

// Ordinary reports whether a healthy node's kubelet or runtime writes an error or warning record too, or writes it for
// a fault that only a workload has. The message has no header of klog.
func Ordinary(lane Lane, message []byte) bool {
	return slices.ContainsFunc(baseline()[lane], func(o ordinaryRecord) bool {
		return !slices.ContainsFunc(o.Texts, func(s string) bool { return !bytes.Contains(message, []byte(s)) })
	})
}

// Unstamped returns a record of logrus without its time.
func Unstamped(message []byte) []byte {
	if rest, ok := bytes.CutPrefix(message, []byte(`time="`)); ok {
		if _, rest, ok := bytes.Cut(rest, []byte(`" `)); ok {
			return rest
		}
	}
	return message
}

// PodOf returns the pod that a record names, namespace/name; empty if it names none.
func PodOf(message []byte) string {
	s := string(message)
	var m Match
	readPodField(s, &m)
	if m.Pod == "" && strings.Contains(s, "(") {
		readFullName(s, &m)
	}
	if m.Pod == "" && strings.Contains(s, "PodSandboxMetadata") {
		readSandboxMetadata(&record{text: s}, &m)
	}
	if m.Pod == "" || m.Namespace == "" {
		return ""
	}
	return m.Namespace + "/" + m.Pod
}
