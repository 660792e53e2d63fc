package config

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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

// naive is the mux in another form: it keeps what it saw of each pod as text, in the order in which it came.
type naive struct {
	seen map[string]bool
	pods map[string]map[types.UID][2]string // by source and UID: what counts for a change, and the status
}

func (n *naive) apply(source string, list []*v1.Pod) []string {
	words := map[Op][]string{}
	had := n.pods[source]
	left := maps.Clone(had)
	has := map[types.UID][2]string{}
	for _, p := range list {
		var notes []string
		for k, v := range p.Annotations {
			if !strings.HasPrefix(k, "kubernetes.io/config.") || k == pod.ConfigHashAnnotation {
				notes = append(notes, k+"="+v)
			}
		}
		slices.Sort(notes)
		now := [2]string{fmt.Sprint(p.Spec, p.Labels, p.DeletionTimestamp, notes), fmt.Sprint(p.Status)}
		old, known := had[p.UID]
		delete(left, p.UID)
		has[p.UID] = now
		switch {
		case !known:
			words[Add] = append(words[Add], p.Name)
		case old[0] != now[0] && p.DeletionTimestamp != nil:
			words[Delete] = append(words[Delete], p.Name)
		case old[0] != now[0]:
			words[Update] = append(words[Update], p.Name)
		case old[1] != now[1]:
			words[Reconcile] = append(words[Reconcile], p.Name)
		}
	}
	for uid := range left {
		words[Remove] = append(words[Remove], string(uid))
	}
	n.pods[source] = has
	announce := !n.seen[source] && words[Add] == nil && words[Update] == nil && words[Delete] == nil
	n.seen[source] = true
	var out []string
	for _, op := range []Op{Remove, Add, Update, Delete, Reconcile} {
		slices.Sort(words[op])
		if len(words[op]) > 0 || op == Add && announce {
			out = append(out, strings.TrimSpace(op.String()+" "+strings.Join(words[op], " ")))
		}
	}
	return out
}

func TestMergeAgainstNaiveTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		twin := &naive{map[string]bool{}, map[string]map[types.UID][2]string{}}
		had := map[string]map[types.UID]*v1.Pod{}
		for step := range 30 {
			source := []string{"file", "http", "api"}[rng.IntN(3)]
			var list []*v1.Pod
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				if rng.IntN(3) > 0 {
					list = append(list, randomPod(rng, name))
				}
			}
			want := twin.apply(source, list)
			before, seen := had[source]
			has, changed := merge(source, before, list, "t")
			had[source] = has
			if diff := cmp.Diff(want, show(updates(source, changed, !seen))); diff != "" {
				t.Fatalf("step %d: %s", step, diff)
			}
		}
	}
}

func randomPod(rng *rand.Rand, name string) *v1.Pod {
	p := testPod(name)
	if rng.IntN(4) == 0 {
		image("img:2")(p)
	}
	if rng.IntN(4) == 0 {
		p.Labels = map[string]string{"k": "v"}
	}
	if rng.IntN(4) == 0 {
		annotated("note", "x")(p)
	}
	if rng.IntN(4) == 0 {
		annotated(pod.ConfigMirrorAnnotation, fmt.Sprint(rng.Int()))(p)
	}
	if rng.IntN(5) == 0 {
		deleted(p)
	}
	if rng.IntN(2) == 0 {
		running(p)
	}
	return p
}
