package volumemanager

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// The files of a volume, by their paths below it.
type files map[string]file

type file struct {
	data string
	mode int32
}

// defaultMode is the mode of files by the API's defaults.
const defaultMode = 0o644

// sources returns the sources of a volume with content of any kind, and the mode of its files.
func sources(v *v1.Volume) ([]v1.VolumeProjection, *int32) {
	switch {
	case v.ConfigMap != nil:
		p := v1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items,
			Optional: v.ConfigMap.Optional,
		}
		return []v1.VolumeProjection{{ConfigMap: &p}}, v.ConfigMap.DefaultMode
	case v.Secret != nil:
		p := v1.SecretProjection{Items: v.Secret.Items, Optional: v.Secret.Optional}
		p.Name = v.Secret.SecretName
		return []v1.VolumeProjection{{Secret: &p}}, v.Secret.DefaultMode
	case v.DownwardAPI != nil:
		p := v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}
		return []v1.VolumeProjection{{DownwardAPI: &p}}, v.DownwardAPI.DefaultMode
	}
	return v.Projected.Sources, v.Projected.DefaultMode
}

// content collects the files of a volume.
func (m *Manager) content(ctx context.Context, pod *v1.Pod, v *v1.Volume) (files, error) {
	all := files{}
	from, mode := sources(v)
	for _, from := range from {
		var err error
		switch {
		case from.ConfigMap != nil:
			err = m.keys(ctx, pod, all, source.ConfigMap, (*v1.SecretProjection)(from.ConfigMap), mode)
		case from.Secret != nil:
			err = m.keys(ctx, pod, all, source.Secret, from.Secret, mode)
		case from.DownwardAPI != nil:
			for _, item := range from.DownwardAPI.Items {
				text, unknown := source.Field(pod, ptr.Deref(item.FieldRef, v1.ObjectFieldSelector{}).FieldPath)
				err = cmp.Or(err, unknown)
				all[item.Path] = file{text, ptr.Deref(cmp.Or(item.Mode, mode), defaultMode)}
			}
		case from.ServiceAccountToken != nil:
			s := from.ServiceAccountToken
			spec := authenticationv1.TokenRequestSpec{
				ExpirationSeconds: s.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
				},
			}
			if s.Audience != "" {
				spec.Audiences = []string{s.Audience}
			}
			var text string
			text, err = m.cfg.Objects.ServiceAccountToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName,
				&authenticationv1.TokenRequest{Spec: spec})
			all[s.Path] = file{text, ptr.Deref(mode, defaultMode)}
			if ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{}).FSGroup != nil {
				all[s.Path] = file{text, 0o600} // to which the group is added
			}
		default:
			err = errors.New("a projected source is none of configMap, secret, downwardAPI, serviceAccountToken")
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// keys adds the items of an object's data, or all of it under its own names if there are no items.
func (m *Manager) keys(
	ctx context.Context, pod *v1.Pod, p files, read source.Reader, from *v1.SecretProjection, mode *int32,
) error {
	data, err := read(ctx, m.cfg.Objects, pod.Namespace, from.Name, from.Optional)
	if err != nil {
		return err
	}
	if len(from.Items) == 0 {
		for k, v := range data {
			p[k] = file{string(v), ptr.Deref(mode, defaultMode)}
		}
	}
	for _, item := range from.Items {
		if v, ok := data[item.Key]; ok {
			p[item.Path] = file{string(v), ptr.Deref(cmp.Or(item.Mode, mode), defaultMode)}
		} else if !ptr.Deref(from.Optional, false) {
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
	}
	return nil
}

// dataLink points to the folder with the files. The names in a volume are links through it, so that renaming another
// link over it changes all files at once (pkg/volume/util/atomic_writer.go upstream).
const dataLink = "..data"

// write replaces the content of the volume at root, in one instant, after prepare.
func write(root *os.Root, p files, prepare func() error) (err error) {
	old, _ := root.Readlink(dataLink) // none in a new volume
	folder := fmt.Sprintf("%s%d", time.Now().UTC().Format("..2006_01_02_15_04_05."), rand.Uint32())
	defer func() {
		if err != nil {
			err = errors.Join(err, root.RemoveAll(folder))
		}
	}()
	tops := map[string]bool{}
	for name, f := range p {
		if name, err = validPath(name); err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
		at, mode := path.Join(folder, name), os.FileMode(f.mode).Perm()
		err := root.MkdirAll(path.Dir(at), 0o755)
		if err == nil {
			err = root.WriteFile(at, []byte(f.data), mode)
		}
		if err == nil {
			err = root.Chmod(at, mode) // regardless of the umask
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(root.MkdirAll(folder, 0o755), prepare()); err != nil {
		return err
	}
	newLink := dataLink + "_tmp" // a writer that was killed may have left one
	err = errors.Join(root.RemoveAll(newLink), root.Symlink(folder, newLink),
		root.Rename(newLink, dataLink))
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if !tops[e.Name()] && !strings.HasPrefix(e.Name(), "..") || e.Name() == old {
			err = errors.Join(err, root.RemoveAll(e.Name()))
		}
	}
	for top := range tops {
		if linkErr := root.Symlink(path.Join(dataLink, top), top); !errors.Is(linkErr, fs.ErrExist) {
			err = errors.Join(err, linkErr)
		}
	}
	return err
}

// validPath returns a clean form of a path below a volume, or an error if it leads out of the volume or hides dataLink.
func validPath(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || !filepath.IsLocal(clean) || clean == "." || strings.HasPrefix(clean, "..") {
		return "", fmt.Errorf("invalid path %.80q: it must be relative, without '..'", name)
	}
	return clean, nil
}

// Objects are the sources of the contents of volumes.
type Objects interface {
	source.Objects
	// ServiceAccountToken is a token of the service account with that name, which may have been issued earlier.
	ServiceAccountToken(
		ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest,
	) (string, error)
}

// A Client reads the objects at an API server that pods refer to.
type Client interface {
	source.Objects
	CreateToken(
		ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
	) (*authenticationv1.TokenRequest, error)
}

// APIObjects reads each object anew from an API server (configMapAndSecretChangeDetectionStrategy Get upstream).
type APIObjects struct {
	Client
	tokens *cache.Expiring
}

// maxTokenAge is the age at which a token is replaced in any case (pkg/kubelet/token/token_manager.go upstream).
const maxTokenAge = 24 * time.Hour

// NewAPIObjects makes APIObjects.
func NewAPIObjects(client Client) *APIObjects {
	return &APIObjects{Client: client, tokens: cache.NewExpiring()}
}

// ServiceAccountToken requests a token when there is none yet, or when four fifths of the life of the earlier one, or
// a day, have passed.
func (o *APIObjects) ServiceAccountToken(
	ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest,
) (string, error) {
	key := fmt.Sprint(namespace, "/", name, " ", request.Spec.String())
	if text, ok := o.tokens.Get(key); ok {
		return text.(string), nil
	}
	got, err := o.CreateToken(ctx, namespace, name, request)
	if err != nil {
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	life := time.Until(got.Status.ExpirationTimestamp.Time)
	o.tokens.Set(key, got.Status.Token, min(maxTokenAge, life/5*4))
	return got.Status.Token, nil
}

// FileObjects takes objects from the .yaml, .yml and .json files of one folder, each with one or more documents.
// Documents of other kinds are ignored, so that the folder of the manifests will do. The files are read again
// each time.
type FileObjects struct{ dir string }

// NewFileObjects makes FileObjects of a folder, which need not exist yet.
func NewFileObjects(dir string) *FileObjects { return &FileObjects{dir} }

// Get reads an object, a secret with its stringData in its data. If it is not there, and files could not be read, the
// error names them.
func (o *FileObjects) Get(_ context.Context, namespace, name string, into runtime.Object) error {
	err := o.find(reflect.TypeOf(into).Elem().Name(), namespace, name, into)
	if s, ok := into.(*v1.Secret); ok {
		for k, v := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[k] = []byte(v)
		}
		s.StringData = nil
	}
	return err
}

// ServiceAccountToken always fails: only an API server issues tokens.
func (o *FileObjects) ServiceAccountToken(
	_ context.Context, namespace, name string, _ *authenticationv1.TokenRequest,
) (string, error) {
	return "", fmt.Errorf("a token of service account %s/%s needs an API server, and there is none", namespace, name)
}

// find decodes the object of that kind and name into one of its type.
func (o *FileObjects) find(kind, namespace, name string, into any) error {
	files, err := filepath.Glob(filepath.Join(o.dir, "*"))
	for _, path := range files {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			continue
		}
		data, failed := os.ReadFile(path)
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for failed == nil {
			var doc []byte
			head := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}
			if doc, failed = docs.Read(); failed == nil {
				failed = yaml.Unmarshal(doc, &head)
			}
			if failed == nil && head.Kind == kind && head.Name == name && head.Namespace == namespace {
				return yaml.UnmarshalStrict(doc, into)
			}
		}
		if !errors.Is(failed, io.EOF) {
			err = errors.Join(err, fmt.Errorf("looking for %s %s/%s in %s: %w", kind, namespace, name, path, failed))
		}
	}
	return cmp.Or(err, error(apierrors.NewNotFound(v1.Resource(strings.ToLower(kind)), name)))
}
