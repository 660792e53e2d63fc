package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kdiag/kdiag/checks"
)

const (
	// chunk is kubectl's. Lists have no resource version: with resourceVersion=0 the server ignores the limit, and has
	// the whole answer in memory.
	chunk          = 500
	eventsOf       = time.Hour
	maxEvents      = 5              // of a node
	agentCondition = "KdiagProblem" // that kdiag agent publishes
)

// Options are which nodes are read, and what besides them, their leases and events.
type Options struct {
	Selector string // of labels; empty: all nodes
	Pods     bool
}

// CheckSelector returns an error for a malformed label selector.
func CheckSelector(selector string) error {
	_, err := labels.Parse(selector)
	return err
}

// Read reads the nodes, their leases, and what opts asks for, side by side. The error is of the nodes; what else could
// not be read is a problem of the snapshot.
func (c *Cluster) Read(ctx context.Context, opts Options) (*Snapshot, error) {
	r := &reading{cluster: c, opts: opts, problems: map[string]string{}}
	start := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for _, p := range r.parts() {
		all.Go(func() error {
			_ = r.refresh(ctx, p) // a problem of the snapshot
			return nil
		})
	}
	all.Go(func() error { return r.refresh(ctx, r.nodesPart()) })
	if err := all.Wait(); err != nil {
		return nil, err
	}
	s := r.snapshot()
	s.Cost = c.meter.cost(time.Since(start).Seconds())
	return s, nil
}

// A reading is what has been read so far, by the names of nodes.
type reading struct {
	cluster *Cluster
	opts    Options

	mu       sync.Mutex
	at       time.Time // when the leases had been read, by the server's clock
	version  string    // of the nodes
	nodes    map[string]Node
	leases   map[string]time.Time // nil while they could not be read
	pods     map[string]*podsOf
	events   map[string][]checks.FleetNodeEvent
	problems map[string]string // by what could not be read
	fresh    bool              // since the last snapshot, there is something new
}

// A part is one list of a cluster's objects. read returns how to add it to the fleet.
type part struct {
	name  string
	every time.Duration // between two lists, while the cluster is watched
	read  func(ctx context.Context) (keep func(), err error)
}

func (r *reading) nodesPart() part { return part{"nodes", 0, r.readNodes} }

// parts are those besides the nodes. Leases are not watched: 5,000 are renewed 500 times a second, and a list in
// between costs the server less than these events.
func (r *reading) parts() []part {
	parts := []part{{"leases", 15 * time.Second, r.readLeases}, {"events", time.Minute, r.readEvents}}
	if r.opts.Pods {
		parts = append(parts, part{"pods", 5 * time.Minute, r.readPods})
	}
	return parts
}

// refresh reads a part again. What was read of it before stays where that fails.
func (r *reading) refresh(ctx context.Context, p part) error {
	keep, err := p.read(ctx)
	if err != nil {
		err = fmt.Errorf("listing %s: %w", p.name, err)
	} else {
		r.mu.Lock()
		keep()
		r.fresh = true
		r.mu.Unlock()
	}
	r.report(p.name, err)
	return err
}

// report sets or ends a problem.
func (r *reading) report(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, had := r.problems[what]; err == nil {
		delete(r.problems, what)
		r.fresh = r.fresh || had
		return
	}
	r.problems[what], r.fresh = err.Error(), true
}

// list lists what is at a path in chunks, and calls take with each chunk. It returns the version of the first. A list
// that takes minutes may expire; the server then offers to go on with what it has now, and one such offer is taken.
func list[T any, P interface {
	*T
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, c *Cluster, path string, opts metav1.ListOptions, take func(P)) (version string, err error) {
	opts.Limit = chunk
	for expired := false; ; {
		page := P(new(T))
		err := c.core.Get().AbsPath(path).VersionedParams(&opts, c.params).Do(ctx).Into(page)
		if err == nil {
			take(page)
		}
		opts.Continue = page.GetContinue()
		if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &status) && !expired {
			if opts.Continue = status.Status().Continue; opts.Continue != "" {
				expired, err = true, nil
			}
		} else if version == "" {
			version = page.GetResourceVersion()
		}
		if err != nil || opts.Continue == "" {
			return version, err
		}
	}
}

func (r *reading) readNodes(ctx context.Context) (func(), error) {
	nodes := map[string]Node{}
	opts := metav1.ListOptions{LabelSelector: r.opts.Selector}
	version, err := list(ctx, r.cluster, "/api/v1/nodes", opts, func(page *v1.NodeList) {
		for i := range page.Items {
			nodes[page.Items[i].Name] = nodeOf(&page.Items[i])
		}
	})
	return func() { r.nodes, r.version = nodes, version }, err
}

// nodeOf keeps what is needed of a node. Most of the rest are the names of its images.
func nodeOf(n *v1.Node) Node {
	out := Node{
		Name: n.Name, Created: n.CreationTimestamp.Time, Labels: n.Labels, Unschedulable: n.Spec.Unschedulable,
		Addresses: n.Status.Addresses, Info: n.Status.NodeInfo, Conditions: n.Status.Conditions,
	}
	if len(n.OwnerReferences) > 0 {
		out.Owner = n.OwnerReferences[0].Kind + "/" + n.OwnerReferences[0].Name
	}
	return out
}

func (r *reading) readLeases(ctx context.Context) (func(), error) {
	leases := map[string]time.Time{}
	const path = "/apis/coordination.k8s.io/v1/namespaces/" + v1.NamespaceNodeLease + "/leases"
	_, err := list(ctx, r.cluster, path, metav1.ListOptions{}, func(page *coordinationv1.LeaseList) {
		for _, l := range page.Items {
			if l.Spec.RenewTime != nil {
				leases[l.Name] = l.Spec.RenewTime.Time
			}
		}
	})
	at := r.cluster.meter.now()
	return func() { r.leases, r.at = leases, at }, err
}

func (r *reading) readEvents(ctx context.Context) (func(), error) {
	events := map[string][]checks.FleetNodeEvent{}
	opts := metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,type=" + v1.EventTypeWarning}
	_, err := list(ctx, r.cluster, "/api/v1/events", opts, func(page *v1.EventList) {
		for i := range page.Items {
			e, node := eventOf(&page.Items[i]), page.Items[i].InvolvedObject.Name
			if r.cluster.meter.now().Sub(e.At) > eventsOf {
				continue
			}
			last := append(events[node], e)
			slices.SortStableFunc(last, func(a, b checks.FleetNodeEvent) int { return b.At.Compare(a.At) })
			events[node] = last[:min(len(last), maxEvents)]
		}
	})
	return func() { r.events = events }, err
}

// eventOf returns an event with the time at which it was last seen, which one of several fields has.
func eventOf(e *v1.Event) checks.FleetNodeEvent {
	out := checks.FleetNodeEvent{
		At:     cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time),
		Reason: e.Reason, Message: strings.TrimSpace(e.Message), Count: max(1, int(e.Count)),
	}
	if e.Series != nil {
		out.At, out.Count = e.Series.LastObservedTime.Time, max(out.Count, int(e.Series.Count))
	}
	return out
}

// podsOf are the pods on a node.
type podsOf struct {
	count   int
	daemons []string // namespace/name of DaemonSets, sorted
}

// unfinished are the pods that kubectl describe node counts.
const unfinished = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// readPods counts the pods of each node. It lists whole pods, because metadata alone lacks the name of the node.
func (r *reading) readPods(ctx context.Context) (func(), error) {
	pods := map[string]*podsOf{}
	_, err := list(ctx, r.cluster, "/api/v1/pods", metav1.ListOptions{FieldSelector: unfinished}, func(page *v1.PodList) {
		for _, p := range page.Items {
			on := pods[p.Spec.NodeName]
			if on == nil {
				on = &podsOf{}
				pods[p.Spec.NodeName] = on
			}
			on.count++
			for _, owner := range p.OwnerReferences {
				if owner.Kind == "DaemonSet" {
					on.daemons = append(on.daemons, p.Namespace+"/"+owner.Name)
				}
			}
		}
	})
	for _, p := range pods {
		slices.Sort(p.daemons)
		p.daemons = slices.Compact(p.daemons)
	}
	return func() { r.pods = pods }, err
}

// snapshot returns what has been read. Nothing of it changes later.
func (r *reading) snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = false
	s := &Snapshot{At: r.at, Pods: r.pods != nil, Nodes: make([]Node, 0, len(r.nodes)), reading: r}
	if r.leases == nil {
		s.At = r.cluster.meter.now()
	}
	for name, n := range r.nodes {
		n.Renewed, n.Events, n.Pods, n.DaemonSets = r.leases[name], nil, 0, nil
		ready, issue := n.Condition(v1.NodeReady).Status, n.Condition(agentCondition).Status
		if ready != v1.ConditionTrue || issue == v1.ConditionTrue {
			n.Events = r.events[name]
		}
		if p := r.pods[name]; p != nil {
			n.Pods, n.DaemonSets = p.count, p.daemons
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, what := range slices.Sorted(maps.Keys(r.problems)) {
		s.Problems = append(s.Problems, r.problems[what])
	}
	return s
}

// Hint is what to do about an error of Read or Watch.
func Hint(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "kdiag fleet needs to list nodes and leases; docs/fleet.md has the ClusterRole"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials of this context: log in again, or try another --context"
	case apierrors.IsBadRequest(err):
		return "for example -l topology.kubernetes.io/zone=eu-west-1a"
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "wait longer with --timeout 2m; kubectl get --raw /readyz shows how the API server is"
	}
	return "kubectl get --raw /readyz shows whether the API server can be reached; --context NAME means another one"
}
