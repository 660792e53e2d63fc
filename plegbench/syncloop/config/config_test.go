package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func newPodConfig(sources ...string) (*PodConfig, *record.FakeRecorder) {
	events := record.NewFakeRecorder(10)
	return New(Config{Log: logr.Discard(), Recorder: events, Sources: sources}), events
}

func TestPodConfig(t *testing.T) {
	m, events := newPodConfig("file", "api")
	twin := looptest.Pod("a", func(p *v1.Pod) { p.UID = "other" })
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "file", Pods: []*v1.Pod{looptest.Pod("a"), twin, looptest.Pod("b")}})
	updates := looptest.Drain(m.Updates())
	looptest.Equal(t, "updates", []string{"ADD a b"}, show(updates))
	want := "Warning FailedValidation Error validating pod a_shop(other) from file due to duplicate pod name " +
		`"a", ignoring`
	looptest.Equal(t, "event", want, <-events.Events)
	a := updates[0].Pods[0]
	_, err := time.Parse(time.RFC3339Nano, a.Annotations[pod.ConfigFirstSeenAnnotation])
	looptest.Must(t, err)
	if !pod.IsStatic(a) || updates[0].Source != "file" {
		t.Errorf("source %q, annotations %v", updates[0].Source, a.Annotations)
	}

	a.Spec.Containers[0].Image = "the receiver may do what it likes"
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "file", Pods: []*v1.Pod{looptest.Pod("a"), looptest.Pod("b")}})
	m.Merge(t.Context(), PodUpdate{Op: SET, Source: "api", Pods: nil})
	looptest.Equal(t, "updates", []string{"ADD"}, show(looptest.Drain(m.Updates())))
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
		looptest.Equal(t, fmt.Sprint("list ", i), tt.want, show(updates("api", changed, had == nil)))
		for _, p := range has { // what a change leaves out is kept, and is the kubelet's own
			if p.Annotations[pod.ConfigSourceAnnotation] != "api" || p.Annotations[pod.ConfigFirstSeenAnnotation] != "t" {
				t.Errorf("list %d: %s has the annotations %v", i, p.Name, p.Annotations)
			}
		}
		had = has
	}
}
