package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

const (
	checkTimeout = 5 * time.Second
	clockAhead   = 2 * time.Second
	shown        = 3 // names, where there are more
)

// Check looks for faults of the cluster that show on its nodes.
func (c *Cluster) Check(ctx context.Context, s *Snapshot) []checks.Result {
	all := []struct {
		id   string
		look func(context.Context, *Snapshot) checks.Result
	}{
		{"cluster.metrics", c.checkMetrics},
		{"cluster.skew", c.checkSkew},
		{"cluster.leases", checkLeases},
		{"cluster.webhooks", c.checkWebhooks},
		{"cluster.clocks", checkClocks},
	}
	out := make([]checks.Result, len(all))
	var done sync.WaitGroup
	for i, check := range all {
		done.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			out[i] = check.look(ctx, s)
			out[i].ID = check.id
		})
	}
	done.Wait()
	return out
}

func result(status checks.Status, format string, args ...any) checks.Result {
	return checks.Result{Status: status, Summary: fmt.Sprintf(format, args...)}
}

// some lists the first few names.
func some(names []string) string {
	if len(names) <= shown {
		return units.List(names)
	}
	return strings.Join(names[:shown], ", ") + " and " + units.Number(len(names)-shown) + " more"
}

// get asks for JSON, and decodes what of it the type of into has.
func (c *Cluster) get(ctx context.Context, path string, query map[string]string, into any) error {
	r := c.core.Get().AbsPath(path).SetHeader("Accept", "application/json").MaxRetries(0)
	for name, value := range query {
		r.Param(name, value)
	}
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil {
		return err
	}
	body, err := answer.Raw()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

// A serviceRef names a Service, as webhooks and APIServices do.
type serviceRef struct{ Namespace, Name string }

func (r serviceRef) String() string { return "Service " + r.Namespace + "/" + r.Name }

// unserved returns why a Service has no ready endpoint; nothing where it has one.
func (c *Cluster) unserved(ctx context.Context, ref serviceRef) (string, error) {
	var service v1.Service
	in := "/api/v1/namespaces/" + ref.Namespace
	if err := c.get(ctx, in+"/services/"+ref.Name, nil, &service); apierrors.IsNotFound(err) {
		return ref.String() + " does not exist", nil
	} else if err != nil {
		return "", err
	}
	var endpoints struct {
		Items []struct {
			Endpoints []struct{ Conditions struct{ Ready *bool } }
		}
	}
	err := c.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+ref.Namespace+"/endpointslices",
		map[string]string{"labelSelector": "kubernetes.io/service-name=" + ref.Name}, &endpoints)
	if err != nil || service.Spec.Type == v1.ServiceTypeExternalName {
		return "", err
	}
	for _, slice := range endpoints.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready { // absent is to be taken for ready
				return "", nil
			}
		}
	}
	why := ref.String() + " has no ready endpoint"
	if len(service.Spec.Selector) == 0 {
		return why, nil
	}
	var pods v1.PodList
	err = c.get(ctx, in+"/pods", map[string]string{
		"labelSelector": labels.SelectorFromSet(service.Spec.Selector).String(), "limit": "10",
	}, &pods)
	switch {
	case err != nil:
		return why + " (its pods cannot be listed: " + err.Error() + ")", nil
	case len(pods.Items) == 0:
		return why + ", and no pod has its labels", nil
	}
	for i := range pods.Items {
		why += podState(&pods.Items[i])
	}
	return why, nil
}

// podState returns what a pod waits for, to be added to a sentence.
func podState(p *v1.Pod) string {
	state, node := string(p.Status.Phase), cmp.Or(p.Spec.NodeName, "no node")
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			state = w.Reason
		} else if !c.Ready && state == string(v1.PodRunning) {
			state = "not ready"
		}
	}
	return "; pod " + p.Name + " on " + node + " is " + state
}

// checkMetrics looks at metrics-server along the way of a request: APIService, Service, endpoints, pods.
func (c *Cluster) checkMetrics(ctx context.Context, _ *Snapshot) checks.Result {
	const name = "v1beta1.metrics.k8s.io"
	var api struct {
		Spec   struct{ Service *serviceRef }
		Status struct{ Conditions []metav1.Condition }
	}
	err := c.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+name, nil, &api)
	if apierrors.IsNotFound(err) {
		return result(checks.StatusSkipped, "metrics-server is not installed: there is no APIService %s", name)
	} else if err != nil {
		return result(checks.StatusUnknown, "the APIService %s cannot be read: %v", name, err)
	}
	var metrics struct{ Items []struct{} }
	start := time.Now()
	err = c.get(ctx, "/apis/metrics.k8s.io/v1beta1/nodes", map[string]string{"limit": "1"}, &metrics)
	took := time.Since(start)
	var why []string
	for _, a := range api.Status.Conditions {
		if a.Type == "Available" && a.Status != metav1.ConditionTrue {
			why = append(why, fmt.Sprintf("APIService %s is not available: %s: %s", name, a.Reason, a.Message))
		}
	}
	forbidden := apierrors.IsForbidden(err)
	if err != nil && !forbidden {
		why = append(why, fmt.Sprintf("a request fails after %s: %v", units.Duration(took), err))
	}
	if api.Spec.Service != nil && len(why) > 0 {
		trouble, err := c.unserved(ctx, *api.Spec.Service)
		if err != nil {
			trouble = fmt.Sprintf("%s cannot be read: %v", api.Spec.Service, err)
		}
		why = append(why, trouble)
	}
	r := result(checks.StatusOK, "metrics-server answers in %s", units.Duration(took))
	switch why = slices.DeleteFunc(why, func(s string) bool { return s == "" }); {
	case len(why) > 0:
		r = result(checks.StatusCritical, "%s", strings.Join(why, "; "))
	case forbidden:
		r = result(checks.StatusUnknown, "the APIService %s is available; a request is forbidden: %v", name, err)
	case len(metrics.Items) == 0:
		r = result(checks.StatusWarning, "metrics-server answers in %s, and has metrics of no node", units.Duration(took))
	}
	r.DurationSeconds = new(took.Seconds())
	return r
}

// checkSkew holds the kubelets against the API server: none may be newer, or older by more than 3 minor versions (2
// before 1.28).
func (c *Cluster) checkSkew(ctx context.Context, s *Snapshot) checks.Result {
	var info struct{ Major, Minor string }
	err := c.get(ctx, "/version", nil, &info)
	server, parseErr := version.ParseGeneric(info.Major + "." + strings.TrimSuffix(info.Minor, "+"))
	if err = cmp.Or(err, parseErr); err != nil {
		return result(checks.StatusUnknown, "the API server's version cannot be read: %v", err)
	}
	allowed := uint(3)
	if server.Minor() < 28 {
		allowed = 2
	}
	nodes := map[string][]string{} // by version
	for _, n := range s.Nodes {
		nodes[n.Info.KubeletVersion] = append(nodes[n.Info.KubeletVersion], n.Name)
	}
	status, all, bad := checks.StatusOK, []string(nil), []string(nil)
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		count := units.Count(len(nodes[v]), "node")
		all = append(all, fmt.Sprintf("%s on %s", v, count))
		kubelet, err := version.ParseGeneric(v)
		switch found := v + " on " + count + " (" + some(nodes[v]) + ")"; {
		case err != nil: // a node that no kubelet has reported yet has no version
		case kubelet.Major() > server.Major(), kubelet.Major() == server.Major() && kubelet.Minor() > server.Minor():
			status, bad = checks.StatusCritical, append(bad, found+" is newer")
		case kubelet.Major() == server.Major() && kubelet.Minor()+allowed < server.Minor():
			if bad = append(bad, found+" is too old"); status == checks.StatusOK {
				status = checks.StatusWarning
			}
		}
	}
	if len(bad) > 0 {
		return result(status, "the API server is %s, which supports its own and the %d minor versions before: kubelet %s",
			server, allowed, strings.Join(bad, "; "))
	}
	return result(status, "the API server is %s; kubelets: %s", server, units.List(all))
}

// checkLeases compares the two heartbeats of a kubelet. The lease is renewed whatever state the runtime is in.
func checkLeases(_ context.Context, s *Snapshot) checks.Result {
	var alive, unposted, late []string
	leases := 0
	for _, n := range s.Nodes {
		if n.Renewed.IsZero() {
			continue
		}
		leases++
		fresh := s.At.Sub(n.Renewed) < leaseAlive
		switch status := n.Condition(v1.NodeReady).Status; {
		case fresh && status == v1.ConditionFalse:
			alive = append(alive, n.Name)
		case fresh && status == v1.ConditionUnknown:
			unposted = append(unposted, n.Name)
		case !fresh && status == v1.ConditionTrue:
			late = append(late, n.Name)
		}
	}
	if leases == 0 {
		return result(checks.StatusUnknown, "no lease of a node was read")
	}
	status, found := checks.StatusOK, []string(nil)
	for _, f := range []struct {
		status checks.Status
		nodes  []string
		text   string
	}{
		{checks.StatusWarning, late, "Ready, and the lease is older than " + units.Duration(leaseAlive) +
			": the kubelet has stopped or cannot reach the API server"},
		{checks.StatusCritical, unposted, "Unknown, and the lease is renewed: the kubelet runs, and posts no status"},
		{checks.StatusCritical, alive, "not Ready, and the lease is renewed: the kubelet runs, and its runtime, PLEG or " +
			"network is at fault"},
	} {
		if len(f.nodes) > 0 {
			status = f.status
			found = append(found, fmt.Sprintf("%s (%s): %s", units.Count(len(f.nodes), "node"), some(f.nodes), f.text))
		}
	}
	if len(found) == 0 {
		return result(status, "leases and Ready agree on %s", units.Count(leases, "node"))
	}
	slices.Reverse(found) // the worst first
	return result(status, "%s", strings.Join(found, "; "))
}

// checkClocks looks for heartbeats of the future. A clock that is behind cannot be told from a heartbeat that is late.
// The time in Ready stands in where no lease could be read: with leases, nodes may have been read later than s.At.
func checkClocks(_ context.Context, s *Snapshot) checks.Result {
	leases := slices.ContainsFunc(s.Nodes, func(n Node) bool { return !n.Renewed.IsZero() })
	ahead := func(n Node) time.Duration {
		if leases {
			return n.Renewed.Sub(s.At)
		}
		return n.Condition(v1.NodeReady).LastHeartbeatTime.Sub(s.At)
	}
	found := slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool { return ahead(n) <= clockAhead })
	if len(found) == 0 {
		return result(checks.StatusOK, "no heartbeat is ahead of the API server's clock")
	}
	slices.SortStableFunc(found, func(a, b Node) int { return cmp.Compare(ahead(b), ahead(a)) })
	names := make([]string, len(found))
	for i, n := range found {
		names[i] = n.Name + " by " + units.Duration(ahead(n))
	}
	return result(checks.StatusWarning, "the clock of %s is ahead of the API server's: %s",
		units.Count(len(found), "node"), some(names))
}
