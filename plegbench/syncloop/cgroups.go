package syncloop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/runoptions"
)

// cgroupMount is where the cgroups are mounted: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupMount = "/sys/fs/cgroup"

// removeCgroups removes what runtimes leave of the cgroups of a pod that has ended.
func (s *SyncLoop) removeCgroups(uid types.UID) {
	removePodCgroups(cgroupMount, s.cfg.Kubelet.CgroupRoot, uid)
	s.log.V(4).Info("Pod termination removed cgroups", "podUID", uid)
}

// cgroupNotes is the file in the root directory that remembers what a syncLoop with another configuration needs to know to
// clean up: each cgroup root, and the topmost cgroup above the pods' that was not there before, empty if all were.
const cgroupNotes = "io.kdiag.syncloop.cgroups"

func readCgroupNotes(rootDir string) (map[string]string, error) {
	notes := map[string]string{}
	data, err := os.ReadFile(filepath.Join(rootDir, cgroupNotes))
	if errors.Is(err, fs.ErrNotExist) {
		return notes, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &notes)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which cgroups are ours: %w", err)
	}
	return notes, nil
}

// noteCgroups adds a cgroup root to the notes. The runtime makes what is not there when it makes the first pod.
func noteCgroups(mount, rootDir, root string) error {
	notes, err := readCgroupNotes(rootDir)
	if err != nil {
		return err
	}
	if _, noted := notes[root]; noted {
		return nil
	}
	notes[root] = topmostMissing(mount, filepath.Join("/", root, "kubepods"))
	data, err := json.Marshal(notes)
	if err == nil {
		err = os.WriteFile(filepath.Join(rootDir, cgroupNotes), data, 0o640)
	}
	if err != nil {
		return fmt.Errorf("noting which cgroups are ours: %w", err)
	}
	return nil
}

// topmostMissing is the first of the folders on the way to path that no hierarchy has.
func topmostMissing(mount, path string) string {
	at := ""
	for _, part := range strings.Split(path, "/")[1:] {
		at += "/" + part
		has := func(hierarchy string) bool {
			_, err := os.Stat(filepath.Join(hierarchy, at))
			return err == nil
		}
		if !slices.ContainsFunc(hierarchies(mount), has) {
			return at
		}
	}
	return ""
}

// forgetCgroups removes the cgroups of pods, and those above them that are ours, and the notes.
func forgetCgroups(mount, rootDir string, uids map[types.UID]bool) error {
	notes, err := readCgroupNotes(rootDir)
	if err != nil {
		return err
	}
	for root, made := range notes {
		for uid := range uids {
			removePodCgroups(mount, root, uid)
		}
		if made != "" {
			removeTrees(mount, made)
		}
	}
	if err := os.Remove(filepath.Join(rootDir, cgroupNotes)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removePodCgroups removes the cgroups that bear a pod's UID, whichever its quality of service and the driver, in all
// hierarchies. Only empty ones go: the kernel refuses all others.
func removePodCgroups(mount, root string, uid types.UID) {
	if uid == "" || string(uid) != filepath.Base(string(uid)) || !filepath.IsLocal(string(uid)) {
		return // it came from outside, and names no cgroup of ours
	}
	for _, systemd := range []bool{false, true} {
		options := runoptions.New(runoptions.Config{CgroupRoot: root, SystemdCgroups: systemd})
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			p := &v1.Pod{Status: v1.PodStatus{QOSClass: class}}
			p.UID = uid
			removeTrees(mount, cgroupPath(options.CgroupParent(p)))
		}
	}
}

// removeTrees removes the empty folders at path and below it, in all hierarchies.
func removeTrees(mount, path string) {
	for _, h := range hierarchies(mount) {
		removeEmpty(filepath.Join(h, path))
	}
}

// hierarchies are the mount itself and all folders in it: of version 2 the first is meant, of version 1 the others.
func hierarchies(mount string) []string {
	out := []string{mount}
	entries, _ := os.ReadDir(mount) // a machine without cgroups has none to look after
	for _, e := range entries {
		out = append(out, filepath.Join(mount, e.Name()))
	}
	return out
}

// removeEmpty removes a tree of folders, the deepest first. A folder that the kernel refuses to remove, and those above it,
// stay.
func removeEmpty(root string) {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a folder that is gone needs no removal
	})
	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir)
	}
}

// cgroupPath is the path of CRI's cgroup_parent: a path as it is, or the name of a systemd slice, which lies in those that its
// dashes name: kubepods-besteffort.slice in kubepods.slice.
func cgroupPath(parent string) string {
	if strings.Contains(parent, "/") || !strings.HasSuffix(parent, ".slice") {
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
