package fleet

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // debugpod.yaml
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

//go:embed debugpod.yaml
var debugPod []byte

const (
	lookEvery  = time.Second      // at the pod
	createTime = 10 * time.Second // a webhook may take as long
	removeTime = 5 * time.Second
)

// DebugOptions are how kdiag node runs in a pod.
type DebugOptions struct {
	Node     string
	Image    string        // of kdiag; empty for that of the DaemonSet kdiag in the namespace kdiag
	Released string        // the image where that does not run; may be empty
	Start    time.Duration // for the pod to run
	Run      time.Duration // --timeout of kdiag node in it
	Left     func(string)  // gets the problem of a pod that could not be removed
}

// Debug runs kdiag node in a pod on a node, and returns its report. The pod is removed in every case, also when ctx
// ends. The error is a *NodeError, or that of ctx.
func (c *Cluster) Debug(ctx context.Context, o DebugOptions) (*checks.Report, error) {
	node, err := c.node(ctx, o.Node)
	if err != nil {
		return nil, err
	}
	byHand := byHand(o.Node, node.Status.Addresses)
	pod, err := c.debugPod(ctx, o, byHand)
	if err != nil {
		return nil, err
	}
	// A request that is broken off may make the pod after its removal.
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	err = c.core.Post().Namespace(pod.Namespace).Resource("pods").Body(pod).Do(creating).Error()
	cancel()
	if !apierrors.IsForbidden(err) { // an error may also be of the answer
		defer c.remove(ctx, pod, o.Left)
	}
	if err != nil {
		return nil, refused(err, "creating a pod on "+o.Node, "create pods in "+pod.Namespace, byHand)
	}
	for began := time.Now(); ; {
		now := &v1.Pod{}
		if err := of(c.core.Get(), pod).Do(ctx).Into(now); err != nil {
			return nil, refused(err, "waiting for the pod on "+o.Node, "get pods in "+pod.Namespace, byHand)
		}
		why, never := waitsFor(now)
		after := time.Since(began)
		switch phase := now.Status.Phase; {
		case never || why != "" && after >= o.Start:
			return nil, &NodeError{
				Problem: "node " + o.Node + " cannot start pods: " + why + " after " + units.Duration(after),
				Hint:    byHand,
			}
		case why == "" && (phase == v1.PodSucceeded || phase == v1.PodFailed):
			return c.report(ctx, now, byHand)
		}
		sleep(ctx, lookEvery)
	}
}

// byHand is how to run kdiag on a node that starts no pods.
func byHand(host string, addresses []v1.NodeAddress) string {
	to := host
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP {
			if host, to = ip.String(), ip.String(); ip.Is6() {
				to = "[" + to + "]"
			}
			break
		}
	}
	return fmt.Sprintf("scp $(command -v kdiag) %s:/tmp/ && ssh %s sudo /tmp/kdiag node", to, host)
}

// debugPod returns the pod to create.
func (c *Cluster) debugPod(ctx context.Context, o DebugOptions, byHand string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(debugPod, pod); err != nil {
		return nil, err
	}
	if o.Image == "" {
		agents, err := c.agents(ctx, fields.Everything())
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(agents, trusted)
		switch {
		case n >= 0:
			agent := agents[n]
			o.Image, pod.Namespace = agent.Spec.Containers[0].Image, agent.Namespace
			pod.Spec.ImagePullSecrets = agent.Spec.ImagePullSecrets
		case o.Released != "":
			o.Image = o.Released
		default:
			hint := "name one that " + o.Node + " can pull with --image IMAGE"
			if len(agents) > 0 {
				p := agents[0]
				hint += " (" + p.Namespace + "/" + p.Name + " runs " + p.Spec.Containers[0].Image + ")"
			}
			return nil, &NodeError{
				Problem: "no image of kdiag is known: no DaemonSet " + agentName + " runs in the namespace " + agentName,
				Hint:    hint + "; or " + byHand,
			}
		}
	}
	pod.Name, pod.Spec.NodeName = fmt.Sprintf("kdiag-node-%08x", rand.Uint32()), o.Node
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Args = o.Image, []string{"--timeout", o.Run.String()}
	if end, ok := ctx.Deadline(); ok { // the kubelet ends it also where this process could not
		pod.Spec.ActiveDeadlineSeconds = new(int64(time.Until(end)/time.Second) + 1)
	}
	return pod, nil
}

// trusted reports whether the image and the pull secrets of an agent's pod may be used for a pod with the rights of the
// host: it is of the DaemonSet of deploy/kubernetes. Anybody who may create pods somewhere can give one the label, but
// only administrators can create pods in that namespace.
func trusted(p v1.Pod) bool {
	owner := metav1.GetControllerOf(&p)
	return p.Namespace == agentName && owner != nil && owner.Kind == "DaemonSet" && owner.Name == agentName &&
		p.Spec.HostPID && p.Spec.HostNetwork
}

// of makes a request one about a pod.
func of(r *rest.Request, p *v1.Pod) *rest.Request {
	return r.Namespace(p.Namespace).Resource("pods").Name(p.Name)
}

// waitsFor returns what a pod waits for that does not run yet, and whether in vain.
func waitsFor(p *v1.Pod) (why string, never bool) {
	join := func(reason, message string) string { return strings.Trim(reason+": "+message, ": ") }
	for _, s := range p.Status.ContainerStatuses {
		switch w := s.State.Waiting; {
		case s.State.Running != nil || s.State.Terminated != nil:
			return "", false
		case w != nil:
			return join(w.Reason, w.Message), w.Reason != "ContainerCreating" && w.Reason != ""
		}
	}
	switch {
	case p.Status.Phase == v1.PodFailed: // the kubelet refused it
		return join(p.Status.Reason, p.Status.Message), true
	case p.Status.StartTime == nil:
		return "the kubelet has not taken the pod", false
	}
	return "Pending", false
}

// report reads the report in the log of a pod that ended. Lines of standard error may be around it.
func (c *Cluster) report(ctx context.Context, pod *v1.Pod, byHand string) (*checks.Report, error) {
	var log []byte
	from, err := of(c.core.Get(), pod).SubResource("log").Stream(ctx)
	if err == nil {
		defer from.Close()
		log, err = io.ReadAll(io.LimitReader(from, maxDocument))
	}
	if err != nil {
		what := "reading the log of kdiag on " + pod.Spec.NodeName
		return nil, refused(err, what, "get pods/log in "+pod.Namespace, byHand)
	}
	r := &checks.Report{}
	begin := max(bytes.Index(append([]byte("\n"), log...), []byte("\n{")), 0)
	err = json.NewDecoder(bytes.NewReader(log[begin:])).Decode(r)
	if err == nil && r.Kind == checks.KindReport {
		return r, nil
	}
	why := strings.Join(r.Problems, "; ") // of a document of the kind Error
	if t := pod.Status.ContainerStatuses[0].State.Terminated; why == "" && t != nil {
		why = fmt.Sprintf("%s, exit code %d: %s", t.Reason, t.ExitCode, cmp.Or(t.Message, string(log)))
	}
	return nil, &NodeError{
		Problem: "kdiag node on " + pod.Spec.NodeName + " made no report: " + why,
		Hint:    "is " + pod.Spec.Containers[0].Image + " an image of this version of kdiag?",
	}
}

// remove deletes a pod at once, also where its kubelet is dead.
func (c *Cluster) remove(ctx context.Context, pod *v1.Pod, left func(string)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	err := of(c.core.Delete(), pod).Body(&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		left(fmt.Sprintf("the pod is left: %v; kubectl delete pod -n %s %s", err, pod.Namespace, pod.Name))
	}
}
