package host

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
)

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
