package fleet

import (
	"context"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks"
)

const agentCondition = "KdiagProblem" // that kdiag agent publishes

// Options are what to read.
type Options struct {
	Selector     string
	Pods, Events bool
}

// Read is a stand-in.
func (c *Cluster) Read(ctx context.Context, opts Options) (*Snapshot, error) {
	var nodes v1.NodeList
	q := c.core.Get().Resource("nodes")
	if opts.Selector != "" {
		q = q.Param("labelSelector", opts.Selector)
	}
	if err := q.Do(ctx).Into(&nodes); err != nil {
		return nil, err
	}
	s := &Snapshot{At: time.Now()}
	var leases coordinationv1.LeaseList
	err := c.leases.Get().Namespace("kube-node-lease").Resource("leases").Do(ctx).Into(&leases)
	if err != nil {
		s.Problems = append(s.Problems, "leases: "+err.Error())
	}
	renewed := map[string]time.Time{}
	for _, l := range leases.Items {
		if l.Spec.RenewTime != nil {
			renewed[l.Name] = l.Spec.RenewTime.Time
		}
	}
	for _, n := range nodes.Items {
		s.Nodes = append(s.Nodes, Node{
			Name: n.Name, Created: n.CreationTimestamp.Time, Labels: n.Labels, Unschedulable: n.Spec.Unschedulable,
			Info: n.Status.NodeInfo, Conditions: n.Status.Conditions, Renewed: renewed[n.Name],
		})
	}
	return s, nil
}

// Watch is a stand-in.
func (c *Cluster) Watch(ctx context.Context, _ Options, s *Snapshot, changed func(*Snapshot)) error {
	changed(s)
	<-ctx.Done()
	return ctx.Err()
}

// Check is a stand-in.
func (c *Cluster) Check(context.Context, *Snapshot) []checks.Result {
	return []checks.Result{{ID: "stub", Status: checks.StatusWarning, Summary: http.StatusText(200)}}
}
