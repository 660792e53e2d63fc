package syncloop

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// cgroupMount is where the cgroups are mounted: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupMount = "/sys/fs/cgroup"

// cgroupParent is a pod's cgroup in the form of CRI's cgroup_parent: below kubepods, and below the cgroup of its class
// if that is not Guaranteed. For systemd it is the name of a slice, which contains those above it (pkg/kubelet/cm
// upstream). root is the kubelet's --cgroup-root. On a node with a kubelet it must not be the kubelet's, which kills
// all pods below its root that it does not know. Without a UID it is the cgroup of all pods.
func cgroupParent(root string, systemd bool, class v1.PodQOSClass, uid types.UID) string {
	parts := append(strings.FieldsFunc(root, func(r rune) bool { return r == '/' }), "kubepods")
	if uid != "" {
		if class != v1.PodQOSGuaranteed {
			parts = append(parts, strings.ToLower(string(class)))
		}
		parts = append(parts, "pod"+string(uid))
	}
	if !systemd {
		return "/" + strings.Join(parts, "/")
	}
	for i, part := range parts { // a dash separates a slice from the one above it
		parts[i] = strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

func (s *SyncLoop) cgroupParent(p *v1.Pod) string {
	k := s.cfg.Kubelet
	return cgroupParent(k.CgroupRoot, k.CgroupDriver == "systemd", pod.QOSClass(p), p.UID)
}

// removeCgroups removes what runtimes leave of the cgroups of a pod that has ended.
func (s *SyncLoop) removeCgroups(p *v1.Pod) {
	removeTrees(cgroupMount, cgroupPath(s.cgroupParent(p)))
	s.log.V(4).Info("Pod termination removed cgroups", "podUID", p.UID)
}

// cgroupRootFile is the file in the root directory with the cgroup root that was used last. Cleanup needs it, since it
// does not read the kubelet's configuration.
const cgroupRootFile = "io.kdiag.syncloop.cgroups"

// forgetCgroups removes the cgroups below the root on record, and the file. At the top of the hierarchy kubepods may be
// that of a kubelet, and stays.
func forgetCgroups(mount, rootDir string) error {
	file := filepath.Join(rootDir, cgroupRootFile)
	root, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if filepath.Join("/", string(root)) != "/" {
		for _, systemd := range []bool{false, true} {
			pods := cgroupPath(cgroupParent(string(root), systemd, "", ""))
			removeTrees(mount, pods)
			for _, h := range hierarchies(mount) {
				_ = os.Remove(filepath.Join(h, filepath.Dir(pods))) // unless something else is in it
			}
		}
	}
	return os.Remove(file)
}

// removeTrees removes the empty folders at path and below it, the deepest first, in all hierarchies. The kernel refuses
// to remove a cgroup that is in use.
func removeTrees(mount, path string) {
	for _, h := range hierarchies(mount) {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(h, path), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // a folder that is gone needs no removal
		})
		for _, dir := range slices.Backward(dirs) {
			_ = os.Remove(dir)
		}
	}
}

// hierarchies are the mount itself, which is the one of version 2, and all folders in it, those of version 1.
func hierarchies(mount string) []string {
	below, _ := filepath.Glob(filepath.Join(mount, "*"))
	return append(below, mount)
}

// cgroupPath is the path of CRI's cgroup_parent: a path as it is, or the name of a systemd slice, which lies in those that its
// dashes name: kubepods-besteffort.slice in kubepods.slice.
func cgroupPath(parent string) string {
	if strings.Contains(parent, "/") {
		return parent
	}
	var path string
	for i, r := range parent {
		if r == '-' {
			path = filepath.Join(path, parent[:i]+".slice")
		}
	}
	return filepath.Join(path, parent)
}
