package status

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A harness is a Manager between the pods that a test desires, what the workers report, and an API server.
type harness struct {
	*Manager
	desired  *pod.Manager
	couldRun bool
	api      *fake.Client
}

const interval = 10 * time.Second

// newHarness makes a harness with an API server that has these pods.
func newHarness(pods ...*v1.Pod) *harness {
	w := &harness{desired: pod.NewManager(), api: fake.New()}
	for _, p := range pods {
		if err := w.api.Tracker().Add(p.DeepCopy()); err != nil {
			panic(err)
		}
	}
	w.Manager = New(Config{
		Client: w.api, Pods: w.desired, Log: logr.Discard(), Interval: interval,
		CouldRun: func(types.UID) bool { return w.couldRun },
	})
	return w
}

// wrote checks the calls other than GET that the API server has got since the last time.
func (w *harness) wrote(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, a := range w.api.Actions() {
		if a.GetVerb() != "get" {
			got = append(got, a.GetVerb())
		}
	}
	w.api.ClearActions()
	testkit.Equal(t, "calls", want, got)
}

func (w *harness) status(t *testing.T) v1.PodStatus {
	t.Helper()
	p, err := w.api.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	testkit.Must(t, err)
	return p.Status
}

// up is the status of a pod that runs.
func up(p *v1.Pod) v1.PodStatus {
	return Generate(GenerateInput{Pod: p, PodStatus: instances("app0=running"), UpdateProbes: allReady})
}

func done(p *v1.Pod, code string) v1.PodStatus {
	return Generate(GenerateInput{Pod: p, Terminal: true, PodStatus: instances("app0=exited:" + code)})
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(func(p *v1.Pod) {
			p.Generation = 7
			p.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue}}
		})
		w := newHarness(p)
		w.desired.UpdatePod(p)
		w.SetPodStatus(p, up(p))
		w.SetPodStatus(p, up(p)) // no change
		looptest.RunFor(t, w.Run, time.Second)
		w.wrote(t, "patch")
		got := w.status(t)
		if got.Phase != v1.PodRunning || got.ObservedGeneration != 7 || got.StartTime == nil ||
			condition(got.Conditions, "lb") == nil || w.pods["u1"].version != 1 {
			t.Errorf("status %+v", got)
		}
		p.Status = got
		looptest.RunFor(t, w.Run, time.Minute) // the API server has what it was sent
		w.wrote(t)
		p.Status.Phase = v1.PodPending // somebody changes it, and the next full pass restores it
		testkit.Must(t, w.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p.DeepCopy(), "shop"))
		looptest.RunFor(t, w.Run, interval+time.Second)
		testkit.Equal(t, "restored phase", v1.PodRunning, w.status(t).Phase)
	})
}

// TestReportFailures has an API server on which a call fails, or that has another pod of the name: the status is sent
// when the call works again, or forgotten.
func TestReportFailures(t *testing.T) {
	for verb, want := range map[string][]string{"get": {"patch"}, "patch": {"patch"}, "": nil} {
		synctest.Test(t, func(t *testing.T) {
			p := newPod()
			w, failing := newHarness(p), verb != ""
			if verb == "" {
				w = newHarness(newPod(func(p *v1.Pod) { p.UID = "u2" }))
			}
			w.api.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return failing, nil, errors.New("boom")
			})
			w.desired.UpdatePod(p)
			w.SetPodStatus(p, up(p))
			looptest.RunFor(t, w.Run, time.Second)
			_, known := w.PodStatus("u1")
			testkit.Equal(t, "known after a failure of "+verb, failing, known)
			failing = false
			w.api.ClearActions()
			looptest.RunFor(t, w.Run, interval+time.Second)
			w.wrote(t, want...)
		})
	}
}

func TestDeletion(t *testing.T) {
	mirror := looptest.Annotated(pod.ConfigMirrorAnnotation, "h")
	for _, tt := range []struct {
		name               string
		pod                *v1.Pod
		finished, couldRun bool
		deleted            bool
	}{
		{name: "all done", pod: newPod(looptest.Deleted(0)), finished: true, deleted: true},
		{name: "not to be deleted", pod: newPod(), finished: true},
		{name: "not finished", pod: newPod(looptest.Deleted(0))},
		{name: "may still run", pod: newPod(looptest.Deleted(0)), finished: true, couldRun: true},
		{name: "mirror", pod: newPod(looptest.Deleted(0), mirror), finished: true},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			w := newHarness(tt.pod)
			w.couldRun = tt.couldRun
			w.desired.UpdatePod(tt.pod)
			w.SetPodStatus(tt.pod, done(tt.pod, "0"))
			if tt.finished {
				w.TerminatePod(tt.pod)
			}
			var options *metav1.DeleteOptions
			w.api.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				options = new(a.(clienttesting.DeleteAction).GetDeleteOptions())
				return false, nil, nil
			})
			looptest.RunFor(t, w.Run, time.Second)
			if !tt.deleted {
				w.wrote(t, "patch")
				testkit.Equal(t, "a terminal phase at the API server", !tt.couldRun, pod.IsTerminal(w.status(t).Phase))
				return
			}
			w.wrote(t, "patch", "delete")
			want := &metav1.DeleteOptions{
				GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions("u1"),
			}
			testkit.Equal(t, "options", want, options)
			_, known := w.PodStatus("u1")
			testkit.Equal(t, "the deleted pod is known", false, known)
		})
	}
}

func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "status.json")
		w := newHarness()
		w.cfg.Client, w.cfg.File = nil, path
		p, other := newPod(), newPod(func(p *v1.Pod) { p.Name, p.UID = "api", "u2" })
		// holds runs the Manager and checks the pods of the document in the file.
		holds := func(d time.Duration, want ...string) os.FileInfo {
			t.Helper()
			looptest.RunFor(t, w.Run, d)
			content, readErr := os.ReadFile(path)
			info, statErr := os.Stat(path)
			var list struct {
				APIVersion, Kind string
				Items            []struct {
					Metadata struct{ Namespace, Name, UID string }
				}
			}
			testkit.Must(t, errors.Join(readErr, statErr, json.Unmarshal(content, &list)))
			got := []string{list.APIVersion + " " + list.Kind}
			for _, i := range list.Items {
				got = append(got, i.Metadata.Namespace+"/"+i.Metadata.Name+" "+i.Metadata.UID)
			}
			testkit.Equal(t, "file", append([]string{"kdiag/v1 PodStatusList"}, want...), got)
			return info
		}
		w.SetPodStatus(p, up(p))
		w.SetPodStatus(other, done(other, "1"))
		const api = "shop/api u2"
		before := holds(time.Second, api, "shop/web u1")
		w.RemoveOrphanedStatuses(map[types.UID]bool{"u2": true})
		testkit.Equal(t, "the same file, not replaced as a whole", false, os.SameFile(before, holds(time.Second, api)))
		before = holds(time.Second, api)
		testkit.Equal(t, "the same file without a change", true, os.SameFile(before, holds(time.Minute, api)))
		names, _ := os.ReadDir(filepath.Dir(path))
		testkit.Equal(t, "files", 1, len(names))
	})
}
