package syncloop

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Step is one in the creation of a pod.
type Step struct {
	N          int           // from 1; 0 for a remark and for the summary, which is about the longest
	At         time.Duration // of its end, since a source had the pod
	Part, Text string        // package of the syncLoop, and its log line or call
	Took       time.Duration // by a call, or since the step before
}

// A Trace follows each creation of one pod until the pod is ready or has ended, by the log lines about it at any
// verbosity and the CRI calls for it.
type Trace struct {
	names  []string // namespace/name
	report func(Step)

	mu            sync.Mutex
	added         string // the line with which it began
	start         time.Time
	follows       bool
	last, longest Step
	logged        map[string]bool   // in each sync again
	ids           map[string]string // of the pod's sandboxes and containers; the latter have names
}

// NewTrace makes a Trace of the pod [namespace/]name. The name of a static pod may lack the node's. report gets the
// steps, one at a time.
func NewTrace(name, node string, report func(Step)) *Trace {
	if !strings.Contains(name, "/") {
		name = v1.NamespaceDefault + "/" + name
	}
	return &Trace{names: []string{name, name + "-" + strings.ToLower(node)}, report: report}
}

// patience is the time after which a Trace remarks on a missing pod or answer.
const patience = 10 * time.Second

// late reports that the pod has not appeared, and the pods that have.
func (t *Trace) late(pods []*v1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added != "" {
		return
	}
	seen := "none"
	for i, p := range pods {
		seen = ifElse(i > 0, seen+", ", "") + pod.Format(p)
	}
	t.report(Step{Text: fmt.Sprintf("no pod %s yet; pods seen: %s", t.names[0], seen)})
}

// add reports a step. took is of calls only. The lock is held.
func (t *Trace) add(part, text string, took time.Duration) {
	at := time.Since(t.start)
	gap := at - t.last.At
	if part != "cri" {
		took = gap
	}
	t.last = Step{t.last.N + 1, at, part, text, took}
	if most := max(took, gap); most > t.longest.Took {
		before := ifElse(most > 2*took, "the wait before ", "")
		t.longest = Step{Text: fmt.Sprintf("%s%d, %s", before, t.last.N, text), Took: most}
	}
	t.report(t.last)
}

// call takes each CRI call. ImageStatus names no pod.
func (t *Trace) call(req any) (ended func(resp any, err error)) {
	if t == nil {
		return nil
	}
	var sandbox *runtimeapi.PodSandboxConfig
	id, name, more := "", "", ""
	text := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", req), "*v1."), "Request")
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		sandbox = r.GetConfig()
	case *runtimeapi.PullImageRequest:
		sandbox, name = r.GetSandboxConfig(), r.GetImage().GetImage()
	case *runtimeapi.CreateContainerRequest:
		sandbox, name = r.GetSandboxConfig(), r.GetConfig().GetMetadata().GetName()
		more = " (hash " + r.GetConfig().GetAnnotations()[container.HashAnnotation] + ")"
	case *runtimeapi.ExecSyncRequest: // a probe has a timeout
		id, more = r.GetContainerId(), ifElse(r.GetTimeout() == 0, " (hook)", " (probe)")
	case interface{ GetContainerId() string }:
		id = r.GetContainerId()
	case interface{ GetPodSandboxId() string }:
		id = r.GetPodSandboxId()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ours := t.ids[id]
	of := sandbox.GetMetadata().GetNamespace() + "/" + sandbox.GetMetadata().GetName()
	if !t.follows || !ours && !slices.Contains(t.names, of) {
		return nil
	}
	text, start := strings.TrimSpace(text+" "+known+name)+more, time.Now()
	late := time.AfterFunc(patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.follows {
			t.report(Step{Text: fmt.Sprintf("%s has no answer after %v", text, patience)})
		}
	})
	return func(resp any, err error) {
		late.Stop()
		t.mu.Lock()
		defer t.mu.Unlock()
		switch r := resp.(type) {
		case *runtimeapi.CreateContainerResponse:
			t.ids[r.GetContainerId()] = name
		case *runtimeapi.RunPodSandboxResponse:
			t.ids[r.GetPodSandboxId()] = name
		}
		if t.follows {
			t.add("cri", text+ifElse(err != nil, " failed", ""), time.Since(start))
		}
	}
}

// A traceSink passes log lines to a Trace and to another sink.
type traceSink struct {
	logr.LogSink
	trace *Trace
	keys  []any // and values, of all lines
}

func (s traceSink) Enabled(int) bool { return true }

func (s traceSink) WithValues(kv ...any) logr.LogSink {
	return traceSink{s.LogSink.WithValues(kv...), s.trace, slices.Concat(s.keys, kv)}
}

func (s traceSink) Info(level int, msg string, kv ...any) {
	s.trace.line(msg, slices.Concat(s.keys, kv))
	if s.LogSink.Enabled(level) {
		s.LogSink.Info(level, msg, kv...)
	}
}

func (s traceSink) Error(err error, msg string, kv ...any) {
	s.trace.line(msg, slices.Concat(s.keys, kv, []any{"err", err}))
	s.LogSink.Error(err, msg, kv...)
}

const mostValue = 1000 // bytes; statuses are longer

// line takes a line of the log. That of a new status has the phase and whether the pod is ready.
func (t *Trace) line(msg string, kv []any) {
	text, ours, ready, phase := msg, false, false, v1.PodPhase("")
	for i := 0; i+1 < len(kv); i += 2 {
		switch kv[i] {
		case "pod", "pods":
			for name := range strings.FieldsSeq(strings.Trim(fmt.Sprint(kv[i+1]), "[]")) {
				ours = ours || slices.Contains(t.names, name)
			}
			continue
		case "podUID", "version":
			continue
		case "ready":
			ready, _ = kv[i+1].(bool)
		case "phase":
			phase, _ = kv[i+1].(v1.PodPhase)
		}
		if value := fmt.Sprintf("%+v", kv[i+1]); value != "" && len(value) < mostValue {
			text += fmt.Sprintf(" %v=%s", kv[i], value)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	mirror := t.added != "" && t.added != text && strings.HasSuffix(text, "="+pod.APIServerSource)
	if ours && strings.HasPrefix(msg, "SyncLoop ADD") && !mirror {
		t.added, t.start, t.follows, t.last, t.longest = text, time.Now(), true, Step{}, Step{}
		t.logged, t.ids = map[string]bool{}, map[string]string{}
	}
	if !ours || !t.follows || t.logged[text] || msg == "Ignoring same status for pod" {
		return
	}
	t.logged[text] = true
	_, file, _, _ := runtime.Caller(3) // of logr
	t.add(path.Base(path.Dir(file)), text, 0)
	if ready || pod.IsTerminal(phase) {
		t.follows, t.longest.At = false, t.last.At
		t.longest.Text = ifElse(ready, "Ready", string(phase)) + "; slowest step: " + t.longest.Text
		t.report(t.longest)
	}
}
