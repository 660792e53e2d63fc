package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func TestPodConfig(t *testing.T) {
	events := record.NewFakeRecorder(10)
	m := New(Config{Log: logr.Discard(), Recorder: events, Sources: []string{"file", "api"}})
	twin := looptest.Pod("a", func(p *v1.Pod) { p.UID = "other" })
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "file", Pods: []*v1.Pod{looptest.Pod("a"), twin, looptest.Pod("b")}})
	updates := looptest.Drain(m.Updates())
	testkit.Equal(t, "updates", []string{"ADD a b"}, show(updates))
	want := "Warning FailedValidation Error validating pod a_shop(other) from file due to duplicate pod name " +
		`"a", ignoring`
	testkit.Equal(t, "event", want, <-events.Events)
	a := updates[0].Pods[0]
	_, err := time.Parse(time.RFC3339Nano, a.Annotations[pod.ConfigFirstSeenAnnotation])
	testkit.Must(t, err)
	if !pod.IsStatic(a) || updates[0].Source != "file" {
		t.Errorf("source %q, annotations %v", updates[0].Source, a.Annotations)
	}

	a.Spec.Containers[0].Image = "the receiver may do what it likes"
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "file", Pods: []*v1.Pod{looptest.Pod("a"), looptest.Pod("b")}})
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "api", Pods: nil})
	testkit.Equal(t, "updates", []string{"ADD"}, show(looptest.Drain(m.Updates())))
}

func image(image string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Image = image }
}

func running(p *v1.Pod) { p.Status.Phase = v1.PodRunning }

// show writes updates as "OP a b", with the words of pods in order.
func show(updates []PodUpdate) []string {
	var out []string
	for _, u := range updates {
		var names []string
		for _, p := range u.Pods {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		out = append(out, strings.TrimSpace(u.Op.String()+" "+strings.Join(names, " ")))
	}
	return out
}

// TestMerge has the lists of one source, one after the other.
func TestMerge(t *testing.T) {
	mirrored := func(hash string) func(*v1.Pod) { return looptest.Annotated(pod.ConfigMirrorAnnotation, hash) }
	labelled := func(p *v1.Pod) { p.Labels = map[string]string{"k": "v"} }
	deleted, shorter := looptest.Deleted(30), looptest.Deleted(1)
	type pods []*v1.Pod
	var had map[types.UID]*v1.Pod
	for i, tt := range []struct {
		list pods
		want []string
	}{
		{nil, []string{"ADD"}}, // announces the source
		{nil, nil},
		{pods{looptest.Pod("a"), looptest.Pod("b"), looptest.Pod("c", mirrored("1"))}, []string{"ADD a b c"}},
		{pods{looptest.Pod("a"), looptest.Pod("b"), looptest.Pod("c", mirrored("2"))}, nil},
		{
			pods{looptest.Pod("a", image("img:2")), looptest.Pod("b", running), looptest.Pod("d")},
			[]string{"REMOVE c", "ADD d", "UPDATE a", "RECONCILE b"},
		},
		{pods{looptest.Pod("a", image("img:2")), looptest.Pod("b", running), looptest.Pod("d")}, nil},
		{
			pods{
				looptest.Pod("a", labelled), looptest.Pod("b", running, looptest.Annotated("note", "x")),
				looptest.Pod("d", deleted, running),
			},
			[]string{"UPDATE a b", "DELETE d"},
		},
		{
			pods{
				looptest.Pod("b", running, looptest.Annotated(pod.ConfigHashAnnotation, "1")),
				looptest.Pod("d", shorter, running),
			},
			[]string{"REMOVE a", "UPDATE b", "DELETE d"},
		},
		{pods{looptest.Pod("d", shorter)}, []string{"REMOVE b", "RECONCILE d"}},
	} {
		has, changed := merge("api", had, tt.list, "t")
		testkit.Equal(t, fmt.Sprint("list ", i), tt.want, show(updates("api", changed, had == nil)))
		for _, p := range has { // what a change leaves out is kept, and is the kubelet's own
			if p.Annotations[pod.ConfigSourceAnnotation] != "api" || p.Annotations[pod.ConfigFirstSeenAnnotation] != "t" {
				t.Errorf("list %d: %s has the annotations %v", i, p.Name, p.Annotations)
			}
		}
		had = has
	}
}

const minimal = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: c
    image: local/web:1
`

// TestParse completes a pod as the API server and the kubelet would.
func TestParse(t *testing.T) {
	pods, err := parse([]byte(testkit.Read(t, "testdata/full.yaml")), pod.FileSource, "/m/full.yaml", "Node-A")
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	got, err := yaml.Marshal(pods[0])
	testkit.Must(t, err)
	testkit.Golden(t, "testdata/full.golden.yaml", string(got))
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
			testkit.Contains(t, "error", "/m/x: ", err.Error())
			return
		}
		again, err := parse(data, pod.FileSource, "/m/x", "n")
		testkit.Must(t, err)
		testkit.Equal(t, "parsed twice", pods, again)
		for _, p := range pods {
			_, err := json.Marshal(p)
			testkit.Must(t, err)
			if p.UID == "" || p.Spec.NodeName != "n" || len(p.Spec.Containers) == 0 ||
				p.Spec.TerminationGracePeriodSeconds == nil {
				t.Errorf("not complete: %v", p)
			}
			// The same pod again is no change.
			has, _ := merge("file", nil, []*v1.Pod{p}, "t")
			_, c := merge("file", has, []*v1.Pod{p}, "t")
			testkit.Equal(t, "changes without a change", map[Op][]*v1.Pod{}, c)
		}
	})
}
