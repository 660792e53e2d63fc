package volumemanager

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects are what the contents of volumes are taken from. A missing object is a NotFound error of the API's kind.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// ServiceAccountToken is a token of the service account with that name, which may have been issued earlier.
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

// notFound words a NotFound error as the kubelet's own store of objects does, with the kind in the singular.
func notFound(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(v1.Resource(kind), name)
	}
	return err
}

// APIObjects reads each object anew from an API server (configMapAndSecretChangeDetectionStrategy Get upstream).
type APIObjects struct {
	client Client
	mu     sync.Mutex
	tokens map[string]token
}

// A token is replaced at due, and expired at expires.
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
	c, err := o.client.GetConfigMap(ctx, namespace, name)
	return c, notFound("configmap", name, err)
}

// Secret gets a secret.
func (o *APIObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	s, err := o.client.GetSecret(ctx, namespace, name)
	return s, notFound("secret", name, err)
}

// ServiceAccountToken asks for a token when there is none yet, or when four fifths of the life of the earlier one, or
// a day, have passed. If that fails the earlier one is kept until it expires.
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
	maps.DeleteFunc(o.tokens, func(_ string, t token) bool { return now.After(t.expires) })
	o.tokens[key] = fresh
	return fresh.text, nil
}

// FileObjects takes objects from the .yaml, .yml and .json files of one folder, each with one or more documents.
// Documents of other kinds are ignored, so that the folder may be that of the manifests. The files are read again
// each time.
type FileObjects struct{ dir string }

// NewFileObjects makes FileObjects of a folder, which need not exist yet.
func NewFileObjects(dir string) *FileObjects { return &FileObjects{dir} }

// ConfigMap returns a config map. If it is not there, and files could not be read, the error names them.
func (o *FileObjects) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	c := &v1.ConfigMap{}
	return c, o.find("ConfigMap", namespace, name, c)
}

// Secret returns a secret, with its stringData in its data. The error is as that of ConfigMap.
func (o *FileObjects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	s := &v1.Secret{}
	err := o.find("Secret", namespace, name, s)
	for k, v := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
	return s, err
}

// ServiceAccountToken always fails: only an API server has service accounts.
func (o *FileObjects) ServiceAccountToken(_ context.Context, namespace, name string, _ *authenticationv1.TokenRequest) (string, error) {
	return "", fmt.Errorf("a token of service account %s/%s needs an API server, and there is none", namespace, name)
}

// find decodes the object of that kind and name into one of its type.
func (o *FileObjects) find(kind, namespace, name string, into any) error {
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var problems []error
	for _, e := range entries {
		path := filepath.Join(o.dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") ||
			!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			continue
		}
		data, err := os.ReadFile(path)
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for err == nil {
			var doc []byte
			if doc, err = docs.Read(); err != nil {
				break
			}
			var head metav1.PartialObjectMetadata
			if err = yaml.Unmarshal(doc, &head); err != nil || head.Kind != kind || head.Name != name {
				continue
			}
			if head.Namespace == namespace || head.Namespace == "" && namespace == metav1.NamespaceDefault {
				return yaml.UnmarshalStrict(doc, into)
			}
		}
		if !errors.Is(err, io.EOF) {
			problems = append(problems, fmt.Errorf("%s: %w", e.Name(), err))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s %s/%s is not in %s, where some files could not be read: %w", kind, namespace, name, o.dir, errors.Join(problems...))
	}
	return apierrors.NewNotFound(v1.Resource(strings.ToLower(kind)), name)
}
