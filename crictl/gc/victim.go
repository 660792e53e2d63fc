package gc

import (
	"context"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A verdict is what became of one attempt to remove a victim.
type verdict uint8

const (
	removed    verdict = iota // the runtime has confirmed it
	vanished                  // it was gone before anybody here asked
	spared                    // it is no longer what was planned
	refused                   // the runtime will answer the same next time
	elsewhere                 // its log, which is to go too, is not where logs may be removed
	retryable                 // an error that may pass
	unanswered                // asked for and not answered: it may be gone or not
	untouched                 // the run was stopped before the runtime was asked
)

// An outcome is the end of one attempt.
type outcome struct {
	job     *job
	verdict verdict
	why     string
	down    bool   // the runtime could not be reached, which is not the victim's fault
	hung    bool   // a call was not answered in time
	logErr  string // of the container's log files
}

// A job is a victim on its way.
type job struct {
	victim *Victim
	tries  int                     // that count
	free   int                     // that do not: the runtime was down or the run paused
	due    time.Time               // of the next attempt
	begun  time.Time               // the attempt in flight, or the last one
	aside  bool                    // in flight and not counted by the pace
	asked  bool                    // its removal was asked for at least once
	status *crictl.ContainerStatus // then
	err    string                  // of the last attempt
}

// A remover removes single victims.
type remover struct {
	client   *crictl.Client
	logs     *Logs
	minAge   time.Duration
	stopping func() bool
}

// remove looks at a victim again and removes it if it is still what was planned.
func (r *remover) remove(ctx context.Context, j *job) outcome {
	if j.victim.Kind == KindSandbox {
		return r.sandbox(ctx, j)
	}
	return r.container(ctx, j)
}

func (r *remover) container(ctx context.Context, j *job) outcome {
	v := j.victim
	st, call := r.client.ContainerStatus(ctx, v.ID)
	if out, done := r.looked(j, call); done {
		return r.andLogs(ctx, out)
	}
	if why := r.changed(st, v); why != "" {
		return outcome{job: j, verdict: spared, why: why}
	}
	if r.logs != nil {
		if _, err := r.logs.parts(st); err != nil {
			return outcome{job: j, verdict: elsewhere, why: "not removed: " + err.Error()}
		}
	}
	if r.stopping() {
		return outcome{job: j, verdict: untouched}
	}
	j.asked, j.status = true, st
	return r.andLogs(ctx, r.asked(j, r.client.RemoveContainer(ctx, v.ID)))
}

// andLogs removes the logs of a container that was removed, now or by an earlier attempt that was not answered.
func (r *remover) andLogs(ctx context.Context, out outcome) outcome {
	if out.verdict != removed || r.logs == nil || out.job.status == nil {
		return out
	}
	if err := r.logs.remove(ctx, out.job.status); err != nil {
		out.logErr = err.Error()
	}
	return out
}

// changed says in what a container differs from what was planned; empty when in nothing.
func (r *remover) changed(st *crictl.ContainerStatus, v *Victim) string {
	now := time.Now()
	switch {
	case st.ID != v.ID:
		return "the runtime answered with another container: " + fmt.Sprintf("%.64q", st.ID)
	case st.State != crictl.ContainerExited:
		return "it is " + st.State.String() + " now"
	case !sameTime(v.CreatedAt, st.CreatedAt):
		return "it is another container of the same id: created at another time"
	case st.Pod.UID != v.PodUID || st.Name != v.Container:
		return "it is another container of the same id: of another pod or name"
	case st.FinishedAt.IsZero():
		return KeptEndUnknown
	case st.FinishedAt.After(now):
		return KeptClock
	case now.Sub(st.FinishedAt) < r.minAge:
		return KeptYoung
	}
	return ""
}

// sameTime compares the creation as a list gave it with that of a status. cri-dockerd lists whole seconds.
func sameTime(listed, status time.Time) bool {
	return listed.Equal(status) || listed.Nanosecond() == 0 && listed.Equal(status.Truncate(time.Second))
}

func (r *remover) sandbox(ctx context.Context, j *job) outcome {
	v := j.victim
	st, call := r.client.PodSandboxStatus(ctx, v.ID)
	if out, done := r.looked(j, call); done {
		return out
	}
	switch {
	case st.ID != v.ID || !sameTime(v.CreatedAt, st.CreatedAt) || st.Pod.UID != v.PodUID:
		return outcome{job: j, verdict: spared, why: "it is another sandbox of the same id"}
	case st.State == crictl.SandboxReady:
		return outcome{job: j, verdict: spared, why: "it is ready now"}
	}
	list := r.client.ListContainers(ctx, crictl.Filter{SandboxID: v.ID}, crictl.ModeUnary)
	last := list.Calls[len(list.Calls)-1]
	if !last.OK() {
		out, _ := r.looked(j, last)
		return out
	}
	for i := range list.Containers {
		if list.Containers[i].SandboxID == v.ID {
			return outcome{job: j, verdict: spared, why: "it holds containers"}
		}
	}
	if r.stopping() {
		return outcome{job: j, verdict: untouched}
	}
	// Stopped first, so that CNI DEL runs. A sandbox that cannot be stopped is not removed, as in the kubelet.
	if call := r.client.StopPodSandbox(ctx, v.ID); !call.OK() && call.Code != crictl.NotFound {
		out, _ := r.looked(j, call)
		return out
	}
	j.asked = true
	return r.asked(j, r.client.RemovePodSandbox(ctx, v.ID))
}

// looked weighs a call before the removal; done is false when it went well. A victim that is not found after its removal
// was asked for has been removed by that.
func (r *remover) looked(j *job, call crictl.Call) (out outcome, done bool) {
	switch {
	case call.OK():
		return outcome{}, false
	case call.Code == crictl.NotFound && j.asked:
		return outcome{job: j, verdict: removed}, true
	case call.Code == crictl.NotFound:
		return outcome{job: j, verdict: vanished, why: "gone already"}, true
	}
	return failure(j, retryable, call), true
}

// asked weighs the answer to a removal.
func (r *remover) asked(j *job, call crictl.Call) outcome {
	switch {
	case call.OK(), call.Code == crictl.NotFound:
		return outcome{job: j, verdict: removed}
	case call.Hung(), call.Code == crictl.Canceled, call.Code == crictl.Unavailable:
		return failure(j, unanswered, call)
	}
	return failure(j, retryable, call)
}

// failure is a call that went wrong. Some codes are the same next time.
func failure(j *job, v verdict, call crictl.Call) outcome {
	switch call.Code {
	case crictl.PermissionDenied, crictl.Unimplemented, "InvalidArgument", "Unauthenticated":
		v = refused
	}
	return outcome{
		job: j, verdict: v, why: call.Method + ": " + string(call.Code) + ": " + call.Err,
		down: call.Code == crictl.Unavailable, hung: v == unanswered || call.Hung(),
	}
}
