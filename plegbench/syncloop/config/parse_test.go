package config

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

const minimal = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: c
    image: local/web:1
`

var update = flag.Bool("update", false, "write the goldens")

// TestParse completes a pod as the API server and the kubelet would.
func TestParse(t *testing.T) {
	manifest, err := os.ReadFile("testdata/full.yaml")
	looptest.Must(t, err)
	pods, err := parse(manifest, pod.FileSource, "/m/full.yaml", "Node-A")
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	got, err := yaml.Marshal(pods[0])
	looptest.Must(t, err)
	if *update {
		looptest.Must(t, os.WriteFile("testdata/full.golden.yaml", got, 0o644))
	}
	want, err := os.ReadFile("testdata/full.golden.yaml")
	looptest.Must(t, err)
	looptest.Equal(t, "completed", string(want), string(got))
}

func TestParseErrors(t *testing.T) {
	const head = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: "
	const kind, twins = "write a pod, with apiVersion: v1 and kind: Pod", "initContainers: [{name: c, image: i}], "
	for manifest, want := range map[string]string{
		"{}":                                kind,
		"{apiVersion: v1, kind: Secret}":    "/m/x: this is a ConfigMap or Secret, not a pod",
		"{apiVersion: v1, kind: Pod}":       `metadata.name "-n": `,
		head + "{}}":                        "/m/x: invalid pod: spec.containers is empty",
		head + "{containers: [{name: c}]}}": `/m/x: invalid pod: container "c" has no image`,
		head + "{volumes: [{name: ../x}]}}": `spec.volumes.name "../x": `,
		head + "{" + twins + "containers: [{name: c, image: i}]}}": `spec.containers.name "c": more than one`,
	} {
		_, err := parse([]byte("---\n"+manifest), pod.FileSource, "/m/x", "n")
		if err == nil {
			t.Errorf("%s: no error", manifest)
		} else if got := err.Error(); !strings.HasPrefix(got, "/m/x: ") || !strings.Contains(got, want) ||
			strings.Contains(got, "\n") {
			t.Errorf("%s: error %q, want one line with %q", manifest, got, want)
		}
	}
}

func FuzzParsePod(f *testing.F) {
	for _, seed := range []string{
		minimal, "{}", "a: [", "---\n---\n", "&a [*a]",
		"{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := parse(data, pod.FileSource, "/m/x", "n")
		if err != nil {
			looptest.Contains(t, "error", "/m/x: ", err.Error())
			return
		}
		again, err := parse(data, pod.FileSource, "/m/x", "n")
		looptest.Must(t, err)
		looptest.Equal(t, "parsed twice", pods, again)
		for _, p := range pods {
			_, err := json.Marshal(p)
			looptest.Must(t, err)
			if p.UID == "" || p.Spec.NodeName != "n" || len(p.Spec.Containers) == 0 ||
				p.Spec.TerminationGracePeriodSeconds == nil {
				t.Errorf("not complete: %v", p)
			}
			// The same pod again is no change.
			has, _ := merge("file", nil, []*v1.Pod{p}, "t")
			_, c := merge("file", has, []*v1.Pod{p}, "t")
			looptest.Equal(t, "changes without a change", map[Op][]*v1.Pod{}, c)
		}
	})
}
