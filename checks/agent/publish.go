package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// The conditions of the node that are kdiag's, in the order in which conditionsOf returns them.
const (
	problemType = "KdiagProblem" // its reason is the code of the root
	repairType  = "KdiagRepair"  // its reason is the action that ends the root
)

const (
	manager = "kdiag" // of the fields of the conditions; component of the events
	// heartbeat is how long conditions that do not change go without a new lastHeartbeatTime: that of the kubelet
	// (nodeStatusReportFrequency) and of node-problem-detector (--k8s-exporter-heartbeat-period).
	heartbeat = 5 * time.Minute
	// rewording is how long a new message alone waits. Most have figures, which change with each report.
	rewording = time.Minute
	// maxEvents is how many events are kept for an API server that is away, of about 1 KB each. A cause that comes and
	// goes each hour makes three an hour, so this is two weeks.
	maxEvents   = 1000
	maxMessage  = 1024             // bytes; the API server's limit for events of events.k8s.io
	callTimeout = 10 * time.Second // of one request
	logAgain    = 30 * time.Minute // between log lines about a lasting failure
)

// retry is how long to wait after failures. Each pause is up to half as long again: 5,000 nodes do not return to a
// server at once.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 2 * time.Minute}

// PublishOptions are where to publish. All but Kubeconfig are needed.
type PublishOptions struct {
	Kubeconfig string // empty: the service account of the pod
	NodeName   string
	Log        func(problem string)
}

// A Publisher keeps the conditions KdiagProblem and KdiagRepair of a node up to date, and makes events of transitions.
type Publisher struct {
	opts   PublishOptions
	client *apiserver.Client
	wakes  [2]chan struct{}   // of the loops of Run
	sent   []v1.NodeCondition // the server's; nil until it was asked

	mu      sync.Mutex
	want    []v1.NodeCondition // nil before the first report
	active  map[string]bool    // codes of critical causes that have no end yet
	queue   []*v1.Event        // the oldest first
	dropped int                // of the queue, since the last event was delivered
}

// NewPublisher returns a publisher, which has asked nothing yet. The error is of the kubeconfig.
func NewPublisher(opts PublishOptions) (*Publisher, error) {
	cfg, err := rest.InClusterConfig() // client-go reads the token again each minute
	if opts.Kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", opts.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	cfg.UserAgent, cfg.WarningHandler = manager, rest.NoWarnings{}
	client, err := apiserver.New(cfg, apiserver.Limits{}) // client-go's: 5 events a second
	return &Publisher{
		opts: opts, client: client, active: map[string]bool{},
		wakes: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
	}, err
}

// Publish queues the state of the node and its changes. It does not block.
func (p *Publisher) Publish(r *checks.Report, changed []checks.Transition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range changed {
		if t.To == checks.CauseClear {
			delete(p.active, t.Cause)
		} else if t.Severity == checks.Critical {
			p.active[t.Cause] = true
		}
		p.queue = append(p.queue, eventOf(p.opts.NodeName, t, r))
	}
	over := max(0, len(p.queue)-maxEvents)
	p.queue, p.dropped = slices.Delete(p.queue, 0, over), p.dropped+over
	p.want = p.next(r, changed)
	for _, wake := range p.wakes {
		select {
		case wake <- struct{}{}:
		default: // is woken already
		}
	}
}

// next returns the conditions after a report. A report without a cause does not end them before its transition, and
// while a cause lasts its action does not become a lesser one: a controller may be at work on it.
func (p *Publisher) next(r *checks.Report, changed []checks.Transition) []v1.NodeCondition {
	for _, c := range r.Causes {
		if c.Severity != checks.Critical {
			delete(p.active, c.Code)
		}
	}
	all := conditionsOf(r)
	if p.want == nil {
		p.want = make([]v1.NodeCondition, len(all))
	}
	held := all[0].Status == v1.ConditionFalse && p.want[0].Status == v1.ConditionTrue && len(p.active) > 0
	lasts := p.want[0].Reason == all[0].Reason
	for i := range all {
		c, last := &all[i], p.want[i]
		less := c.Type == repairType && lasts && actionRank(c.Reason) < actionRank(last.Reason)
		if held || less {
			c.Status, c.Reason, c.Message = last.Status, last.Reason, last.Message
		}
		c.LastTransitionTime = last.LastTransitionTime
		if c.Status != last.Status {
			c.LastTransitionTime = metav1.NewTime(since(c.Status, r, changed))
		}
	}
	return all
}

// actionRank is the place of an action among all, -1 for none.
func actionRank(reason string) int { return slices.Index(checks.Actions(), checks.Action(reason)) }

// Run delivers the queue until ctx ends. While the API server is away it tries again, and then delivers all in
// order, with the times at which they happened.
func (p *Publisher) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { p.repeat(ctx, "publishing the node condition", p.wakes[0], p.patch) })
	loops.Go(func() { p.repeat(ctx, "publishing events", p.wakes[1], p.create) })
	loops.Wait()
}

// repeat delivers when it is woken, until there is no more to do. After a failure it waits.
func (p *Publisher) repeat(
	ctx context.Context, what string, wake <-chan struct{}, deliver func(context.Context) (more bool, err error),
) {
	var logged time.Time // zero while it works
	var reason metav1.StatusReason
	delay := retry
	for more := false; ctx.Err() == nil; {
		if !more {
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		left, err := deliver(call)
		cancel()
		if more = left || err != nil; err == nil {
			if !logged.IsZero() {
				p.opts.Log(what + " works again")
			}
			logged, delay = time.Time{}, retry
			continue
		}
		if is := apierrors.ReasonForError(err); ctx.Err() == nil && (is != reason || time.Since(logged) >= logAgain) {
			p.opts.Log(what + ": " + err.Error())
			reason, logged = is, time.Now()
		}
		pause := delay.Step()
		if apierrors.IsForbidden(err) && pause >= retry.Cap { // as at first after the server's start
			pause = heartbeat
		}
		seconds, _ := apierrors.SuggestsClientDelay(err) // Retry-After
		pause = max(pause, wait.Jitter(min(time.Duration(seconds)*time.Second, heartbeat), retry.Jitter))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// patch sends the conditions to the server, unless the server has them already, or such as differ little.
func (p *Publisher) patch(ctx context.Context) (more bool, err error) {
	if p.sent == nil {
		if err := p.resume(ctx); err != nil {
			return false, err
		}
	}
	p.mu.Lock()
	want := slices.Clone(p.want)
	p.mu.Unlock()
	age := want[0].LastHeartbeatTime.Sub(p.sent[0].LastHeartbeatTime.Time).Abs() // the clock may have been set back
	same := slices.EqualFunc(want, p.sent, func(want, sent v1.NodeCondition) bool {
		return want.Status == sent.Status && want.Reason == sent.Reason &&
			(want.Message == sent.Message || age < rewording)
	})
	if same && age < wait.Jitter(heartbeat, 0.2) { // nodes that booted together do not stay together
		return false, nil
	}
	// Nothing else of the node is named, so no other manager loses more than these conditions.
	fields, _ := json.Marshal(map[string]any{ // nothing that JSON lacks
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]string{"name": p.opts.NodeName},
		"status": map[string]any{"conditions": want},
	})
	if err = p.client.ApplyNodeStatus(ctx, p.opts.NodeName, manager, fields); err == nil {
		p.sent = want
	}
	return false, err
}

// resume reads the conditions that an earlier agent published. An unchanged status keeps the time of its transition.
func (p *Publisher) resume(ctx context.Context) error {
	node, err := p.client.NodeByPatch(ctx, p.opts.NodeName)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = make([]v1.NodeCondition, len(p.want))
	for i := range p.want {
		want := &p.want[i]
		if j := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == want.Type
		}); j >= 0 {
			p.sent[i] = node.Status.Conditions[j]
		}
		if p.sent[i].Status == want.Status {
			want.LastTransitionTime = p.sent[i].LastTransitionTime
		}
	}
	return nil
}

// create brings the oldest event to the server. One that exists was created by a request without an answer, or by an
// agent before this one.
func (p *Publisher) create(ctx context.Context) (more bool, err error) {
	p.mu.Lock()
	oldest, dropped := slices.Clone(p.queue[:min(1, len(p.queue))]), p.dropped
	p.mu.Unlock()
	if len(oldest) == 0 {
		return false, nil
	}
	err = p.client.CreateEvent(ctx, oldest[0])
	switch refused := apierrors.IsInvalid(err) || apierrors.IsBadRequest(err); {
	case err != nil && !refused && !apierrors.IsAlreadyExists(err):
		return false, err
	case refused:
		p.opts.Log("event dropped: " + err.Error())
	case dropped > 0:
		p.opts.Log(fmt.Sprintf("%d events dropped: the API server was away for too long", dropped))
	}
	p.mu.Lock()
	p.queue, p.dropped = slices.DeleteFunc(p.queue, func(e *v1.Event) bool { return e == oldest[0] }), p.dropped-dropped
	p.mu.Unlock()
	return true, nil
}

// conditionsOf returns the conditions of a node by one report, without the times of their transitions.
func conditionsOf(r *checks.Report) []v1.NodeCondition {
	heard := metav1.NewTime(r.GeneratedAt)
	problem := v1.NodeCondition{
		Type: problemType, Status: v1.ConditionUnknown, Reason: "CouldNotTell", Message: "no cause found",
		LastHeartbeatTime: heard,
	}
	repair := v1.NodeCondition{
		Type: repairType, Status: v1.ConditionFalse, Reason: string(checks.ActionNone),
		Message: "no critical cause found", LastHeartbeatTime: heard,
	}
	switch {
	case slices.ContainsFunc(r.Causes, func(c checks.Cause) bool { return c.Severity == checks.Critical }):
		root := r.Causes[0]
		problem.Status, problem.Reason, problem.Message = v1.ConditionTrue, root.Code, root.Code+": "+root.Summary
		repair.Status, repair.Reason = v1.ConditionTrue, string(root.Action)
		repair.Message = root.Code + ": " + root.ActionWhy + ". " + root.Summary
	case r.Status == checks.Healthy || r.Status == checks.Degraded:
		problem.Status, problem.Reason, problem.Message = v1.ConditionFalse, "NoProblemFound", repair.Message
	case len(r.Problems) > 0:
		problem.Message = r.Problems[0]
	}
	problem.Message, repair.Message = cut(problem.Message), cut(repair.Message)
	return []v1.NodeCondition{problem, repair}
}

// since returns when a status began: with the first critical cause, with the end of the last one, else with the report.
func since(status v1.ConditionStatus, r *checks.Report, changed []checks.Transition) time.Time {
	at := r.GeneratedAt
	for _, t := range changed {
		ended := t.To == checks.CauseClear
		switch {
		case t.Severity != checks.Critical:
		case status == v1.ConditionTrue && !ended && t.At.Before(at), status == v1.ConditionFalse && ended:
			at = t.At
		}
	}
	return at
}

// eventOf returns the event of a transition, with the action of a critical cause that began. Its name follows from the
// transition alone, so the API server refuses to have it twice. kubectl describe node looks for events with the node's
// UID and for those with its name instead (before 1.21 only for these), in all namespaces, and with
// involvedObject.namespace empty; such an event can only be in the namespace default. kubectl events --for wants the
// apiVersion.
func eventOf(node string, t checks.Transition, r *checks.Report) *v1.Event {
	id := fnv.New64a()
	_, _ = fmt.Fprintf(id, "%q", []string{t.Cause, t.Subject, t.From, t.To, t.At.UTC().Format(time.RFC3339Nano)})
	at := metav1.NewTime(t.At)
	e := &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", node, id.Sum64()), Namespace: "default"},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
		Source:         v1.EventSource{Component: manager, Host: node}, ReportingController: manager,
		ReportingInstance: node, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Type: v1.EventTypeWarning, Reason: t.Cause, Message: cut(t.To + ": " + t.Summary),
	}
	switch t.To {
	case checks.CauseClear:
		e.Type, e.Message = v1.EventTypeNormal, cut("gone: "+t.Summary)
	case t.From:
		e.Message = cut("critical now: " + t.Summary)
	}
	i := slices.IndexFunc(r.Causes, func(c checks.Cause) bool { return c.Code == t.Cause })
	if i >= 0 && t.To != checks.CauseClear && t.Severity == checks.Critical {
		e.Message = cut(e.Message + "; action: " + string(r.Causes[i].Action))
	}
	return e
}

// cut shortens a message to maxMessage bytes, between two characters.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-len("...")], "") + "..."
}
