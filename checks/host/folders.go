package host

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// What a Folder is to the node.
const (
	FolderRuntime = "runtime" // containers and images
	FolderState   = "state"   // of the runtime: what runs, until the next boot
	FolderKubelet = "kubelet" // pods and their volumes
	FolderLogs    = "logs"
	FolderRoot    = "root"
)

// boltFile is the database that containerd keeps open below its root folder (metadata plugin).
const boltFile = "/io.containerd.metadata.v1.bolt/meta.db"

// usualRoots are where runtimes keep containers and images unless they are told otherwise.
var usualRoots = []string{
	"/var/lib/containerd", "/var/lib/containers/storage", "/var/lib/docker", "/var/lib/rancher/k3s/agent/containerd",
	"/var/lib/rancher/rke2/agent/containerd", "/var/lib/k0s/containerd", "/var/snap/microk8s/common/var/lib/containerd",
}

// usualStates are where runtimes keep the state of what runs unless they are told otherwise.
var usualStates = []string{"/run/containerd", "/run/k3s/containerd", "/run/crio", "/run/containers/storage"}

// Folders returns the folders that matter to the node. The runtime's is where its daemon has its database open, else each
// of the usual ones that is there; the kubelet's and the logs' are given, or the defaults. Nothing below them is read.
func Folders(root string, people Population, kubeletDir, logsDir string) []Folder {
	var all []Folder
	add := func(role, path string, pid int) {
		for _, f := range all {
			if f.Path == path && f.Role == role {
				return
			}
		}
		all = append(all, Folder{Path: path, Role: role, PID: pid})
	}
	for _, p := range people.daemons() { // without them, the usual places
		if p.Role != RoleRuntime {
			continue
		}
		if dir := containerdRoot(root, p.PID); dir != "" {
			add(FolderRuntime, dir, p.PID)
		}
	}
	if len(all) == 0 {
		for _, dir := range usualRoots {
			if _, err := os.Lstat(filepath.Join(root, dir)); err == nil {
				add(FolderRuntime, dir, 0)
			}
		}
	}
	for _, dir := range stateFolders(root, people) {
		add(FolderState, dir, 0)
	}
	add(FolderKubelet, cmp.Or(kubeletDir, "/var/lib/kubelet"), 0)
	add(FolderLogs, cmp.Or(logsDir, "/var/log/pods"), 0)
	add(FolderLogs, "/var/log", 0)
	add(FolderRoot, "/", 0)
	return all
}

// containerdRoot finds containerd's root folder by the database that the process has open; empty for other daemons and
// where its descriptors may not be read. A deleted file's name says so and is none. That of a daemon in a container (docker in
// docker, kind) means a place that is another one out here.
func containerdRoot(root string, pid int) string {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid), "fd")
	for _, fd := range names(dir) {
		target, err := os.Readlink(filepath.Join(dir, fd))
		if err != nil {
			continue
		}
		base, ok := strings.CutSuffix(target, boltFile)
		if ok && filepath.IsAbs(base) && sameFile(filepath.Join(dir, fd), filepath.Join(root, target)) {
			return base
		}
	}
	return ""
}

// stateFolders finds where runtimes keep the state of what runs: there each shim of containerd has its working directory.
// Where no shim says so it is each of the usual places that is there.
func stateFolders(root string, people Population) []string {
	var all []string
	for _, pid := range people.shims() {
		cwd := filepath.Join(root, "proc", strconv.Itoa(pid), "cwd")
		target, err := os.Readlink(cwd)
		base, _, ok := strings.Cut(target, "/"+taskDir+"/")
		if err == nil && ok && filepath.IsAbs(base) && !slices.Contains(all, base) && sameFile(cwd, filepath.Join(root, target)) {
			all = append(all, base)
		}
	}
	if len(all) > 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(usualStates), func(dir string) bool {
		_, err := os.Lstat(filepath.Join(root, dir))
		return err != nil
	})
}

// sameFile reports whether two names lead to one file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
