// Package fake is an API server's client for tests: client-go's clientset in memory, asked as the syncLoop asks.
package fake

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
)

// A Client is the clientset, and an apiserver.Client over it.
type Client struct{ *fake.Clientset }

// New makes a Client of an API server that has these objects.
func New(objects ...runtime.Object) *Client { return &Client{fake.NewClientset(objects...)} }

// GetPod gets a pod.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// ListPods lists the pods of all namespaces.
func (c *Client) ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	return c.CoreV1().Pods(v1.NamespaceAll).List(ctx, opts)
}

// WatchPods watches the pods of all namespaces.
func (c *Client) WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.CoreV1().Pods(v1.NamespaceAll).Watch(ctx, opts)
}

// CreatePod creates a pod.
func (c *Client) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// PatchPodStatus patches the status of a pod.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return c.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status")
}

// DeletePod deletes a pod.
func (c *Client) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return c.CoreV1().Pods(namespace).Delete(ctx, name, opts)
}

// GetNode gets a node.
func (c *Client) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// CreateNode creates a node.
func (c *Client) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	return c.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
}

// PatchNodeStatus patches the status of a node.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	return c.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// GetLease gets the lease of a node.
func (c *Client) GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	return c.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
}

// CreateLease creates the lease of a node.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.CoordinationV1().Leases(v1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
}

// UpdateLease replaces the lease of a node.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.CoordinationV1().Leases(v1.NamespaceNodeLease).Update(ctx, lease, metav1.UpdateOptions{})
}

// GetConfigMap gets a config map.
func (c *Client) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetSecret gets a secret.
func (c *Client) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetServiceAccount gets a service account.
func (c *Client) GetServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return c.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreateToken asks for a token of a service account.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
}

// ReviewToken asks whose token it is.
func (c *Client) ReviewToken(
	ctx context.Context, r *authenticationv1.TokenReview,
) (*authenticationv1.TokenReview, error) {
	return c.AuthenticationV1().TokenReviews().Create(ctx, r, metav1.CreateOptions{})
}

// ReviewAccess asks whether a user has a right.
func (c *Client) ReviewAccess(
	ctx context.Context, r *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	return c.AuthorizationV1().SubjectAccessReviews().Create(ctx, r, metav1.CreateOptions{})
}
