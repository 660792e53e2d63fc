package config

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func newMux(sources ...string) (*Mux, *record.FakeRecorder) {
	events := record.NewFakeRecorder(10)
	return New(Config{Log: logr.Discard(), Recorder: events, Sources: sources}), events
}

// drain returns what waits in the channel of updates.
func drain(m *Mux) []PodUpdate {
	var out []PodUpdate
	for {
		select {
		case u := <-m.Updates():
			out = append(out, u)
		default:
			return out
		}
	}
}

func TestMux(t *testing.T) {
	m, events := newMux("file", "api")
	twin := testPod("a", func(p *v1.Pod) { p.UID = "other" })
	m.Apply(t.Context(), "file", []*v1.Pod{testPod("a"), twin, testPod("b")})
	updates := drain(m)
	if diff := cmp.Diff([]string{"ADD a b"}, show(updates)); diff != "" {
		t.Error(diff)
	}
	want := "Warning FailedValidation Error validating pod a_default(other) from file due to duplicate pod name " +
		`"a", ignoring`
	if got := <-events.Events; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	a := updates[0].Pods[0]
	if _, err := time.Parse(time.RFC3339Nano, a.Annotations[pod.ConfigFirstSeenAnnotation]); err != nil {
		t.Error(err)
	}
	if !pod.IsStatic(a) || updates[0].Source != "file" {
		t.Errorf("source %q, annotations %v", updates[0].Source, a.Annotations)
	}

	a.Spec.Containers[0].Image = "the receiver may do what it likes"
	m.Apply(t.Context(), "file", []*v1.Pod{testPod("a"), testPod("b")})
	m.Apply(t.Context(), "api", nil)
	if diff := cmp.Diff([]string{"ADD"}, show(drain(m))); diff != "" {
		t.Error(diff)
	}
}

func TestSeenAllSources(t *testing.T) {
	m, _ := newMux("file", "api")
	both := map[string]bool{"file": true, "api": true}
	m.Apply(t.Context(), "file", nil)
	if m.SeenAllSources(both) {
		t.Error("api has not delivered")
	}
	m.Apply(t.Context(), "api", nil)
	if m.SeenAllSources(map[string]bool{"file": true}) {
		t.Error("the syncLoop has not seen api")
	}
	if !m.SeenAllSources(both) {
		t.Error("both are there")
	}
	if none, _ := newMux(); !none.SeenAllSources(nil) {
		t.Error("without sources there is nothing to wait for")
	}
}

// A syncLoop that skips reads nothing. Its sources wait for it, in turn and in order, and are let go when it ends.
func TestMuxBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMux()
		for i := range updatesCap {
			m.Apply(t.Context(), "api", []*v1.Pod{testPod("a", image(strconv.Itoa(i)))})
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan string, 2)
		for _, source := range []string{"file", "http"} {
			go func() {
				m.Apply(ctx, source, []*v1.Pod{testPod("x"), testPod("y")})
				ended <- source
			}()
		}
		time.Sleep(time.Hour)
		select {
		case source := <-ended:
			t.Fatalf("%s got through a full channel", source)
		default:
		}
		cancel()
		<-ended
		<-ended
		if n := len(drain(m)); n != updatesCap {
			t.Errorf("%d updates waited, want %d", n, updatesCap)
		}
	})
}

// testPod makes a pod by its name, which is its UID too unless an edit says otherwise.
func testPod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "img:1"}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func image(image string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Image = image }
}

func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func deleted(p *v1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	p.DeletionGracePeriodSeconds = new(int64(30))
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
	mirrored := func(hash string) func(*v1.Pod) { return annotated(pod.ConfigMirrorAnnotation, hash) }
	labelled := func(p *v1.Pod) { p.Labels = map[string]string{"k": "v"} }
	shorter := func(p *v1.Pod) { deleted(p); *p.DeletionGracePeriodSeconds = 1 }
	type pods []*v1.Pod
	var had map[types.UID]*v1.Pod
	for i, tt := range []struct {
		list pods
		want []string
	}{
		{nil, []string{"ADD"}}, // announces the source
		{nil, nil},
		{pods{testPod("a"), testPod("b"), testPod("c", mirrored("1"))}, []string{"ADD a b c"}},
		{pods{testPod("a"), testPod("b"), testPod("c", mirrored("2"))}, nil},
		{
			pods{testPod("a", image("img:2")), testPod("b", running), testPod("d")},
			[]string{"REMOVE c", "ADD d", "UPDATE a", "RECONCILE b"},
		},
		{pods{testPod("a", image("img:2")), testPod("b", running), testPod("d")}, nil},
		{
			pods{testPod("a", labelled), testPod("b", running, annotated("note", "x")), testPod("d", deleted, running)},
			[]string{"UPDATE a b", "DELETE d"},
		},
		{
			pods{testPod("b", running, annotated(pod.ConfigHashAnnotation, "1")), testPod("d", shorter, running)},
			[]string{"REMOVE a", "UPDATE b", "DELETE d"},
		},
		{pods{testPod("d", shorter)}, []string{"REMOVE b", "RECONCILE d"}},
	} {
		has, changed := merge("api", had, tt.list, "t")
		if diff := cmp.Diff(tt.want, show(updates("api", changed, had == nil))); diff != "" {
			t.Errorf("list %d: %s", i, diff)
		}
		for _, p := range has { // what a change leaves out is kept, and is the kubelet's own
			if p.Annotations[pod.ConfigSourceAnnotation] != "api" || p.Annotations[pod.ConfigFirstSeenAnnotation] != "t" {
				t.Errorf("list %d: %s has the annotations %v", i, p.Name, p.Annotations)
			}
		}
		had = has
	}
}
