package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// What deploy/kubernetes gives the agent's pods.
const (
	agentName  = "kdiag" // of the DaemonSet and of its namespace
	agentLabel = "app.kubernetes.io/name=kdiag"
	agentPort  = 9478
	portName   = "metrics"
)

const (
	mostAgents   = 100              // pods of one list
	askTime      = 10 * time.Second // one call to the API server
	documentTime = 40 * time.Second // one document: the API server gives up on a node that is off after 30 s
	maxDocument  = 64 << 20
)

// A NodeError is why nothing was learnt of a node, and what to do about it.
type NodeError struct {
	Problem, Hint string
	NoAgent       bool // the node is there, and no agent runs on it
}

func (e *NodeError) Error() string { return e.Problem }

// An Agent is a pod in which kdiag agent runs.
type Agent struct {
	Node, Namespace, Pod string

	cluster *Cluster
	proxy   string // path of its server on the API server
	token   string // for its archives
}

// Agent finds the agent of a node: of the pods that run there with the agent's label the newest. The error is a
// *NodeError, or that of ctx.
func (c *Cluster) Agent(ctx context.Context, node string) (*Agent, error) {
	pods, err := c.agents(ctx, fields.OneTermEqualSelector("spec.nodeName", node))
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		if _, err := c.node(ctx, node); err != nil {
			return nil, err
		}
		return nil, &NodeError{
			"no agent of kdiag runs on " + node,
			"kdiag node " + node + " looks at it without one; deploy/kubernetes runs one on each node", true,
		}
	}
	p, port := pods[0], int32(agentPort)
	for _, container := range p.Spec.Containers {
		for _, named := range container.Ports {
			if named.Name == portName {
				port = named.ContainerPort
			}
		}
	}
	return &Agent{
		Node: node, Namespace: p.Namespace, Pod: p.Name, cluster: c,
		proxy: fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/", p.Namespace, p.Name, port),
	}, nil
}

// agents lists the pods of agents that run, the newest first.
func (c *Cluster) agents(ctx context.Context, where fields.Selector) ([]v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var list v1.PodList
	err := c.core.Get().Resource("pods").VersionedParams(&metav1.ListOptions{
		LabelSelector: agentLabel, FieldSelector: where.String(), Limit: mostAgents,
	}, c.params).Do(ctx).Into(&list)
	if err != nil {
		return nil, refused(err, "looking for the agent's pod", "list pods", hintServer)
	}
	running := slices.DeleteFunc(list.Items, func(p v1.Pod) bool {
		return p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil
	})
	slices.SortStableFunc(running, func(a, b v1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return running, nil
}

// node returns a node, without more than its name where it may not be read.
func (c *Cluster) node(ctx context.Context, name string) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	node := &v1.Node{}
	err := c.core.Get().Resource("nodes").Name(name).Do(ctx).Into(node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &NodeError{
			Problem: "there is no node " + name + " in this cluster",
			Hint:    "kubectl get nodes lists them; --context names another cluster",
		}
	case err != nil && !apierrors.IsForbidden(err):
		return nil, refused(err, "reading the node "+name, "get nodes", hintServer)
	}
	return node, nil
}

// Nodes returns the names of the cluster's nodes, or none where it cannot ask for them.
func (c *Cluster) Nodes(ctx context.Context) []string {
	var list v1.NodeList
	err := c.core.Get().Resource("nodes").Param("limit", "500").Do(ctx).Into(&list)
	names := make([]string, len(list.Items))
	for i, n := range list.Items {
		names[i] = n.Name
	}
	if err != nil {
		return nil
	}
	return names
}

const hintServer = "kubectl cluster-info shows whether the API server answers"

// refused explains why the API server did not do something that takes a right. The hint is for other reasons.
func refused(err error, what, right, hint string) error {
	why := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer in time"
	case apierrors.IsForbidden(err):
		hint = "this takes the right to " + right + "; docs/fleet-node.md has the roles"
	}
	return &NodeError{Problem: what + ": " + why, Hint: hint}
}

// Read gets a document of a kind from the agent: report, history, captures/. The error is a *NodeError, or that of ctx.
func (a *Agent) Read(ctx context.Context, path string, query url.Values, kind string, doc any) error {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	var text bytes.Buffer
	if err := a.Copy(ctx, path, query, &text, maxDocument); err != nil {
		return err
	}
	var head checks.Header
	err := cmp.Or(json.Unmarshal(text.Bytes(), &head), json.Unmarshal(text.Bytes(), doc))
	if err == nil && head.Kind != kind {
		err = fmt.Errorf("it is a %.40q", head.Kind)
	}
	if err != nil {
		return &NodeError{
			Problem: fmt.Sprintf("the answer of %s is not a %s of kdiag: %v", a, kind, err),
			Hint:    "kubectl get pod -n " + a.Namespace + " " + a.Pod + " -o yaml shows what runs there",
		}
	}
	return nil
}

// Authorize reads the token for the agent's archives. Where it may not be read or there is none, the agent refuses
// later.
func (a *Agent) Authorize(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var s v1.Secret
	core := a.cluster.core
	err := core.Get().Namespace(a.Namespace).Resource("secrets").Name(checks.CapturesSecret).Do(ctx).Into(&s)
	if err == nil {
		a.token = strings.TrimSpace(string(s.Data["token"]))
	}
}

// Copy copies a file of at most so many bytes from the agent. It returns the errors of Read.
func (a *Agent) Copy(ctx context.Context, path string, query url.Values, to io.Writer, most int64) error {
	r := a.cluster.core.Get().MaxRetries(0).AbsPath(a.proxy + path)
	if a.token != "" {
		r.SetHeader(checks.CapturesToken, a.token)
	}
	for name := range query {
		r.Param(name, query.Get(name))
	}
	from, err := r.Stream(ctx)
	if err == nil {
		defer from.Close()
		var n int64
		n, err = io.Copy(to, io.LimitReader(from, most+1))
		if n > most {
			return &NodeError{Problem: fmt.Sprintf("the answer of %s has more than %s", a, units.Size(most))}
		}
	}
	return a.failed(err)
}

// String names the agent in an error.
func (a *Agent) String() string {
	return "the agent on " + a.Node + " (" + a.Namespace + "/" + a.Pod + ")"
}

// failed explains why a request through the proxy failed: by the API server, by the agent, or between the two.
func (a *Agent) failed(err error) error {
	own, byAgent := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return refused(err, "reaching "+a.String(), "get pods/proxy in "+a.Namespace, "")
	case byAgent && apierrors.IsNotFound(err):
		return &NodeError{
			Problem: a.String() + " answers: " + own.Message,
			Hint:    "it may be of an older version, or run without --serve-captures or --data-dir",
		}
	case byAgent && apierrors.IsUnauthorized(err):
		return &NodeError{
			Problem: a.String() + " answers: " + own.Message,
			Hint: "kubectl get secret -n " + a.Namespace + " " + checks.CapturesSecret +
				" shows whether there is one that you may read; docs/fleet-node.md has how to make it",
		}
	case byAgent:
		return &NodeError{Problem: a.String() + " answers: " + own.Message}
	}
	return refused(err, a.String()+" does not answer", "",
		"the node's network or the machine may be down: kubectl describe node "+a.Node)
}
