package kuberuntime

import (
	"errors"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// An Action is a step of SyncPod or KillPod under the name that the kubelet's errors have for it.
type Action string

// The actions.
const (
	ActionCreateSandbox  Action = "CreatePodSandbox"
	ActionKillSandbox    Action = "KillPodSandbox"
	ActionStartContainer Action = "StartContainer"
	ActionKillContainer  Action = "KillContainer"
)

// Reasons of failed actions. Those of StartContainer are shown as a container's waiting reason.
var (
	ErrCreateContainerConfig = errors.New("CreateContainerConfigError")
	ErrCreateContainer       = errors.New("CreateContainerError")
	ErrRunContainer          = errors.New("RunContainerError")
	ErrPostStartHook         = errors.New("PostStartHookError")
	ErrCrashLoopBackOff      = errors.New("CrashLoopBackOff")
	ErrCreatePodSandbox      = errors.New("CreatePodSandboxError")
	ErrKillPodSandbox        = errors.New("KillPodSandboxError")
	ErrKillContainer         = errors.New("KillContainerError")
)

// An ActionResult is how one action ended.
type ActionResult struct {
	Action  Action
	Target  string // a container's name, or a pod
	Err     error  // nil, or the reason: one of those above or of package images
	Message string // explains Err
}

// A Result is what SyncPod or KillPod did.
type Result struct {
	Actions []ActionResult
	Err     error     // the aggregate of all that failed, with the kubelet's text
	Until   time.Time // the end of the earliest back-off among the failures; zero if there is none
}

// Changed reports whether anything was attempted.
func (r Result) Changed() bool { return len(r.Actions) > 0 }

func (r *Result) add(action Action, target string, reason error, message string) {
	r.Actions = append(r.Actions, ActionResult{Action: action, Target: target, Err: reason, Message: message})
}

// finish sets Err from the actions and from failed, an error outside of them, which may be nil.
func (r *Result) finish(failed error) {
	var all []error
	if failed != nil {
		all = append(all, fmt.Errorf("failed to SyncPod: %w", failed))
	}
	for _, a := range r.Actions {
		if a.Err != nil {
			all = append(all, fmt.Errorf("failed to %q for %q with %w: %q", a.Action, a.Target, a.Err, a.Message))
		}
	}
	r.Err = nil
	if len(all) > 0 {
		r.Err = utilerrors.NewAggregate(all)
	}
}
