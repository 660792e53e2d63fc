// Package source has a pod's mounted volumes, and the sources of volumes and environment variables: fields of the pod
// (the downward API), ConfigMaps and Secrets.
package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// A Volume is a mounted volume.
type Volume struct {
	HostPath string // where it is on the node
	ReadOnly bool   // for every container
	Managed  bool   // it was made by the volume manager, and may be relabelled for SELinux
}

// Objects are the objects that pods refer to. A missing one is a NotFound error of the API.
type Objects interface {
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
}

// A Reader returns the data of an object. It is empty if the object is optional and missing.
type Reader func(ctx context.Context, o Objects, namespace, name string, optional *bool) (map[string][]byte, error)

// ConfigMap is the Reader of ConfigMaps.
func ConfigMap(ctx context.Context, o Objects, namespace, name string, optional *bool) (map[string][]byte, error) {
	object := &v1.ConfigMap{}
	if err := o.Get(ctx, namespace, name, object); err != nil {
		return nil, absent("configmap", name, optional, err)
	}
	data := map[string][]byte{}
	maps.Copy(data, object.BinaryData)
	for k, v := range object.Data {
		data[k] = []byte(v)
	}
	return data, nil
}

// Secret is the Reader of Secrets.
func Secret(ctx context.Context, o Objects, namespace, name string, optional *bool) (map[string][]byte, error) {
	object := &v1.Secret{}
	if err := o.Get(ctx, namespace, name, object); err != nil {
		return nil, absent("secret", name, optional, err)
	}
	return object.Data, nil
}

// absent returns the error for an object that could not be read. A missing one is named as by a kubelet, in the
// singular, and is no error if it is optional.
func absent(kind, name string, optional *bool, err error) error {
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case ptr.Deref(optional, false):
		return nil
	}
	return apierrors.NewNotFound(v1.Resource(kind), name)
}

// Field is the text of a field of the pod's metadata (pkg/fieldpath/fieldpath.go upstream). Labels and annotations
// are one quoted key="value" per line, sorted, or with a subscript the bare value: metadata.labels['app'].
func Field(pod *v1.Pod, path string) (string, error) {
	name, key, subscript := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	switch {
	case name == "metadata.annotations" && subscript:
		return pod.Annotations[key], nil
	case name == "metadata.labels" && subscript:
		return pod.Labels[key], nil
	}
	switch path {
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func lines(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(out, "\n")
}
