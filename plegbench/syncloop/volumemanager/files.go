package volumemanager

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// FileObjects takes objects from the .yaml, .yml and .json files of one folder, each of one or more documents of kind
// ConfigMap or Secret. Pods are passed over, so that the folder may be that of the manifests. It reads the folder again
// when a name, size or time in it has changed.
type FileObjects struct {
	dir     string
	mu      sync.Mutex
	stamp   string
	objects parsed
	trouble error // of the files that could not be read or understood
}

// A parsed set of objects, by namespace/name.
type parsed struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
}

func newParsed() parsed {
	return parsed{configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
}

// NewFileObjects makes FileObjects of a folder, which need not exist yet.
func NewFileObjects(dir string) *FileObjects { return &FileObjects{dir: dir} }

// ConfigMap returns a config map. If it is not there, and files could not be understood, the error says which.
func (o *FileObjects) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	objects, trouble := o.read()
	if c, ok := objects.configMaps[namespace+"/"+name]; ok {
		return c.DeepCopy(), nil
	}
	return nil, o.missing("configmaps", namespace, name, trouble)
}

// Secret returns a secret, with its stringData in its data. The error is as that of ConfigMap.
func (o *FileObjects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	objects, trouble := o.read()
	if s, ok := objects.secrets[namespace+"/"+name]; ok {
		return s.DeepCopy(), nil
	}
	return nil, o.missing("secrets", namespace, name, trouble)
}

// ServiceAccountToken always fails: only an API server has service accounts.
func (o *FileObjects) ServiceAccountToken(
	_ context.Context, namespace, name string, _ *authenticationv1.TokenRequest,
) (string, error) {
	return "", fmt.Errorf("a token of service account %s/%s needs an API server, and there is none", namespace, name)
}

func (o *FileObjects) missing(kind, namespace, name string, trouble error) error {
	if trouble != nil {
		return fmt.Errorf("%s %s/%s is not among the objects of %s, where some could not be read: %w", kind, namespace, name, o.dir, trouble)
	}
	return apierrors.NewNotFound(v1.Resource(kind), name)
}

func (o *FileObjects) read() (parsed, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	paths, stamp, err := o.list()
	if err != nil {
		o.stamp = ""
		return parsed{}, err
	}
	if stamp == o.stamp {
		return o.objects, o.trouble
	}
	o.objects = newParsed()
	var problems []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = o.objects.add(data)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", filepath.Base(path), err))
		}
	}
	o.stamp, o.trouble = stamp, errors.Join(problems...)
	return o.objects, o.trouble
}

// list names the files, and says in the stamp what would change if one of them did.
func (o *FileObjects) list() (paths []string, stamp string, err error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	var b strings.Builder
	b.WriteString("read")
	for _, e := range entries {
		path := filepath.Join(o.dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") ||
			!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			continue
		}
		paths = append(paths, path)
		fmt.Fprintf(&b, "\n%q %d %d", path, info.Size(), info.ModTime().UnixNano())
	}
	return paths, b.String(), nil
}

// add takes the documents of one file. All that can be understood are taken, whatever the others are.
func (p parsed) add(data []byte) error {
	var problems []error
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(problems...)
		}
		if err != nil {
			return errors.Join(append(problems, fmt.Errorf("document %d: %w", n, err))...)
		}
		if err := p.addDocument(doc); err != nil {
			problems = append(problems, fmt.Errorf("document %d: %w", n, err))
		}
	}
}

func (p parsed) addDocument(doc []byte) error {
	var head *metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &head); err != nil || head == nil {
		return err // without a head it holds nothing but comments
	}
	switch {
	case head.APIVersion != "v1" || head.Kind != "ConfigMap" && head.Kind != "Secret" && head.Kind != "Pod":
		return fmt.Errorf("%s %s: only ConfigMap and Secret of v1 are understood", head.APIVersion, head.Kind)
	case head.Kind == "ConfigMap":
		var c v1.ConfigMap
		if err := yaml.UnmarshalStrict(doc, &c); err != nil {
			return err
		}
		return keep(p.configMaps, &c.ObjectMeta, &c)
	case head.Kind == "Secret":
		var s v1.Secret
		if err := yaml.UnmarshalStrict(doc, &s); err != nil {
			return err
		}
		for k, v := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[k] = []byte(v)
		}
		s.StringData = nil
		return keep(p.secrets, &s.ObjectMeta, &s)
	}
	return nil
}

func keep[T any](into map[string]T, meta *metav1.ObjectMeta, object T) error {
	if meta.Name == "" {
		return errors.New("metadata.name is missing")
	}
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	key := meta.Namespace + "/" + meta.Name
	if _, ok := into[key]; ok {
		return fmt.Errorf("%s is there twice", key)
	}
	into[key] = object
	return nil
}
