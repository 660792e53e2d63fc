package volumemanager

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
)

// Objects are what the contents of volumes are taken from. What is not there is a NotFound error of the API's kind.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// ServiceAccountToken is a token of the service account with that name, which may be one handed out earlier.
	ServiceAccountToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (string, error)
}

// A Client is what pods refer to at an API server.
type Client interface {
	GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	CreateToken(
		ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
	) (*authenticationv1.TokenRequest, error)
}

// APIObjects reads each object anew from an API server (configMapAndSecretChangeDetectionStrategy Get upstream).
type APIObjects struct {
	client Client
	mu     sync.Mutex
	tokens map[string]token
}

// A token is replaced at due, and is of no use any more at expires.
type token struct {
	text         string
	due, expires time.Time
}

// maxTokenAge is the age at which a token is replaced in any case (pkg/kubelet/token/token_manager.go upstream).
const maxTokenAge = 24 * time.Hour

// NewAPIObjects makes APIObjects.
func NewAPIObjects(client Client) *APIObjects {
	return &APIObjects{client: client, tokens: map[string]token{}}
}

// ConfigMap gets a config map.
func (o *APIObjects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return o.client.GetConfigMap(ctx, namespace, name)
}

// Secret gets a secret.
func (o *APIObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return o.client.GetSecret(ctx, namespace, name)
}

// ServiceAccountToken asks for a token when there is none yet, or when four fifths of the life of the earlier one, or a
// day, have passed. If that fails the earlier one is kept as long as it lasts.
func (o *APIObjects) ServiceAccountToken(
	ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest,
) (string, error) {
	key := fmt.Sprint(namespace, "/", name, " ", request.Spec.String())
	o.mu.Lock()
	have := o.tokens[key]
	o.mu.Unlock()
	now := time.Now()
	if now.Before(have.due) {
		return have.text, nil
	}
	got, err := o.client.CreateToken(ctx, namespace, name, request)
	if err != nil {
		if now.Before(have.expires) {
			return have.text, nil
		}
		return "", fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, name, err)
	}
	fresh := token{text: got.Status.Token, expires: got.Status.ExpirationTimestamp.Time}
	fresh.due = now.Add(min(maxTokenAge, fresh.expires.Sub(now)/5*4))
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, t := range o.tokens {
		if now.After(t.expires) {
			delete(o.tokens, k)
		}
	}
	o.tokens[key] = fresh
	return fresh.text, nil
}
