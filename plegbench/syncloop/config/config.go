// Package config holds the sources of pods (manifest files, a URL, the API server) and the mux that turns their full
// lists into updates for the syncLoop. A source sends all its pods each time, and the mux compares them by UID with
// what that source had before (pkg/kubelet/config upstream).
package config

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An Op is what happened to the pods of an update.
type Op int

// The operations.
const (
	Add       Op = iota // pods that the source did not have before
	Update              // pods whose spec, labels, annotations or deletion changed
	Delete              // pods that now have a deletion timestamp: their grace period runs
	Remove              // pods that the source does not have any more
	Reconcile           // pods of which only the status changed, which is the kubelet's own to write
)

// String returns the operation as in the kubelet's log lines: ADD, UPDATE, DELETE, REMOVE, RECONCILE.
func (o Op) String() string {
	return [...]string{"ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"}[o]
}

// A PodUpdate is one change of what should run. Its pods belong to the receiver.
type PodUpdate struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
}

// updatesCap is the capacity of the channel of updates (NewPodConfig in pkg/kubelet/config/config.go upstream).
const updatesCap = 50

// Config is what a Mux needs.
type Config struct {
	Log      logr.Logger
	Recorder record.EventRecorder // gets an event for each pod that is ignored
	Sources  []string             // that must have delivered a list before anything may be removed
}

// A Mux merges the full lists of several sources into one ordered stream of updates.
type Mux struct {
	cfg     Config
	updates chan PodUpdate
	turn    chan struct{} // held while one list is merged and delivered, so that updates stay in order

	mu   sync.Mutex                       // guards pods
	pods map[string]map[types.UID]*v1.Pod // by source; a source that was seen has an entry. The pods are never changed in place.
}

// New returns a mux without pods.
func New(cfg Config) *Mux {
	return &Mux{
		cfg: cfg, updates: make(chan PodUpdate, updatesCap), turn: make(chan struct{}, 1), pods: map[string]map[types.UID]*v1.Pod{},
	}
}

// Updates is the stream of changes. It is never closed.
func (m *Mux) Updates() <-chan PodUpdate { return m.updates }

// SeenAllSources reports whether every configured source has delivered a list and the syncLoop has handled an update
// from each: seen holds those. Before that, a pod that no source has may still come.
func (m *Mux) SeenAllSources(seen map[string]bool) bool {
	m.cfg.Log.V(5).Info("Looking for sources, have seen", "sources", m.cfg.Sources, "seenSources", seen)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, source := range m.cfg.Sources {
		if _, delivered := m.pods[source]; !delivered || !seen[source] {
			return false
		}
	}
	return true
}

// Apply takes the full list of one source and sends what changed. It blocks while the channel of updates is full,
// until ctx ends; what was not sent by then is lost. The pods must not be changed afterwards.
func (m *Mux) Apply(ctx context.Context, source string, pods []*v1.Pod) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-m.turn }()
	pods = m.unique(source, pods)
	m.cfg.Log.V(4).Info("Setting pods for source", "source", source)
	for _, u := range m.merge(source, pods) {
		select {
		case m.updates <- u:
		case <-ctx.Done():
			return
		}
	}
}

// merge takes the source's list in and returns the updates to send.
func (m *Mux) merge(source string, pods []*v1.Pod) []PodUpdate {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, seen := m.pods[source]
	has, c := merge(source, had, pods, time.Now().Format(time.RFC3339Nano))
	for _, p := range c.adds {
		m.cfg.Log.V(4).Info("Receiving a new pod", "pod", klog.KObj(p))
	}
	m.pods[source] = has
	return c.updates(source, !seen)
}

func byName(a, b *v1.Pod) int {
	return strings.Compare(pod.Format(a)+"/"+string(a.UID), pod.Format(b)+"/"+string(b.UID))
}

// unique drops pods with a name that occurs earlier in the same list.
func (m *Mux) unique(source string, pods []*v1.Pod) []*v1.Pod {
	names := map[string]bool{}
	var kept []*v1.Pod
	for i, p := range pods {
		name := pod.FullName(p)
		if names[name] {
			m.cfg.Log.Info("Pod failed validation due to duplicate pod name, ignoring", "index", i, "pod", klog.KObj(p), "source", source)
			m.cfg.Recorder.Eventf(p, v1.EventTypeWarning, "FailedValidation",
				"Error validating pod %s_%s(%s) from %s due to duplicate pod name %q, ignoring", p.Name, p.Namespace, p.UID, source, p.Name)
			continue
		}
		names[name] = true
		kept = append(kept, p)
	}
	return kept
}
