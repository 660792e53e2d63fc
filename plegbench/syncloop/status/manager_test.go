package status

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A world is a Manager between the pods that a test desires, what the workers report, and an API server.
type world struct {
	*Manager
	desired  *pod.Manager
	couldRun bool
	api      *fake.Client
	log      *strings.Builder
}

// newWorld makes a world with an API server that has these pods.
func newWorld(pods ...*v1.Pod) *world {
	w := &world{desired: pod.NewManager(), api: fake.New(), log: &strings.Builder{}}
	for _, p := range pods {
		if err := w.api.Tracker().Add(p.DeepCopy()); err != nil {
			panic(err)
		}
	}
	log := funcr.New(func(_, args string) { w.log.WriteString(args + "\n") }, funcr.Options{Verbosity: 4})
	w.Manager = New(w.config(log))
	return w
}

const interval = 10 * time.Second

func (w *world) config(log logr.Logger) Config {
	return Config{
		Client: w.api, Pods: w.desired, Log: log, Interval: interval, CouldRun: func(types.UID) bool { return w.couldRun },
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	}
}

// runFor runs the Manager for a time.
func (w *world) runFor(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run ended with %v", err)
	}
}

// writes are the calls other than GET that the API server has got since the last time.
func (w *world) writes() []string {
	var out []string
	for _, a := range w.api.Actions() {
		if a.GetVerb() != "get" {
			out = append(out, a.GetVerb()+" "+a.GetSubresource())
		}
	}
	w.api.ClearActions()
	return out
}

func (w *world) status(t *testing.T) v1.PodStatus {
	t.Helper()
	p, err := w.api.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.api.ClearActions()
	return p.Status
}

func known(w *world) bool { _, ok := w.PodStatus("u1"); return ok }

// up is the status of a pod that runs.
func up(p *v1.Pod) v1.PodStatus {
	return Generate(GenerateInput{
		Pod: p, PodStatus: &container.PodStatus{ContainerStatuses: []*container.Status{instance("app", 0, container.Running, 0)}},
		UpdateProbes: func(_ *v1.Pod, st *v1.PodStatus) {
			for i := range st.ContainerStatuses {
				st.ContainerStatuses[i].Ready, st.ContainerStatuses[i].Started = true, new(true)
			}
		},
	})
}

func done(p *v1.Pod, code int) v1.PodStatus {
	return Generate(GenerateInput{Pod: p, Terminal: true, PodStatus: &container.PodStatus{
		ContainerStatuses: []*container.Status{instance("app", 0, container.Exited, code)},
	}})
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(func(p *v1.Pod) {
			p.Generation = 7
			p.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue}}
		})
		w := newWorld(p)
		w.desired.UpdatePod(p)
		w.SetPodStatus(p, up(p))
		w.SetPodStatus(p, up(p)) // no change
		w.runFor(t, time.Second)
		if diff := cmp.Diff([]string{"patch status"}, w.writes()); diff != "" {
			t.Error(diff)
		}
		got := w.status(t)
		if got.Phase != v1.PodRunning || got.ObservedGeneration != 7 || got.StartTime == nil || condition(got.Conditions, "lb") == nil {
			t.Errorf("status %+v", got)
		}
		if e := w.pods["u1"]; len(w.pods) != 1 || e.version != 1 || e.name != "web" || e.finished {
			t.Errorf("snapshot %+v", e)
		}

		// What the API server has is what it was sent: nothing more to do, in full passes neither.
		p.Status = got
		w.runFor(t, time.Minute)
		if got := w.writes(); got != nil {
			t.Errorf("wrote %v again", got)
		}

		// Somebody changed it: the next full pass puts it right.
		p.Status.Phase = v1.PodPending
		if err := w.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p.DeepCopy(), "shop"); err != nil {
			t.Fatal(err)
		}
		w.runFor(t, interval+time.Second)
		if got := w.status(t).Phase; got != v1.PodRunning {
			t.Errorf("phase %s was not put right", got)
		}
	})
}

func TestTroubleAtTheServer(t *testing.T) {
	for _, tt := range []struct {
		name, verb string
		err        error
		there      []*v1.Pod
		wantLog    string
		wantKnown  bool
		wantLater  bool // it is sent once the trouble is over
	}{
		{name: "get fails", verb: "get", err: errors.New("boom"), there: []*v1.Pod{newPod()}, wantLog: "Failed to get status for pod", wantKnown: true, wantLater: true},
		{name: "patch fails", verb: "patch", err: errors.New("boom"), there: []*v1.Pod{newPod()}, wantLog: "Failed to update status for pod", wantKnown: true, wantLater: true},
		{name: "gone", wantLog: "Pod does not exist on the server", wantKnown: true},
		{
			name: "recreated", there: []*v1.Pod{newPod(func(p *v1.Pod) { p.UID = "u2" })},
			wantLog: "Pod was deleted and then recreated, skipping status update",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod()
				w := newWorld(tt.there...)
				w.desired.UpdatePod(p)
				trouble := tt.err != nil
				if trouble {
					w.api.PrependReactor(tt.verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return trouble, nil, tt.err })
				}
				w.SetPodStatus(p, up(p))
				w.runFor(t, time.Second)
				if !strings.Contains(w.log.String(), tt.wantLog) {
					t.Errorf("log %s", w.log)
				}
				if got := known(w); got != tt.wantKnown {
					t.Errorf("known: %v", got)
				}
				trouble = false
				w.writes()
				w.runFor(t, interval+time.Second)
				if got := slices.Contains(w.writes(), "patch status"); got != tt.wantLater {
					t.Errorf("patched after the trouble: %v", got)
				}
			})
		})
	}
}

func TestDeletion(t *testing.T) {
	mirror := func(p *v1.Pod) { p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "h"} }
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		finished bool
		couldRun bool
		want     []string
	}{
		{name: "all done", pod: newPod(deleted), finished: true, want: []string{"patch status", "delete "}},
		{name: "not deleted", pod: newPod(), finished: true, want: []string{"patch status"}},
		{name: "not finished", pod: newPod(deleted), want: []string{"patch status"}},
		{name: "may still run", pod: newPod(deleted), finished: true, couldRun: true, want: []string{"patch status"}},
		{name: "mirror", pod: newPod(deleted, mirror), finished: true, want: []string{"patch status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(tt.pod)
				w.couldRun = tt.couldRun
				w.desired.UpdatePod(tt.pod)
				w.SetPodStatus(tt.pod, done(tt.pod, 0))
				if tt.finished {
					w.TerminatePod(tt.pod)
				}
				var options metav1.DeleteOptions
				w.api.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					options = a.(clienttesting.DeleteAction).GetDeleteOptions()
					return false, nil, nil
				})
				w.runFor(t, time.Second)
				got := w.writes()
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if slices.Contains(got, "delete ") {
					want := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions("u1")}
					if diff := cmp.Diff(want, options); diff != "" {
						t.Error(diff)
					}
					if known(w) {
						t.Error("the deleted pod is still known")
					}
				}
			})
		})
	}
}

func TestStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(static)
		w := newWorld()
		w.desired.UpdatePod(p)
		w.SetPodStatus(p, up(p))
		w.runFor(t, time.Minute)
		if got := w.api.Actions(); len(got) != 0 {
			t.Errorf("asked %v about a pod without a mirror", got)
		}
		mirror := newPod(func(m *v1.Pod) {
			m.UID = "m1"
			m.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "h", pod.ConfigSourceAnnotation: pod.FileSource}
		})
		if err := w.api.Tracker().Add(mirror.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		w.desired.UpdatePod(mirror)
		w.runFor(t, interval+time.Second)
		if got := w.status(t).Phase; got != v1.PodRunning {
			t.Errorf("the mirror's phase is %q", got)
		}
		if st, ok := w.PodStatus("m1"); !ok || st.Phase != v1.PodRunning {
			t.Errorf("status by the mirror's UID: %v %s", ok, st.Phase)
		}
		w.TerminatePod(p)
		if st, _ := w.PodStatus("u1"); st.Phase != v1.PodRunning {
			t.Errorf("a static pod became %s for good", st.Phase)
		}
	})
}

func TestProbesAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod()
		w := newWorld(p)
		id := container.ID{Type: "containerd", ID: "app0"}
		w.SetContainerReadiness("u1", id, true) // a pod that is not desired
		w.desired.UpdatePod(p)
		w.SetContainerReadiness("u1", id, true) // one that has not been synced
		if known(w) {
			t.Fatal("a status came from a probe alone")
		}
		w.SetPodStatus(p, up(p))
		time.Sleep(time.Minute)
		w.SetContainerReadiness("u1", container.ID{Type: "containerd", ID: "other"}, false)
		w.SetContainerReadiness("u1", id, false)
		w.SetContainerReadiness("u1", id, false)
		w.SetContainerStartup("u1", id, true)
		st, _ := w.PodStatus("u1")
		for _, c := range st.Conditions {
			isReady := c.Type == v1.PodReady || c.Type == v1.ContainersReady
			if (c.Status == v1.ConditionFalse) != (isReady || c.Type == v1.PodReadyToStartContainers) {
				t.Errorf("%s is %s", c.Type, c.Status)
			}
			if changed := time.Since(c.LastTransitionTime.Time) < time.Second; changed != isReady {
				t.Errorf("%s changed at %v", c.Type, c.LastTransitionTime)
			}
		}
		w.SetContainerStartup("u1", id, false)
		if st, _ := w.PodStatus("u1"); *st.ContainerStatuses[0].Started || w.pods["u1"].version != 3 {
			t.Errorf("version %d, %+v", w.pods["u1"].version, st.ContainerStatuses[0])
		}
	})
}

func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "status.json")
		w := newWorld()
		cfg := w.config(logr.Discard())
		cfg.Client, cfg.File = nil, path
		w.Manager = New(cfg)
		p, other := newPod(), newPod(func(p *v1.Pod) { p.Name, p.UID = "api", "u2" })
		w.desired.UpdatePod(p)
		w.desired.UpdatePod(other)
		read := func() []string {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var list List
			if err := json.Unmarshal(content, &list); err != nil {
				t.Fatal(err)
			}
			out := []string{list.APIVersion, list.Kind}
			for _, i := range list.Items {
				out = append(out, string(i.Metadata.UID)+" "+i.Metadata.Namespace+"/"+i.Metadata.Name+" "+string(i.Status.Phase))
			}
			return out
		}
		w.SetPodStatus(p, up(p))
		w.SetPodStatus(other, done(other, 1))
		w.runFor(t, time.Second)
		want := []string{"kdiag/v1", "PodStatusList", "u2 shop/api Failed", "u1 shop/web Running"}
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Error(diff)
		}
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		w.runFor(t, time.Minute)
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("the file was replaced for nothing: %v", err)
		}
		w.RemoveOrphanedStatuses(map[types.UID]bool{"u2": true})
		w.runFor(t, time.Second)
		if diff := cmp.Diff(want[:3], read()); diff != "" {
			t.Error(diff)
		}
		if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
	})
}

func TestMerge(t *testing.T) {
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}
	isReady := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	foreignOne := v1.PodCondition{Type: "lb", Status: v1.ConditionTrue}
	for _, tt := range []struct {
		name     string
		old, now v1.PodStatus
		couldRun bool
		want     v1.PodStatus
	}{
		{
			name: "conditions of others stay, its own do not",
			old:  v1.PodStatus{Conditions: []v1.PodCondition{foreignOne, {Type: v1.PodScheduled}}},
			now:  v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{isReady, {Type: "mine"}}},
			want: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{foreignOne, isReady}},
		},
		{
			name: "the end is withheld while something may run", couldRun: true,
			old:  v1.PodStatus{Phase: v1.PodRunning, Reason: "R"},
			now:  v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Conditions: []v1.PodCondition{disrupted}},
			want: v1.PodStatus{Phase: v1.PodRunning, Reason: "R", Conditions: []v1.PodCondition{disrupted}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newPod(func(p *v1.Pod) { p.Status = tt.old })
			if diff := cmp.Diff(tt.want, merge(api, tt.now, tt.couldRun)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
