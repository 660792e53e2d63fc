// Package fake is an API server's client for tests: client-go's clientset in memory, asked as the syncLoop asks.
package fake

import (
	"context"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// A Client is the clientset, and an apiserver.Client over it.
type Client struct{ *fake.Clientset }

// New makes a Client of an API server that has these objects.
func New(objects ...runtime.Object) *Client { return &Client{fake.NewClientset(objects...)} }

// resource returns the resource of an object's type.
func resource(o runtime.Object) schema.GroupVersionResource {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err) // a type that no API server has
	}
	all, _ := meta.UnsafeGuessKindToResource(kinds[0])
	return all
}

// do takes an action, and sets into to its result.
func (c *Client) do(a clienttesting.Action, into runtime.Object) error {
	got, err := c.Invokes(a, into)
	if err == nil && got != nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(got).Elem())
	}
	return err
}

// Get reads an object.
func (c *Client) Get(_ context.Context, namespace, name string, into runtime.Object) error {
	return c.do(clienttesting.NewGetAction(resource(into), namespace, name), into)
}

// Create creates an object.
func (c *Client) Create(_ context.Context, o runtime.Object) error {
	return c.do(clienttesting.NewCreateAction(resource(o), o.(metav1.Object).GetNamespace(), o), o)
}

// Update replaces an object.
func (c *Client) Update(_ context.Context, o runtime.Object) error {
	return c.do(clienttesting.NewUpdateAction(resource(o), o.(metav1.Object).GetNamespace(), o), o)
}

// PatchStatus patches the status of an object.
func (c *Client) PatchStatus(_ context.Context, namespace, name string, patch []byte, into runtime.Object) error {
	const kind = types.StrategicMergePatchType
	return c.do(clienttesting.NewPatchSubresourceAction(resource(into), namespace, name, kind, patch, "status"), into)
}

// ListPods lists the pods of all namespaces.
func (c *Client) ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	return c.CoreV1().Pods(v1.NamespaceAll).List(ctx, opts)
}

// WatchPods watches the pods of all namespaces.
func (c *Client) WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.CoreV1().Pods(v1.NamespaceAll).Watch(ctx, opts)
}

// DeletePod deletes a pod.
func (c *Client) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return c.CoreV1().Pods(namespace).Delete(ctx, name, opts)
}

// CreateToken asks for a token of a service account.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
}
