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

// The kinds of an Object.
const (
	KindPodSandbox = "PodSandbox"
	KindContainer  = "Container"
)

const (
	// maxEntries bounds what is read of one directory and what Objects returns: several times what a full node has.
	maxEntries = 20_000
	// maxSpec bounds the size of an OCI specification, in bytes. Usual ones have 10 to 40 KB.
	maxSpec = 4 << 20
	// taskDir is where containerd keeps one bundle per running task, by namespace and id, below its state directory.
	taskDir = "io.containerd.runtime.v2.task"
	// crioBundles is where CRI-O keeps its bundles.
	crioBundles = "/run/containers/storage/overlay-containers"
)

// An Object is a sandbox or container that the host knows of. Fields other than Kind and ID are empty where the host's
// files do not have them.
type Object struct {
	Kind      string // KindPodSandbox or KindContainer
	ID        string
	Name      string // the container's name; empty for a sandbox
	Namespace string
	Pod       string
	PodUID    string
}

// Objects returns the sandboxes and containers that the host knows without asking the runtime, for when the runtime's
// lists hang: from the links in /var/log/containers, the bundles in the runtimes' state directories and the command
// lines of the shims. Some of them may be gone from the runtime by now; dead containers are known as long as their
// log is linked.
//
// The order is by namespace, pod, kind (the sandbox first), name and id. When ctx ends first, the result is what was
// found until then.
func (p Population) Objects(ctx context.Context) []Object {
	sources := []func() []Object{func() []Object { return logObjects(p.root) }}
	for _, dir := range stateFolders(p.root, p) {
		sources = append(sources, func() []Object { return bundles(filepath.Join(p.root, dir, taskDir, "k8s.io")) })
	}
	sources = append(sources, func() []Object { return bundles(filepath.Join(p.root, crioBundles)) }, p.sandboxes)
	keys := make([]int, len(sources))
	for i := range keys {
		keys[i] = i
	}
	// An error here means fewer objects, and there is nothing that the caller could do about it.
	found, _ := gather(ctx, keys, func(_ *position, i int) ([]Object, bool) { return sources[i](), true })
	byID := map[string]Object{}
	for i := range sources { // those that know more come first
		for _, o := range found[i] {
			if old, ok := byID[o.ID]; plausibleID(o.ID) && (ok || len(byID) < maxEntries) {
				byID[o.ID] = old.or(o)
			}
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), -cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID),
		)
	})
}

// or fills in what is not known of an object with what another source knows.
func (o Object) or(other Object) Object {
	return Object{
		Kind: cmp.Or(o.Kind, other.Kind), ID: other.ID, Name: cmp.Or(o.Name, other.Name),
		Namespace: cmp.Or(o.Namespace, other.Namespace), Pod: cmp.Or(o.Pod, other.Pod), PodUID: cmp.Or(o.PodUID, other.PodUID),
	}
}

// sandboxes returns the sandboxes that containerd's shims serve for Kubernetes.
func (p Population) sandboxes() []Object {
	var list []Object
	for _, shim := range p.of(RoleShim) {
		ns, ok := flagValue(p.argv[shim.PID], "namespace")
		if !strings.HasPrefix(shim.Name, "conmon") && (!ok || ns == "k8s.io") {
			list = append(list, Object{Kind: KindPodSandbox, ID: shim.ObjectID})
		}
	}
	return list
}

// logObjects reads the links that the kubelet makes in /var/log/containers, to
// .../<namespace>_<pod>_<uid>/<container>/0.log.
func logObjects(root string) []Object {
	dir := filepath.Join(root, "var/log/containers")
	var list []Object
	for _, name := range names(dir) {
		o, ok := parseLogName(name)
		if !ok {
			continue
		}
		target, _ := os.Readlink(filepath.Join(dir, name))
		if parts := strings.Split(filepath.Base(filepath.Dir(filepath.Dir(target))), "_"); len(parts) == 3 {
			o.PodUID = parts[2]
		}
		list = append(list, o)
	}
	return list
}

// parseLogName parses <pod>_<namespace>_<container>-<id>.log.
func parseLogName(name string) (Object, bool) {
	stem, ok := strings.CutSuffix(name, ".log")
	dash := strings.LastIndexByte(stem, '-')
	if !ok || dash < 0 || !isID(stem[dash+1:]) {
		return Object{}, false
	}
	parts := strings.Split(stem[:dash], "_")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return Object{}, false
	}
	return Object{Kind: KindContainer, ID: stem[dash+1:], Pod: parts[0], Namespace: parts[1], Name: parts[2]}, true
}

// bundles reads a directory that holds a bundle, or its userdata as CRI-O keeps it, per id.
func bundles(dir string) []Object {
	var list []Object
	for _, id := range names(dir) {
		for _, file := range []string{"config.json", "userdata/config.json"} {
			if b, err := readLimited(filepath.Join(dir, id, file), maxSpec); err == nil {
				list = append(list, parseBundle(id, b))
				break
			}
		}
	}
	return list
}

// parseBundle takes the names from the annotations that containerd's CRI plugin and CRI-O write into a specification.
// One of neither is not of Kubernetes: the result's ID is empty. The container's environment, which is in the same
// file, is skipped.
func parseBundle(id string, config []byte) Object {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(config, &spec); err != nil {
		return Object{}
	}
	first := func(keys ...string) string {
		for _, key := range keys {
			if v := spec.Annotations[key]; v != "" {
				return v
			}
		}
		return ""
	}
	o := Object{
		ID:        id,
		Namespace: first("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace", "io.kubernetes.cri-o.Namespace"),
		Pod:       first("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri-o.KubeName"),
		PodUID:    first("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"),
	}
	switch first("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType") {
	case "sandbox":
		o.Kind = KindPodSandbox
	case "container":
		o.Kind = KindContainer
		o.Name = first("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
	default:
		return Object{}
	}
	return o
}
