package volumemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// A kind says how a volume is made. The zero kind is that of hostPath, of which nothing is made but, if so asked, the path.
type kind struct {
	folder   string // below the pod's volumes: the plugin's name with '/' escaped
	memory   bool   // a file system in memory of its own
	size     int64  // of it in bytes; 0 is half of the node's memory
	content  bool   // holds files that we write, and containers may only read them
	managed  bool   // it is ours, and may be relabelled for SELinux
	writable bool   // containers may write into it
}

// Folders of the plugins, as upstream names them.
const (
	emptyDirFolder = "kubernetes.io~empty-dir"
	pluginPrefix   = "kubernetes.io~"
)

// folders are all that volumes are made in. What stands beside them was not made here, and is not cleared away.
func folders() []string {
	return []string{
		emptyDirFolder, pluginPrefix + "configmap", pluginPrefix + "secret", pluginPrefix + "downward-api", pluginPrefix + "projected",
	}
}

var errUnsupported = errors.New("no volume plugin matched")

// kindOf finds out how to make a volume. The error says that it cannot be made here at all.
func kindOf(v *v1.Volume) (kind, error) {
	inMemory := func(name string) (kind, error) {
		return kind{folder: pluginPrefix + name, memory: true, content: true, managed: true}, nil
	}
	switch {
	case v.HostPath != nil:
		return kind{}, nil
	case v.ConfigMap != nil:
		return kind{folder: pluginPrefix + "configmap", content: true, managed: true}, nil
	case v.Secret != nil:
		return inMemory("secret")
	case v.DownwardAPI != nil:
		return inMemory("downward-api")
	case v.Projected != nil:
		return inMemory("projected")
	case v.EmptyDir != nil || v.VolumeSource == v1.VolumeSource{}: // a volume of no kind is an emptyDir by the API's defaults
		k := kind{folder: emptyDirFolder, managed: true, writable: true}
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumDefault {
			return k, nil
		}
		if v.EmptyDir.Medium != v1.StorageMediumMemory {
			return k, fmt.Errorf("unknown storage medium %q", v.EmptyDir.Medium)
		}
		k.memory = true
		if v.EmptyDir.SizeLimit != nil {
			k.size = v.EmptyDir.SizeLimit.Value()
		}
		return k, nil
	}
	return kind{}, fmt.Errorf("%w: volumes of kind %s are not supported", errUnsupported, sourceName(v))
}

// sourceName is the name of the source that a volume has, like persistentVolumeClaim.
func sourceName(v *v1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsZero() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}

// containers are all of a pod, of every sort.
func containers(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(&c) {
				return
			}
		}
	}
}

// wanted names the volumes that a container of the pod uses, sorted. The others are not made at all.
func wanted(pod *v1.Pod) []string {
	var names []string
	for c := range containers(pod) {
		for _, mount := range c.VolumeMounts {
			names = append(names, mount.Name)
		}
		for _, device := range c.VolumeDevices {
			names = append(names, device.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nested are the folders that must be in a volume because something else is mounted inside of where it is mounted: the
// runtime cannot make them in a volume that is read-only (pkg/volume/util/nested_volumes.go upstream).
func nested(pod *v1.Pod, volume string) []string {
	var dirs []string
	for c := range containers(pod) {
		for _, outer := range c.VolumeMounts {
			for _, inner := range c.VolumeMounts {
				below, ok := strings.CutPrefix(path.Clean(inner.MountPath), strings.TrimSuffix(path.Clean(outer.MountPath), "/")+"/")
				if outer.Name == volume && outer.SubPath == "" && outer.SubPathExpr == "" && ok && filepath.IsLocal(below) {
					dirs = append(dirs, below)
				}
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// checkHostPath sees to it that a path of the host is what the pod says it is (pkg/volume/hostpath upstream).
func checkHostPath(source *v1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		return fmt.Errorf("invalid HostPath `%s`: must not contain '..'", source.Path)
	}
	if source.Type == nil || *source.Type == v1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(source.Path)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && *source.Type == v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(source.Path, 0o755)
	case missing && *source.Type == v1.HostPathFileOrCreate:
		f, err := os.OpenFile(source.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	wanted := map[v1.HostPathType]struct {
		mode fs.FileMode
		name string
	}{
		v1.HostPathDirectory: {fs.ModeDir, "directory"}, v1.HostPathDirectoryOrCreate: {fs.ModeDir, "directory"},
		v1.HostPathFile: {0, "file"}, v1.HostPathFileOrCreate: {0, "file"}, v1.HostPathSocket: {fs.ModeSocket, "socket file"},
		v1.HostPathCharDev:  {fs.ModeDevice | fs.ModeCharDevice, "character device"},
		v1.HostPathBlockDev: {fs.ModeDevice, "block device"},
	}
	want, ok := wanted[*source.Type]
	if !ok {
		return fmt.Errorf("%s is an invalid volume type", *source.Type)
	}
	if err != nil || info.Mode().Type() != want.mode {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, want.name)
	}
	return nil
}
