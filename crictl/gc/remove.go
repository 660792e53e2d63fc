package gc

import (
	"context"
	"fmt"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// A verdict is the result of one attempt to remove a candidate.
type verdict uint8

const (
	removed    verdict = iota // the runtime has confirmed it, and the audit file has it
	unrecorded                // removed, but the audit file lacks it
	changed                   // it is gone already, or another object now
	failed                    // an error, or no answer
)

// An outcome is the end of one attempt.
type outcome struct {
	job     *job
	verdict verdict
	why     string
	down    bool // the runtime could not be reached
	hung    bool // a call was not answered in time
	log     removedLog
}

// attempt checks a candidate again, removes it unless it has changed, then its log, and records that.
func (r *run) attempt(ctx context.Context, j *job) outcome {
	remove := r.removeContainer
	if j.of.Kind == KindSandbox {
		remove = r.removeSandbox
	}
	out := remove(ctx, j)
	out.job = j
	withLog := r.opts.Logs.Dir != "" && j.log != ""
	if out.verdict != removed || r.opts.Audit == nil && !withLog {
		return out
	}
	record := func(context.Context) (log removedLog, err error) {
		if withLog {
			log = r.opts.Logs.remove(j.of, j.log)
		}
		if r.opts.Audit != nil {
			err = r.opts.Audit.removed(j.of, log.files)
		}
		return log, err
	}
	// A disk that hangs must not hold up the end of the run.
	log, err := deadline.Run(ctx, "removing the log and writing the audit", record)
	switch {
	case err != nil && r.opts.Audit == nil:
		log.err = err
	case err != nil:
		out.verdict, out.why = unrecorded, err.Error()
	}
	out.log = log
	return out
}

func (r *run) removeContainer(ctx context.Context, j *job) outcome {
	st, call := r.client.ContainerStatus(ctx, j.of.ID)
	if !call.OK() {
		return j.unchecked(call)
	}
	if why := j.of.differs(st); why != "" {
		return outcome{verdict: changed, why: why}
	}
	j.log = st.LogPath
	return j.answered(r.client.RemoveContainer(ctx, j.of.ID))
}

// differs returns how a container differs from the candidate; empty if it does not. The time of its creation is not
// compared: CRI-O lists when it made the container's object, and has in the status when runc had made the container,
// seconds later on a loaded node (internal/oci/container.go); cri-dockerd lists whole seconds.
func (c *Candidate) differs(st *crictl.ContainerStatus) string {
	switch {
	case st.ID != c.ID || st.Pod.UID != c.PodUID || st.Name != c.Container || st.Attempt != c.Attempt:
		return "now another container with this id"
	case st.State != crictl.ContainerExited:
		return "now " + st.State.String()
	}
	return ""
}

func (r *run) removeSandbox(ctx context.Context, j *job) outcome {
	c := j.of
	st, call := r.client.PodSandboxStatus(ctx, c.ID)
	if !call.OK() {
		return j.unchecked(call)
	}
	switch {
	case st.ID != c.ID || st.Pod.UID != c.PodUID || st.Attempt != c.Attempt:
		return outcome{verdict: changed, why: "now another sandbox with this id"}
	case st.State == crictl.SandboxReady:
		return outcome{verdict: changed, why: "now ready"}
	}
	list := r.client.ListContainers(ctx, crictl.Filter{SandboxID: c.ID}, crictl.ModeUnary)
	if call := list.Calls[len(list.Calls)-1]; !call.OK() {
		return j.unchecked(call)
	}
	for i := range list.Containers {
		if list.Containers[i].SandboxID == c.ID {
			return outcome{verdict: changed, why: "has containers now"}
		}
	}
	// Stop first, so that CNI DEL runs. Like the kubelet, keep a sandbox that cannot be stopped.
	if call := r.client.StopPodSandbox(ctx, c.ID); !call.OK() && call.Code != crictl.NotFound {
		return j.unchecked(call)
	}
	return j.answered(r.client.RemovePodSandbox(ctx, c.ID))
}

// unchecked is the outcome of a failed call before the removal. A candidate that is not found after its removal was
// asked for has been removed by that.
func (j *job) unchecked(call crictl.Call) outcome {
	switch {
	case call.Code == crictl.NotFound && j.unsure:
		return outcome{verdict: removed}
	case call.Code == crictl.NotFound:
		return outcome{verdict: changed, why: "already gone"}
	}
	return failure(call)
}

// answered is the outcome of the call for a removal. A removal that is not answered may be done or not.
func (j *job) answered(call crictl.Call) outcome {
	if call.OK() || call.Code == crictl.NotFound {
		return outcome{verdict: removed}
	}
	j.unsure = call.Hung() || call.Code == crictl.Canceled || call.Code == crictl.Unavailable
	return failure(call)
}

func failure(call crictl.Call) outcome {
	return outcome{verdict: failed, why: describe(call), down: call.Code == crictl.Unavailable, hung: call.Hung()}
}

// describe returns a failed call as text.
func describe(call crictl.Call) string {
	return fmt.Sprintf("%s: %s: %s", call.Method, call.Code, call.Err)
}
