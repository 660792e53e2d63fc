package volumemanager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/downward"
)

// A payload is the files of a volume, by their paths below it.
type payload map[string]file

type file struct {
	data []byte
	mode int32
}

// defaultMode is the mode of files by the API's defaults.
const defaultMode = 0o644

func modeOr(mode *int32, otherwise int32) int32 {
	if mode != nil {
		return *mode
	}
	return otherwise
}

// content collects the files of a volume. A volume of one source is treated as a projected one.
func (m *Manager) content(ctx context.Context, pod *v1.Pod, v *v1.Volume) (payload, error) {
	var sources []v1.VolumeProjection
	var mode *int32
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		mode = s.DefaultMode
		sources = []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}}}
	case v.Secret != nil:
		s := v.Secret
		mode = s.DefaultMode
		name := v1.LocalObjectReference{Name: s.SecretName}
		sources = []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: name, Items: s.Items, Optional: s.Optional}}}
	case v.DownwardAPI != nil:
		mode = v.DownwardAPI.DefaultMode
		sources = []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}
	default:
		mode, sources = v.Projected.DefaultMode, v.Projected.Sources
	}
	all := payload{}
	var problems []error
	for _, source := range sources {
		p, err := m.projection(ctx, pod, source, modeOr(mode, defaultMode))
		problems = append(problems, err)
		maps.Copy(all, p)
	}
	return all, errors.Join(problems...)
}

func (m *Manager) projection(ctx context.Context, pod *v1.Pod, source v1.VolumeProjection, mode int32) (payload, error) {
	switch {
	case source.ConfigMap != nil:
		s := source.ConfigMap
		object, err := m.cfg.Objects.ConfigMap(ctx, pod.Namespace, s.Name)
		if err != nil {
			return absent(s.Optional, err)
		}
		data := maps.Clone(object.BinaryData)
		if data == nil {
			data = map[string][]byte{}
		}
		for k, v := range object.Data {
			data[k] = []byte(v)
		}
		return choose("configmap", data, s.Items, s.Optional, mode)
	case source.Secret != nil:
		s := source.Secret
		object, err := m.cfg.Objects.Secret(ctx, pod.Namespace, s.Name)
		if err != nil {
			return absent(s.Optional, err)
		}
		return choose("secret", object.Data, s.Items, s.Optional, mode)
	case source.DownwardAPI != nil:
		p := payload{}
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef == nil {
				return nil, fmt.Errorf("%s: only fields of the pod's metadata are supported", item.Path)
			}
			text, err := downward.Field(pod, item.FieldRef.FieldPath)
			if err != nil {
				return nil, err
			}
			p[item.Path] = file{[]byte(text), modeOr(item.Mode, mode)}
		}
		return p, nil
	case source.ServiceAccountToken != nil:
		s := source.ServiceAccountToken
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: s.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}}
		if s.Audience != "" {
			request.Spec.Audiences = []string{s.Audience}
		}
		text, err := m.cfg.Objects.ServiceAccountToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName, request)
		return payload{s.Path: {[]byte(text), mode}}, err
	}
	return nil, errors.New("a projected source is none of configMap, secret, downwardAPI, serviceAccountToken")
}

// absent makes an empty volume of a missing object that is optional.
func absent(optional *bool, err error) (payload, error) {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return payload{}, nil
	}
	return nil, err
}

// choose takes the items out of the data, or all of it under its own names if there are no items.
func choose(kind string, data map[string][]byte, items []v1.KeyToPath, optional *bool, mode int32) (payload, error) {
	p := payload{}
	if len(items) == 0 {
		for k, v := range data {
			p[k] = file{v, mode}
		}
	}
	for _, item := range items {
		if v, ok := data[item.Key]; ok {
			p[item.Path] = file{v, modeOr(item.Mode, mode)}
		} else if optional == nil || !*optional {
			return nil, fmt.Errorf("%s references non-existent key: %s", kind, item.Key)
		}
	}
	return p, nil
}

// dataLink points to the folder with the files. What a container sees are links through it, so that renaming another
// link over it changes all files at once (pkg/volume/util/atomic_writer.go upstream).
const dataLink = "..data"

// write makes the volume at root hold the payload, in one instant. If it does already, nothing is written.
func write(root *os.Root, p payload) error {
	clean := payload{}
	for name, f := range p {
		name, err := validPath(name)
		if err != nil {
			return err
		}
		clean[name] = f
	}
	p = clean
	old, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != "" && holds(root, old, p) {
		return nil
	}
	folder := fmt.Sprintf("%s%d", time.Now().UTC().Format("..2006_01_02_15_04_05."), rand.Uint32())
	if err := swap(root, folder, p); err != nil {
		return errors.Join(err, root.RemoveAll(folder))
	}
	tops := map[string]bool{}
	for name := range p {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
		if err := root.Symlink(path.Join(dataLink, top), top); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if old == "" {
		return nil
	}
	before, err := fs.ReadDir(root.FS(), old)
	if err != nil {
		return err
	}
	for _, e := range before {
		if !tops[e.Name()] {
			if err := root.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return root.RemoveAll(old)
}

// validPath returns a clean form of a path below a volume, or an error if it leads out of the volume or hides dataLink.
func validPath(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || !filepath.IsLocal(clean) || clean == "." || strings.HasPrefix(clean, "..") {
		return "", fmt.Errorf("invalid path %.80q: it must be relative, without '..'", name)
	}
	return clean, nil
}

// swap writes the payload into a new folder and makes dataLink point there.
func swap(root *os.Root, folder string, p payload) error {
	if err := root.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := root.Chmod(folder, 0o755); err != nil { // whatever the umask is
		return err
	}
	for name, f := range p {
		name, mode := path.Join(folder, name), os.FileMode(f.mode).Perm()
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(name, f.data, mode); err != nil {
			return err
		}
		if err := root.Chmod(name, mode); err != nil {
			return err
		}
	}
	newLink := dataLink + "_tmp"
	if err := root.RemoveAll(newLink); err != nil { // of a writer that was killed
		return err
	}
	if err := root.Symlink(folder, newLink); err != nil {
		return err
	}
	return root.Rename(newLink, dataLink)
}

// holds reports whether a folder has exactly the files of the payload.
func holds(root *os.Root, folder string, p payload) bool {
	found := 0
	err := fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found++
		}
		return err
	})
	for name, f := range p {
		have, readErr := root.ReadFile(path.Join(folder, name))
		err = errors.Join(err, readErr)
		if !bytes.Equal(have, f.data) {
			return false
		}
	}
	return err == nil && found == len(p)
}
