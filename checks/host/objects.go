package host

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The kinds of an Object.
const (
	KindPodSandbox = "PodSandbox"
	KindContainer  = "Container"
)

// maxEntries bounds what is read of one directory, and maxObjects what Objects returns. A node with more than this many
// containers has been told enough about by then.
const (
	maxEntries = 20_000
	maxObjects = 20_000
)

// An Object is a sandbox or container that the host knows of. Fields other than Kind and ID are empty where the host's
// files do not say.
type Object struct {
	Kind      string // KindPodSandbox or KindContainer
	ID        string
	Name      string // the container's name; empty for a sandbox
	Namespace string
	Pod       string
	PodUID    string
}

// Objects returns the sandboxes and containers that the host knows without asking the runtime, so that there is
// something to ask about when the runtime's lists hang. It looks at the runtimes' state directories, at the shims'
// command lines, at the cgroups of the shims' children and at the links in /var/log/containers; some of what it finds
// may be gone from the runtime by now. Dead containers are known only as long as their log is linked.
//
// The order is by namespace, pod, kind (the sandbox first), name and id. When ctx ends first, the reader is left behind
// and the result is what was found until then.
func Objects(ctx context.Context, root string) []Object {
	known := &objects{byID: map[string]Object{}}
	s := newScan(root)
	// An error here means fewer objects, which is all that the caller would do about it.
	_ = s.bounded(ctx, func() error {
		known.readLogs(ctx, root)
		known.readBundles(ctx, []string{
			filepath.Join(root, "run/containerd", taskDir, "k8s.io"),
			filepath.Join(root, "run/k3s/containerd", taskDir, "k8s.io"),
			filepath.Join(root, "run/k0s/containerd", taskDir, "k8s.io"),
			filepath.Join(root, "var/snap/microk8s/common/run/containerd", taskDir, "k8s.io"),
			filepath.Join(root, "run/containers/storage/overlay-containers"),
		})
		err := s.processes(ctx)
		known.readShims(ctx, root, s)
		return err
	})
	return known.sorted()
}

// objects collects what is known of each id. Sources that know more are read first; later ones fill in what is missing.
type objects struct {
	mu   sync.Mutex
	byID map[string]Object
}

func (k *objects) add(o Object) {
	if !plausibleID(o.ID) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old, ok := k.byID[o.ID]
	if !ok && len(k.byID) >= maxObjects {
		return
	}
	k.byID[o.ID] = Object{
		Kind:      cmp.Or(old.Kind, o.Kind),
		ID:        o.ID,
		Name:      cmp.Or(old.Name, o.Name),
		Namespace: cmp.Or(old.Namespace, o.Namespace),
		Pod:       cmp.Or(old.Pod, o.Pod),
		PodUID:    cmp.Or(old.PodUID, o.PodUID),
	}
}

func (k *objects) sorted() []Object {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.byID), func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Pod, b.Pod),
			-cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

// readLogs reads the links that the kubelet makes in /var/log/containers.
func (k *objects) readLogs(ctx context.Context, root string) {
	dir := filepath.Join(root, "var/log/containers")
	for _, name := range names(dir) {
		if ctx.Err() != nil {
			return
		}
		o, ok := parseLogName(name)
		if !ok {
			continue
		}
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil {
			o.PodUID = uidOfLog(target)
		}
		k.add(o)
	}
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

// uidOfLog takes the UID out of the link's target, .../<namespace>_<pod>_<uid>/<container>/<restart>.log.
func uidOfLog(target string) string {
	pod := filepath.Base(filepath.Dir(filepath.Dir(target)))
	parts := strings.Split(pod, "_")
	if len(parts) != 3 {
		return ""
	}
	return parts[2]
}

// readShims takes the sandbox from each shim's arguments, the containers from its working directory, which lies among
// the bundles of its containerd wherever that keeps its state, and from the cgroups of its children.
func (k *objects) readShims(ctx context.Context, root string, s *scan) {
	shims := map[int]string{}
	dirs := map[string]bool{}
	for _, p := range s.result() {
		if p.Role != RoleShim || ctx.Err() != nil {
			continue
		}
		argv := s.argv[p.PID]
		if ns, ok := flagValue(argv, "namespace"); ok && ns != "k8s.io" {
			continue
		}
		shims[p.PID] = p.ObjectID
		k.add(shimTarget(p, argv))
		if dir, err := os.Readlink(filepath.Join(s.proc, strconv.Itoa(p.PID), "cwd")); err == nil && strings.Contains(dir, taskDir) {
			dirs[filepath.Join(root, filepath.Dir(dir))] = true
		}
	}
	k.readBundles(ctx, slices.Sorted(maps.Keys(dirs)))
	for _, pid := range slices.Sorted(maps.Keys(s.all)) {
		st := s.all[pid]
		sandbox, ok := shims[st.ppid]
		if !ok || ctx.Err() != nil {
			continue
		}
		name := parseCgroup(s.readOf(st, "cgroup"))
		if name.id == "" {
			continue
		}
		k.add(Object{Kind: KindContainer, ID: name.id, PodUID: name.podUID})
		if sandbox != name.id && name.podUID != "" {
			k.add(Object{Kind: KindPodSandbox, ID: sandbox, PodUID: name.podUID})
		}
	}
}
