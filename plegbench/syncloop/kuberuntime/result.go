package kuberuntime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
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

// imagePullBackOff is the one reason of package images that is treated apart: it is logged less.
const imagePullBackOff = "ImagePullBackOff"

// An ActionResult is how one action ended.
type ActionResult struct {
	Action  Action
	Target  string // a container's name, or a pod
	Err     error  // nil, or the reason: one of those above or of package images
	Message string // explains Err to a person
}

// A Result is what SyncPod or KillPod did.
type Result struct {
	Actions []ActionResult
	// Err sums up all that failed, in the kubelet's words. If it is due to a back-off it has a method BackOffUntil.
	Err error
}

// Changed reports whether anything was attempted.
func (r Result) Changed() bool { return len(r.Actions) > 0 }

func (r *Result) add(action Action, target string, reason error, message string) {
	r.Actions = append(r.Actions, ActionResult{Action: action, Target: target, Err: reason, Message: message})
}

// finish sets Err from the actions and from what failed outside of them, which may be nil.
func (r *Result) finish(failed error) {
	var all syncErrors
	if failed != nil {
		all = append(all, fmt.Errorf("failed to SyncPod: %w", failed))
	}
	var until time.Time
	for _, a := range r.Actions {
		if a.Err == nil {
			continue
		}
		all = append(all, fmt.Errorf("failed to %q for %q with %w: %q", a.Action, a.Target, a.Err, a.Message))
		var b interface{ BackOffUntil() time.Time }
		if errors.As(a.Err, &b) && (until.IsZero() || b.BackOffUntil().Before(until)) {
			until = b.BackOffUntil()
		}
	}
	switch {
	case len(all) == 0:
		r.Err = nil
	case until.IsZero():
		r.Err = all
	default:
		r.Err = backOffError{all, until}
	}
}

// syncErrors print as the kubelet's aggregates do: alone, or [a, b] without repetitions.
type syncErrors []error

func (e syncErrors) Error() string {
	var texts []string
	for _, err := range e {
		if s := err.Error(); !slices.Contains(texts, s) {
			texts = append(texts, s)
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (e syncErrors) Unwrap() []error { return e }

// A backOffError says until when there is no point in trying again.
type backOffError struct {
	error
	until time.Time
}

func (e backOffError) Unwrap() error           { return e.error }
func (e backOffError) BackOffUntil() time.Time { return e.until }
