package gc

import (
	"strings"

	"github.com/kdiag/kdiag/crictl"
)

// A KubeletPod holds the fields that kdiag uses of one pod of the kubelet's /pods.
type KubeletPod struct {
	UID       string
	Namespace string
	Name      string
	Main      []string // names of spec.containers; init containers and sidecars are not among them
}

// A KubeletView lists the pods of a node as the kubelet has them, by three sources. Each part is complete or missing;
// the Without field of a missing part holds the reason.
type KubeletView struct {
	Pods        []KubeletPod // the whole answer of the kubelet's /pods
	PodsWithout string       // why there is none, such as "not authorised"; empty when Pods is complete

	Dirs        []string // names of the pod directories below the kubelet's root: UIDs
	DirsWithout string

	Manifests        []string // names in the static pod manifests, as ReadManifests finds them
	ManifestsWithout string
}

// A Liveness decides which pods are gone. The zero value knows nothing, so no pod is.
type Liveness struct {
	missing   []string
	complete  bool
	byUID     map[string]*KubeletPod
	byName    map[[2]string]bool // namespace and name
	dirs      map[string]bool
	manifests map[string]bool
}

// NewLiveness combines the evidence.
func NewLiveness(e *KubeletView) *Liveness {
	l := &Liveness{
		byUID: map[string]*KubeletPod{}, byName: map[[2]string]bool{}, dirs: map[string]bool{},
		manifests: map[string]bool{},
	}
	for _, part := range []struct{ name, without string }{
		{"the kubelet's pods", e.PodsWithout},
		{"the pod directories", e.DirsWithout},
		{"the static manifests", e.ManifestsWithout},
	} {
		if part.without != "" {
			l.missing = append(l.missing, part.name+": "+part.without)
		}
	}
	l.complete = len(l.missing) == 0
	for i := range e.Pods {
		pod := &e.Pods[i]
		l.byUID[pod.UID] = pod
		l.byName[[2]string{pod.Namespace, pod.Name}] = true
	}
	for _, uid := range e.Dirs {
		l.dirs[uid] = true
	}
	for _, name := range e.Manifests {
		l.manifests[name] = true
	}
	return l
}

// Missing lists the evidence that is missing, and why. As long as some is missing, no pod counts as gone.
func (l *Liveness) Missing() []string { return l.missing }

// Gone reports whether it is proven that a pod no longer exists: all evidence is there, and none of it contains the
// pod. fromAPI means that the pod came from the API server, by the annotation of its sandboxes. Any other pod may be a
// static one, whose UID the kubelet derives from the manifest and the API server does not know, so for it the name
// counts too.
func (l *Liveness) Gone(pod crictl.Pod, fromAPI bool) bool {
	if !l.complete || pod.UID == "" || l.byUID[pod.UID] != nil || l.dirs[pod.UID] {
		return false
	}
	return fromAPI || !l.byName[[2]string{pod.Namespace, pod.Name}] && !l.named(pod.Name)
}

// named reports whether a manifest may name the pod. The kubelet appends "-" and the node's name, which may contain
// dashes and dots itself, to the name in the manifest.
func (l *Liveness) named(pod string) bool {
	for at := range len(pod) {
		if pod[at] == '-' && l.manifests[pod[:at]] {
			return true
		}
	}
	return l.manifests[pod] || l.manifests[strings.ToLower(pod)]
}
