package host

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The roles of a Folder.
const (
	FolderRuntime = "runtime" // containers and images
	FolderState   = "state"   // of the runtime, gone at the next boot
	FolderKubelet = "kubelet" // pods and their volumes
	FolderLogs    = "logs"
	FolderRoot    = "root"
)

// The databases that a daemon keeps open below its root folder: of containerd's metadata plugin, and of docker's
// volumes.
const (
	boltFile   = "/io.containerd.metadata.v1.bolt/meta.db"
	dockerFile = "/volumes/metadata.db"
)

// A Folder is a folder that the node depends on.
type Folder struct {
	Path string // as the host sees it, such as /var/lib/containerd
	Role string // one of the constants Folder*
	PID  int    // of the runtime's daemon that has its database or its storage there; 0 when none was seen
}

// Folders returns the folders that the node depends on. The runtime's is where its daemon has its database open or its
// storage mounted, else each of the usual ones that exists; the kubelet's and the logs' are given, or the defaults.
// Nothing below them is read.
func Folders(root string, processes Population, kubeletDir, logsDir string) []Folder {
	var all []Folder
	add := func(role string, pid int, dirs ...string) {
		for _, dir := range dirs {
			all = append(all, Folder{Path: dir, Role: role, PID: pid})
		}
	}
	for _, p := range processes.of(RoleRuntime) {
		dir := filepath.Join(processes.dir(p.PID), "fd")
		for _, fd := range names(dir) {
			for _, file := range []string{boltFile, dockerFile} {
				if data := linkedFolder(root, filepath.Join(dir, fd), file); data != "" {
					add(FolderRuntime, p.PID, data)
				}
			}
		}
		if p.Name == "crio" {
			add(FolderRuntime, p.PID, storageRoots(processes.dir(p.PID))...)
		}
	}
	if len(all) == 0 {
		add(FolderRuntime, 0, existing(root, processes.names.DataDirs)...)
	}
	add(FolderState, 0, stateFolders(root, processes)...)
	add(FolderKubelet, 0, cmp.Or(kubeletDir, "/var/lib/kubelet"))
	add(FolderLogs, 0, cmp.Or(logsDir, "/var/log/pods"), "/var/log")
	add(FolderRoot, 0, "/")
	return slices.Compact(all) // --pod-logs-dir may be /var/log itself
}

// storageRoots returns the folders of containers/storage that a process sees. The overlay driver mounts its folder in
// each over itself, so that other mounts do not reach it (drivers/overlay in containers/storage):
//
//	48 47 0:252 /containers/overlay /data/containers/overlay rw - tmpfs tmpfs rw
func storageRoots(dir string) (roots []string) {
	text, _ := readLimited(filepath.Join(dir, "mountinfo"), 8<<20)
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "/overlay ") {
			continue
		}
		m, err := parseMountLine(line)
		if err == nil && strings.HasSuffix(m.root, "/overlay") && filepath.Base(m.point) == "overlay" {
			roots = append(roots, filepath.Dir(m.point))
		}
	}
	return roots
}

// maxShims bounds the shims whose working directory is read. A node has one or two state directories.
const maxShims = 256

// stateFolders returns the state directories of runtimes: the working directory of each of containerd's shims lies in
// one. Without such a shim they are the default ones that exist.
func stateFolders(root string, processes Population) []string {
	var all []string
	shims := processes.of(RoleShim)
	for _, shim := range shims[:min(len(shims), maxShims)] {
		dir := linkedFolder(root, filepath.Join(processes.dir(shim.PID), "cwd"), "/"+taskDir+"/")
		if dir != "" && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	if len(all) > 0 {
		return all
	}
	return existing(root, processes.names.StateDirs)
}

// linkedFolder returns the folder above a part of the path that a link in /proc leads to; empty for another path. In
// a container (docker in docker, kind) a path is another file than on the host, so both must be one file.
func linkedFolder(root, link, part string) string {
	target, _ := os.Readlink(link)
	dir, _, ok := strings.Cut(target, part)
	if !ok {
		return ""
	}
	seen, errSeen := os.Stat(link)
	here, errHere := os.Stat(filepath.Join(root, target))
	if errSeen != nil || errHere != nil || !os.SameFile(seen, here) {
		return ""
	}
	return dir
}

func existing(root string, dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Lstat(filepath.Join(root, dir))
		return err != nil
	})
}

// The kinds of an Object.
const (
	KindPodSandbox = "PodSandbox"
	KindContainer  = "Container"
)

const (
	// maxEntries bounds the entries of one directory: several times those of a full node.
	maxEntries = 20_000
	// maxSpec bounds the size of an OCI specification, in bytes. Usual ones have 10 to 40 KB.
	maxSpec = 4 << 20
	// taskDir is where containerd keeps one bundle per running task, by namespace and id, below its state directory.
	taskDir = "io.containerd.runtime.v2.task"
	// crioBundles is where CRI-O keeps its bundles.
	crioBundles = "/run/containers/storage/overlay-containers"
)

// An Object is a sandbox or container that has a bundle on the host. Fields other than Kind and ID may be empty.
type Object struct {
	Kind      string // KindPodSandbox or KindContainer
	ID        string
	Name      string // the container's name; empty for a sandbox
	Namespace string
	Pod       string
	PodUID    string
}

// Objects returns the sandboxes and containers that run from the bundles in the runtimes' state directories, for when
// the runtime's lists hang. Some may be gone from the runtime by now.
//
// The order is by namespace, pod, kind (the sandbox first), name and id. When ctx ends first, the result is a
// part.
func (p Population) Objects(ctx context.Context) []Object {
	dirs := []string{filepath.Join(p.root, crioBundles)}
	for _, dir := range stateFolders(p.root, p) {
		dirs = append(dirs, filepath.Join(p.root, dir, taskDir, "k8s.io"))
	}
	// An error here means fewer objects, and there is nothing that the caller could do about it.
	found, _ := gather(ctx, "reading the bundles of shims", dirs,
		func(_ *position, dir string) ([]Object, bool) { return bundles(dir), true })
	all := slices.Concat(slices.Collect(maps.Values(found))...)
	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), -cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID),
		)
	})
	return all
}

// bundles reads a directory that holds a bundle, or its userdata as CRI-O keeps it, per id.
func bundles(dir string) []Object {
	var list []Object
	for _, id := range names(dir) {
		for _, file := range []string{"config.json", "userdata/config.json"} {
			config, err := readLimited(filepath.Join(dir, id, file), maxSpec)
			if o, ok := parseBundle(id, config); err == nil && ok && plausibleID(id) {
				list = append(list, o)
			}
		}
	}
	return list
}

// parseBundle takes the names from the annotations that containerd's CRI plugin and CRI-O write into a specification;
// false for one of neither. The container's environment, which is in the same file, is skipped.
func parseBundle(id, config string) (Object, bool) {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal([]byte(config), &spec); err != nil {
		return Object{}, false
	}
	of := func(keys ...string) (value string) {
		for _, key := range slices.Backward(keys) {
			value = cmp.Or(spec.Annotations["io.kubernetes."+key], value)
		}
		return value
	}
	o := Object{
		ID: id, Name: of("cri.container-name", "container.name"),
		Namespace: of("cri.sandbox-namespace", "pod.namespace", "cri-o.Namespace"),
		Pod:       of("cri.sandbox-name", "pod.name", "cri-o.KubeName"),
		PodUID:    of("cri.sandbox-uid", "pod.uid"),
	}
	switch of("cri.container-type", "cri-o.ContainerType") {
	case "sandbox":
		o.Kind = KindPodSandbox
	case "container":
		o.Kind = KindContainer
	}
	return o, o.Kind != ""
}
