package volumemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// A kind is how a volume is made. hostPath has the zero kind: nothing is made for it but, if asked for, the path.
type kind struct {
	folder  string // below the pod's volumes: the plugin's name with '/' escaped
	options string // of the tmpfs that it is; empty: it is on the disk
	content bool   // holds files that we write, and containers may only read them
}

// folders are those in which volumes are made.
func folders() []string {
	return []string{
		"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~downward-api", "kubernetes.io~projected",
	}
}

// kindOf returns how a volume is made. The error means that it cannot be made here at all.
func kindOf(v *v1.Volume) (kind, error) {
	const noSwap = "noswap"
	switch {
	case v.HostPath != nil:
		return kind{}, nil
	case v.ConfigMap != nil:
		return kind{folder: "kubernetes.io~configmap", content: true}, nil
	case v.Secret != nil:
		return kind{"kubernetes.io~secret", noSwap, true}, nil
	case v.DownwardAPI != nil:
		return kind{"kubernetes.io~downward-api", noSwap, true}, nil
	case v.Projected != nil:
		return kind{"kubernetes.io~projected", noSwap, true}, nil
	case v.EmptyDir != nil || v.VolumeSource == v1.VolumeSource{}: // a volume of no kind is an emptyDir by the API's defaults
		k := kind{folder: "kubernetes.io~empty-dir"}
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumDefault {
			return k, nil
		}
		if v.EmptyDir.Medium != v1.StorageMediumMemory {
			return k, fmt.Errorf("unknown storage medium %q", v.EmptyDir.Medium)
		}
		k.options = noSwap
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() > 0 {
			k.options += fmt.Sprintf(",size=%d", limit.Value())
		}
		return k, nil
	}
	return kind{}, errors.New("no volume plugin matched")
}

// makeDir makes a volume's folder, open to all as upstream's are: the folders above it restrict access. A volume in
// memory is a tmpfs. What an earlier run made stays as it is.
func makeDir(dir string, k kind) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err == nil {
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask is
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	if k.options == "" || isMount(dir) {
		return nil
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, k.options)
	if errors.Is(err, unix.EINVAL) { // noswap is known since Linux 6.4
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.TrimPrefix(strings.TrimPrefix(k.options, "noswap"), ","))
	}
	if err != nil {
		return &os.PathError{Op: "mounting a tmpfs", Path: dir, Err: err}
	}
	return nil
}

// isMount reports whether something is mounted at dir: then its device differs from that of the folder above.
func isMount(dir string) bool {
	var here, above unix.Stat_t
	return unix.Lstat(dir, &here) == nil && unix.Lstat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}

// mountsBelow lists what is mounted below a folder, in the order of mounting.
func mountsBelow(dir string) (paths []string, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	all, err := procfs.GetMounts()
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for _, mount := range all {
		if at := unescape.Replace(mount.MountPoint); strings.HasPrefix(at, dir+"/") {
			paths = append(paths, at)
		}
	}
	return paths, nil
}

// removeVolumes removes the volumes below a pod's folder, also those that an earlier run made. It returns the names of
// those that are still there, for example because something is mounted inside.
func removeVolumes(dir string) (left []string, err error) {
	if dir, err = filepath.EvalSymlinks(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var problems []error
	for _, folder := range folders() {
		entries, _ := os.ReadDir(filepath.Join(dir, "volumes", folder))
		for _, e := range entries {
			if err := removeVolume(filepath.Join(dir, "volumes", folder, e.Name())); err != nil {
				left = append(left, e.Name())
				problems = append(problems, err)
			}
		}
	}
	return left, errors.Join(problems...)
}

func removeVolume(dir string) error {
	if isMount(dir) {
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmounting", Path: dir, Err: err}
		}
	}
	if inside, err := mountsBelow(dir); err != nil || len(inside) > 0 {
		return errors.Join(fmt.Errorf("volume %s holds mounts %v", filepath.Base(dir), inside), err)
	}
	return os.RemoveAll(dir)
}

// containers yields all of a pod's containers, of every sort.
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

// used names the volumes that a container of the pod uses, sorted. Others are not made.
func used(pod *v1.Pod) []string {
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

// nested are the folders that a volume must have because another volume is mounted inside of it: the runtime cannot
// make them where containers may only read (pkg/volume/util/nested_volumes.go upstream).
func nested(pod *v1.Pod, volume string) []string {
	var dirs []string
	for c := range containers(pod) {
		for _, outer := range c.VolumeMounts {
			for _, inner := range c.VolumeMounts {
				below, ok := strings.CutPrefix(path.Clean(inner.MountPath), strings.TrimSuffix(path.Clean(outer.MountPath), "/")+"/")
				if outer.Name == volume && ok && filepath.IsLocal(below) {
					dirs = append(dirs, below)
				}
			}
		}
	}
	return dirs
}

// checkHostPath makes a path of the host if the pod asks for it, and checks that it is of the type the pod wants
// (pkg/volume/hostpath upstream).
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
		return os.WriteFile(source.Path, nil, 0o644)
	}
	want, ok := map[v1.HostPathType]fs.FileMode{
		v1.HostPathDirectory: fs.ModeDir, v1.HostPathDirectoryOrCreate: fs.ModeDir, v1.HostPathFile: 0, v1.HostPathFileOrCreate: 0,
		v1.HostPathSocket: fs.ModeSocket, v1.HostPathCharDev: fs.ModeDevice | fs.ModeCharDevice, v1.HostPathBlockDev: fs.ModeDevice,
	}[*source.Type]
	if !ok {
		return fmt.Errorf("%s is an invalid volume type", *source.Type)
	}
	if err != nil || info.Mode().Type() != want {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, *source.Type)
	}
	return nil
}
