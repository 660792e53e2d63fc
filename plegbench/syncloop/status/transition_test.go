package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheckTransitions(t *testing.T) {
	never, onFailure := policy(v1.RestartPolicyNever), policy(v1.RestartPolicyOnFailure)
	one := func(st v1.ContainerStatus) []v1.ContainerStatus { return []v1.ContainerStatus{st} }
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		old, now v1.ContainerStatus
		init     bool
		want     string
	}{
		{name: "always", pod: newPod(), old: exited("app", 0), now: running("app")},
		{name: "never", pod: newPod(never), old: exited("app", 1), now: running("app"), want: "terminated container app attempted illegal transition to non-terminated state"},
		{name: "never, waits", pod: newPod(never), old: exited("app", 1), now: waits("app"), want: "terminated container app"},
		{name: "never, still ended", pod: newPod(never), old: exited("app", 1), now: exited("app", 1)},
		{name: "never, gone", pod: newPod(never), old: exited("app", 1), now: running("other")},
		{name: "on failure, failed", pod: newPod(onFailure), old: exited("app", 1), now: running("app")},
		{name: "on failure, succeeded", pod: newPod(onFailure), old: exited("app", 0), now: running("app"), want: "terminated container app"},
		{name: "its own policy", pod: newPod(never, func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}), old: exited("app", 0), now: running("app")},
		{
			name: "init", pod: newPod(never, withInit("i")), old: exited("i", 0), now: running("i"), init: true,
			want: "terminated init container i attempted illegal transition to non-terminated state",
		},
		{name: "sidecar", pod: newPod(never, withSidecar("s")), old: exited("s", 0), now: running("s"), init: true},
		{
			name: "unknown init container", pod: newPod(never), old: exited("i", 0), now: exited("i", 0), init: true,
			want: "found mismatch between pod spec and status, container: i",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var old, now v1.PodStatus
			if tt.init {
				old.InitContainerStatuses, now.InitContainerStatuses = one(tt.old), one(tt.now)
			} else {
				old.ContainerStatuses, now.ContainerStatuses = one(tt.old), one(tt.now)
			}
			err := checkTransitions(&old, &now, tt.pod)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNormalize(t *testing.T) {
	p := newPod(also("b", "c"))
	st := v1.PodStatus{
		StartTime:         &metav1.Time{Time: noon().Add(time.Millisecond)},
		ContainerStatuses: []v1.ContainerStatus{running("b"), exited("app", 1)},
	}
	st.ContainerStatuses[1].State.Terminated.Message = strings.Repeat("x", mostMessages)
	st.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(noon().Add(time.Millisecond))
	normalize(p, &st)
	if got := len(st.ContainerStatuses[0].State.Terminated.Message); got != mostMessages/3 || st.ContainerStatuses[0].Name != "app" {
		t.Errorf("message of %s has %d bytes", st.ContainerStatuses[0].Name, got)
	}
	if !st.StartTime.Time.Equal(noon()) || !st.ContainerStatuses[1].State.Running.StartedAt.Time.Equal(noon()) {
		t.Error("times are not in whole seconds")
	}
}

func TestEqual(t *testing.T) {
	cond := func(typ v1.PodConditionType, is v1.ConditionStatus, at time.Time) v1.PodStatus {
		return v1.PodStatus{Conditions: []v1.PodCondition{{Type: typ, Status: is, LastTransitionTime: metav1.NewTime(at)}}}
	}
	for _, tt := range []struct {
		name string
		a, b v1.PodStatus
		want bool
	}{
		{name: "empty", want: true},
		{name: "phase", a: v1.PodStatus{Phase: v1.PodRunning}},
		{name: "times of conditions", a: cond(v1.PodReady, v1.ConditionTrue, noon()), b: cond(v1.PodReady, v1.ConditionTrue, noon().Add(time.Hour)), want: true},
		{name: "condition", a: cond(v1.PodReady, v1.ConditionTrue, noon()), b: cond(v1.PodReady, v1.ConditionFalse, noon())},
		{name: "one more condition", a: cond(v1.PodReady, v1.ConditionTrue, noon())},
		{name: "foreign condition", a: cond("lb", v1.ConditionTrue, noon()), want: true},
		{name: "disruption", b: cond(v1.DisruptionTarget, v1.ConditionTrue, noon())},
		{name: "others' field", a: v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "x"}}}, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := equal(&tt.a, &tt.b); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}
	isReady := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	foreignOne := v1.PodCondition{Type: "lb", Status: v1.ConditionTrue}
	at := metav1.NewTime(noon())
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
			want: v1.PodStatus{Phase: v1.PodRunning, Reason: "R"},
		},
		{
			name: "and then told, with what caused it",
			old:  v1.PodStatus{Phase: v1.PodRunning},
			now:  v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Conditions: []v1.PodCondition{disrupted}},
			want: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Conditions: []v1.PodCondition{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", LastTransitionTime: at},
			}},
		},
		{
			name: "what has ended is not ready",
			old:  v1.PodStatus{Phase: v1.PodRunning},
			now:  v1.PodStatus{Phase: v1.PodSucceeded, Conditions: []v1.PodCondition{isReady}},
			want: v1.PodStatus{Phase: v1.PodSucceeded, Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: at},
				{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: at},
			}},
		},
		{
			name: "fields of others stay",
			old:  v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "x"}}},
			want: v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "x"}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newPod(func(p *v1.Pod) { p.Status = tt.old })
			if diff := cmp.Diff(tt.want, merge(api, tt.now, tt.couldRun, noon())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	status := func(init, regular []v1.ContainerStatus) podOption {
		return func(p *v1.Pod) { p.Status.InitContainerStatuses, p.Status.ContainerStatuses = init, regular }
	}
	list := func(in ...v1.ContainerStatus) []v1.ContainerStatus { return in }
	for _, tt := range []struct {
		name          string
		pod           *v1.Pod
		init, regular []string // is, in order
	}{
		{name: "runs", pod: newPod(status(nil, list(running("app")))), regular: []string{"ended 137"}},
		{name: "ended", pod: newPod(status(nil, list(exited("app", 3)))), regular: []string{"ended 3"}},
		{
			name: "never initialized", pod: newPod(withInit("i", "j"), status(list(waits("i"), waits("j")), list(waits("app")))),
			init: []string{"ended 137", "waiting"}, regular: []string{"waiting"},
		},
		{
			name: "second init container ran", pod: newPod(withInit("i", "j", "k"), status(list(exited("i", 0), running("j"), waits("k")), list(waits("app")))),
			init: []string{"ended 0", "ended 137", "waiting"}, regular: []string{"waiting"},
		},
		{
			name: "initialized", pod: newPod(withInit("i"), status(list(exited("i", 0)), list(waits("app")))),
			init: []string{"ended 0"}, regular: []string{"ended 137"},
		},
		{
			name: "initialized by a sidecar", pod: newPod(withSidecar("s"), status(list(started(running("s"))), list(waits("app")))),
			init: []string{"ended 137"}, regular: []string{"ended 137"},
		},
		{
			name: "a regular container ran once", pod: newPod(withInit("i"), status(list(waits("i")), list(crashed("app", 1)))),
			init: []string{"ended 137"}, regular: []string{"ended 137"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := *tt.pod.Status.DeepCopy()
			finish(tt.pod, &st)
			is := func(in []v1.ContainerStatus) []string {
				var out []string
				for _, b := range briefly(in) {
					if b.Is == "ended" {
						b.Is += " " + map[int32]string{0: "0", 3: "3", 137: "137"}[b.Code]
					}
					out = append(out, b.Is)
				}
				return out
			}
			if diff := cmp.Diff([][]string{tt.init, tt.regular}, [][]string{is(st.InitContainerStatuses), is(st.ContainerStatuses)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTerminatePod(t *testing.T) {
	for _, tt := range []struct {
		phase, want v1.PodPhase
	}{
		{v1.PodPending, v1.PodFailed},
		{v1.PodRunning, v1.PodFailed},
		{v1.PodSucceeded, v1.PodSucceeded},
		{v1.PodUnknown, v1.PodFailed},
	} {
		t.Run(string(tt.phase), func(t *testing.T) {
			w := newWorld()
			w.TerminatePod(newPod(apiPhase(tt.phase)))
			if e := w.pods["u1"]; len(w.pods) != 1 || e.status.Phase != tt.want || !e.finished {
				t.Errorf("%+v", e)
			}
		})
	}
}
