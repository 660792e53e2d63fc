// Package apiserver is a kubelet's way to the API server: the calls that a syncLoop makes, and no others. The generated
// clientset knows every API group there is, which would add 24 MB to the program, and 10 MB to the memory of each of
// its commands; this one knows pods, nodes, leases, events, and the objects that pods refer to.
package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
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

// Limits are the limits of a kubelet's clients. Its heartbeats have none, so that a busy node is not taken for dead.
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

// request begins a request about the objects of o's type: about one, unless name is empty.
func (c *Client) request(verb string, o runtime.Object, namespace, name string) *rest.Request {
	via, resource := c.core, ""
	switch o.(type) {
	case *v1.Pod, *v1.PodList:
		resource = "pods"
	case *v1.ConfigMap:
		resource = "configmaps"
	case *v1.Secret:
		resource = "secrets"
	case *v1.ServiceAccount:
		resource = "serviceaccounts"
	case *v1.Node:
		via, resource = c.heartbeats, "nodes"
	case *coordinationv1.Lease:
		via, resource = c.leases, "leases"
	case *v1.Event:
		via, resource = c.events, "events"
	case *authenticationv1.TokenReview:
		via, resource = c.tokens, "tokenreviews"
	case *authorizationv1.SubjectAccessReview:
		via, resource = c.access, "subjectaccessreviews"
	}
	r := via.Verb(verb).NamespaceIfScoped(namespace, namespace != "").Resource(resource)
	if name != "" {
		r = r.Name(name)
	}
	return r
}

// patch begins a strategic merge patch of an object's status.
func (c *Client) patch(o runtime.Object, namespace, name string, patch []byte) *rest.Request {
	return c.request(http.MethodPatch, o, namespace, name).SubResource("status").
		SetHeader("Content-Type", string(types.StrategicMergePatchType)).Body(patch)
}

// do makes a request and reads the answer into an object, which stays as it is if that fails.
func do(ctx context.Context, r *rest.Request, into runtime.Object) error {
	answer := reflect.New(reflect.TypeOf(into).Elem())
	if err := r.Do(ctx).Into(answer.Interface().(runtime.Object)); err != nil {
		return err
	}
	reflect.ValueOf(into).Elem().Set(answer.Elem())
	return nil
}

// Get reads an object, whose type says of which kind. The namespace of nodes is empty.
func (c *Client) Get(ctx context.Context, namespace, name string, into runtime.Object) error {
	return do(ctx, c.request(http.MethodGet, into, namespace, name), into)
}

// Create creates an object, or asks for a review, and sets it to the answer.
func (c *Client) Create(ctx context.Context, o runtime.Object) error {
	return do(ctx, c.request(http.MethodPost, o, o.(metav1.Object).GetNamespace(), "").Body(o), o)
}

// Update replaces an object, if it is still the one that o came from, and sets o to the answer.
func (c *Client) Update(ctx context.Context, o runtime.Object) error {
	meta := o.(metav1.Object)
	return do(ctx, c.request(http.MethodPut, o, meta.GetNamespace(), meta.GetName()).Body(o), o)
}

// PatchStatus sends a strategic merge patch for the status of an object, and of a node also its labels. It sets into to
// the answer.
func (c *Client) PatchStatus(ctx context.Context, namespace, name string, patch []byte, into runtime.Object) error {
	return do(ctx, c.patch(into, namespace, name, patch), into)
}

// ListPods lists the pods of all namespaces that opts select.
func (c *Client) ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	list := &v1.PodList{}
	return list, do(ctx, c.selected(list, opts), list)
}

// WatchPods watches the pods of all namespaces that opts select.
func (c *Client) WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.selected(&v1.Pod{}, opts).Watch(ctx)
}

func (c *Client) selected(o runtime.Object, opts metav1.ListOptions) *rest.Request {
	r := c.request(http.MethodGet, o, "", "").VersionedParams(&opts, c.params)
	if opts.TimeoutSeconds != nil {
		r.Timeout(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	return r
}

// DeletePod deletes a pod.
func (c *Client) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return c.request(http.MethodDelete, &v1.Pod{}, namespace, name).Body(&opts).Do(ctx).Error()
}

// WatchNode watches one node, from its present state on.
func (c *Client) WatchNode(ctx context.Context, name string, seconds int64) (watch.Interface, error) {
	return c.heartbeats.Get().Resource("nodes").VersionedParams(&metav1.ListOptions{
		Watch: true, FieldSelector: "metadata.name=" + name, TimeoutSeconds: &seconds,
	}, c.params).Watch(ctx)
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
	node := &v1.Node{}
	return node, do(ctx, c.patch(node, "", name, []byte("{}")).MaxRetries(0), node)
}

// CreateEvent creates an event, and does not try again.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	return c.events.Post().MaxRetries(0).Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
}

// CreateToken asks for a token of a service account.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	got := &authenticationv1.TokenRequest{}
	r := c.request(http.MethodPost, &v1.ServiceAccount{}, namespace, account).SubResource("token").Body(request)
	return got, do(ctx, r, got)
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
	event := &v1.Event{}
	return event, do(ctx, r.Namespace(namespace).Resource("events"), event)
}
