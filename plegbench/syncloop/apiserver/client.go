// Package apiserver is a kubelet's way to the API server: the calls that a syncLoop makes, and no others. The generated
// clientset knows every API group there is, which would add 24 MB to the program, and 10 MB to the memory of each of
// its commands; this one knows pods, nodes, leases, events, and the objects that pods refer to.
package apiserver

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A Client talks to one API server. It is safe for use by several goroutines.
type Client struct {
	params     runtime.ParameterCodec
	core       rest.Interface
	heartbeats rest.Interface // of core as well
	leases     rest.Interface
	events     rest.Interface // of core as well
	tokens     rest.Interface // reviews
	access     rest.Interface // reviews
}

// Limits are those of a kubelet's clients. Its heartbeats have none, so that a busy node is not taken for dead.
type Limits struct {
	QPS        float32 // kubeAPIQPS
	Burst      int     // kubeAPIBurst
	EventQPS   float32 // eventRecordQPS
	EventBurst int     // eventBurst
}

// New makes a Client, which has asked nothing yet.
func New(cfg *rest.Config, limits Limits) (*Client, error) {
	scheme := Scheme()
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
	}
	connect := func(path string, group schema.GroupVersion, qps float32, burst int) rest.Interface {
		if err != nil {
			return nil
		}
		c := rest.CopyConfig(cfg)
		c.APIPath, c.GroupVersion, c.NegotiatedSerializer = path, &group, codecs
		c.QPS, c.Burst, c.RateLimiter = qps, burst, nil
		var made rest.Interface
		made, err = rest.RESTClientForConfigAndClient(c, transport) // one transport, so one connection for all
		return made
	}
	const unlimited = -1
	c := &Client{
		params:     runtime.NewParameterCodec(scheme),
		core:       connect("/api", v1.SchemeGroupVersion, limits.QPS, limits.Burst),
		heartbeats: connect("/api", v1.SchemeGroupVersion, unlimited, 0),
		leases:     connect("/apis", coordinationv1.SchemeGroupVersion, unlimited, 0),
		events:     connect("/api", v1.SchemeGroupVersion, limits.EventQPS, limits.EventBurst),
		tokens:     connect("/apis", authenticationv1.SchemeGroupVersion, limits.QPS, limits.Burst),
		access:     connect("/apis", authorizationv1.SchemeGroupVersion, limits.QPS, limits.Burst),
	}
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
	}
	return c, nil
}

// Scheme makes a scheme of the API groups that a Client uses.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme)) // types that do not fit together are a mistake in the API's own code
	}
	return scheme
}

// do makes a request and reads the answer as a T.
func do[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, r *rest.Request) (*T, error) {
	answer := new(T)
	if err := r.Do(ctx).Into(P(answer)); err != nil {
		return nil, err
	}
	return answer, nil
}

// GetPod gets a pod.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return do[v1.Pod](ctx, c.core.Get().Namespace(namespace).Resource("pods").Name(name))
}

// ListPods lists the pods of all namespaces that opts select.
func (c *Client) ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	return do[v1.PodList](ctx, c.selected("pods", opts))
}

// WatchPods watches the pods of all namespaces that opts select.
func (c *Client) WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.selected("pods", opts).Watch(ctx)
}

func (c *Client) selected(resource string, opts metav1.ListOptions) *rest.Request {
	r := c.core.Get().Resource(resource).VersionedParams(&opts, c.params)
	if opts.TimeoutSeconds != nil {
		r.Timeout(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	return r
}

// CreatePod creates a pod.
func (c *Client) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return do[v1.Pod](ctx, c.core.Post().Namespace(pod.Namespace).Resource("pods").Body(pod))
}

// PatchPodStatus sends a strategic merge patch for the status of a pod, and returns the pod as it is then.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return do[v1.Pod](ctx, c.core.Patch(types.StrategicMergePatchType).
		Namespace(namespace).Resource("pods").Name(name).SubResource("status").Body(patch))
}

// DeletePod deletes a pod.
func (c *Client) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return c.core.Delete().Namespace(namespace).Resource("pods").Name(name).Body(&opts).Do(ctx).Error()
}

// GetNode gets a node.
func (c *Client) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return do[v1.Node](ctx, c.heartbeats.Get().Resource("nodes").Name(name))
}

// WatchNode watches one node, from its present state on.
func (c *Client) WatchNode(ctx context.Context, name string, seconds int64) (watch.Interface, error) {
	return c.heartbeats.Get().Resource("nodes").VersionedParams(&metav1.ListOptions{
		Watch: true, FieldSelector: "metadata.name=" + name, TimeoutSeconds: &seconds,
	}, c.params).Watch(ctx)
}

// CreateNode creates a node.
func (c *Client) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	return do[v1.Node](ctx, c.heartbeats.Post().Resource("nodes").Body(node))
}

// PatchNodeStatus sends a strategic merge patch for the status and the labels of a node, and returns the node as it
// is then.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	return do[v1.Node](ctx, c.heartbeats.Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(name).SubResource("status").Body(patch))
}

// ApplyNodeStatus applies fields of the status of a node server-side as manager, which takes them over from any other
// one. The server sends the node's metadata back, without the rest. It does not try again.
func (c *Client) ApplyNodeStatus(ctx context.Context, name, manager string, fields []byte) error {
	return c.heartbeats.Patch(types.ApplyPatchType).MaxRetries(0).Resource("nodes").Name(name).SubResource("status").
		SetHeader("Accept", runtime.ContentTypeProtobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			runtime.ContentTypeJSON).
		Param("fieldManager", manager).Param("force", "true").Body(fields).Do(ctx).Error()
}

// NodeByPatch returns a node as a patch does that changes nothing: it needs no right to read nodes. It does not try
// again.
func (c *Client) NodeByPatch(ctx context.Context, name string) (*v1.Node, error) {
	return do[v1.Node](ctx, c.heartbeats.Patch(types.StrategicMergePatchType).MaxRetries(0).
		Resource("nodes").Name(name).SubResource("status").Body([]byte("{}")))
}

// CreateEvent creates an event, and does not try again.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	return c.events.Post().MaxRetries(0).Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
}

// GetLease gets the lease of a node.
func (c *Client) GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	return do[coordinationv1.Lease](ctx, c.leases.Get().Namespace(v1.NamespaceNodeLease).Resource("leases").Name(node))
}

// CreateLease creates the lease of a node.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return do[coordinationv1.Lease](ctx,
		c.leases.Post().Namespace(v1.NamespaceNodeLease).Resource("leases").Body(lease))
}

// UpdateLease replaces the lease of a node, if it is still the one that lease came from.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return do[coordinationv1.Lease](ctx, c.leases.Put().
		Namespace(v1.NamespaceNodeLease).Resource("leases").Name(lease.Name).Body(lease))
}

// GetConfigMap gets a config map.
func (c *Client) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return do[v1.ConfigMap](ctx, c.core.Get().Namespace(namespace).Resource("configmaps").Name(name))
}

// GetSecret gets a secret.
func (c *Client) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return do[v1.Secret](ctx, c.core.Get().Namespace(namespace).Resource("secrets").Name(name))
}

// GetServiceAccount gets a service account.
func (c *Client) GetServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return do[v1.ServiceAccount](ctx, c.core.Get().Namespace(namespace).Resource("serviceaccounts").Name(name))
}

// CreateToken asks for a token of a service account.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return do[authenticationv1.TokenRequest](ctx, c.core.Post().
		Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(request))
}

// ReviewToken asks whose token it is.
func (c *Client) ReviewToken(
	ctx context.Context, r *authenticationv1.TokenReview,
) (*authenticationv1.TokenReview, error) {
	return do[authenticationv1.TokenReview](ctx, c.tokens.Post().Resource("tokenreviews").Body(r))
}

// ReviewAccess asks whether a user has a right.
func (c *Client) ReviewAccess(
	ctx context.Context, r *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	return do[authorizationv1.SubjectAccessReview](ctx, c.access.Post().Resource("subjectaccessreviews").Body(r))
}

// eventTimeout bounds a call about an event: its callers, of client-go's record, hand no context down. Events that
// cannot be sent meanwhile are dropped there.
const eventTimeout = 10 * time.Second

// Events writes events; it is a record.EventSink of client-go.
type Events struct{ client *Client }

// Events is where events go.
func (c *Client) Events() Events { return Events{c} }

// Create creates an event.
func (e Events) Create(event *v1.Event) (*v1.Event, error) {
	return e.send(e.client.events.Post().Body(event), event.Namespace)
}

// Update replaces an event.
func (e Events) Update(event *v1.Event) (*v1.Event, error) {
	return e.send(e.client.events.Put().Name(event.Name).Body(event), event.Namespace)
}

// Patch changes an event: its count, and when it was last seen.
func (e Events) Patch(event *v1.Event, patch []byte) (*v1.Event, error) {
	return e.send(e.client.events.Patch(types.StrategicMergePatchType).Name(event.Name).Body(patch), event.Namespace)
}

func (e Events) send(r *rest.Request, namespace string) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return do[v1.Event](ctx, r.Namespace(namespace).Resource("events"))
}
