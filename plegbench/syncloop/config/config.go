// Package config holds the sources of pods (manifest files, a URL, the API server) and PodConfig, which turns
// their full lists into updates for the syncLoop. A source sets all its pods each time, and PodConfig compares them by
// UID with the source's earlier pods (pkg/kubelet/config upstream).
package config

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An Op is the operation of a PodUpdate (pkg/kubelet/types/pod_update.go upstream).
type Op int

// The operations. A source sends SET; the others go to the syncLoop, in this order: removals make room for additions.
const (
	SET       Op = iota // all pods of the source
	REMOVE              // pods that the source does not have any more
	ADD                 // pods that the source did not have before
	UPDATE              // pods whose spec, labels, annotations or deletion changed
	DELETE              // pods that now have a deletion timestamp: their grace period runs
	RECONCILE           // pods of which only the status changed, which is the kubelet's own to write
)

// String returns the operation as in the kubelet's log lines.
func (o Op) String() string {
	return [...]string{"SET", "REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE"}[o]
}

// A PodUpdate changes the desired pods of a source. Its pods belong to the receiver.
type PodUpdate struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
}

// updatesCap is the capacity of the channel of updates (NewPodConfig in pkg/kubelet/config/config.go upstream).
const updatesCap = 50

// Config configures a PodConfig.
type Config struct {
	Log      logr.Logger
	Recorder record.EventRecorder // gets an event for each pod that is ignored
	Sources  []string             // that must have delivered a list before anything may be removed
}

// A PodConfig merges the full lists of several sources into one ordered stream of updates.
type PodConfig struct {
	cfg     Config
	updates chan PodUpdate
	turn    chan struct{} // holds a token while one list is merged and delivered, so that updates stay in order

	mu   sync.Mutex                       // guards pods
	pods map[string]map[types.UID]*v1.Pod // by source that was seen; the pods are never changed in place
}

// New returns a PodConfig without pods.
func New(cfg Config) *PodConfig {
	return &PodConfig{
		cfg: cfg, updates: make(chan PodUpdate, updatesCap), turn: make(chan struct{}, 1),
		pods: map[string]map[types.UID]*v1.Pod{},
	}
}

// Updates is the stream of changes. It is never closed.
func (c *PodConfig) Updates() <-chan PodUpdate { return c.updates }

// SeenAllSources reports whether every configured source has delivered a list and the syncLoop has handled an update
// from each: seen holds those. Before that, a pod that no source has may still come.
func (c *PodConfig) SeenAllSources(seen map[string]bool) bool {
	c.cfg.Log.V(5).Info("Looking for sources, have seen", "sources", c.cfg.Sources, "seenSources", seen)
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.cfg.Sources,
		func(source string) bool { return c.pods[source] == nil || !seen[source] })
}

// Merge compares a SET, which has all pods of its source, with the source's earlier pods and sends the differences. It
// blocks while the channel of updates is full, until ctx ends; updates that were not sent by then are lost. The pods
// must not be changed afterwards.
func (c *PodConfig) Merge(ctx context.Context, set PodUpdate) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.turn }()
	c.cfg.Log.V(4).Info("Setting pods for source", "source", set.Source)
	pods := c.unique(set.Source, set.Pods)
	c.mu.Lock()
	had := c.pods[set.Source]
	has, changed := merge(set.Source, had, pods, time.Now().Format(time.RFC3339Nano))
	c.pods[set.Source] = has
	c.mu.Unlock()
	for _, u := range updates(set.Source, changed, had == nil) {
		select {
		case c.updates <- u:
		case <-ctx.Done():
			return
		}
	}
}

// unique drops pods with a name that occurs earlier in the same list.
func (c *PodConfig) unique(source string, pods []*v1.Pod) []*v1.Pod {
	names := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
		name := pod.FullName(p)
		if names[name] {
			c.cfg.Log.Info("Pod failed validation due to duplicate pod name, ignoring", "pod", klog.KObj(p), "source",
				source)
			c.cfg.Recorder.Eventf(p, v1.EventTypeWarning, "FailedValidation",
				"Error validating pod %s_%s(%s) from %s due to duplicate pod name %q, ignoring", p.Name, p.Namespace,
				p.UID, source, p.Name)
			return true
		}
		names[name] = true
		return false
	})
}

// merge compares the full list of a source with its earlier pods and returns its present pods and the changes. seen is
// the time stamped on new pods. Neither had nor the list nor any pod in them is changed.
func merge(
	source string, had map[types.UID]*v1.Pod, list []*v1.Pod, seen string,
) (has map[types.UID]*v1.Pod, changed map[Op][]*v1.Pod) {
	has, changed = map[types.UID]*v1.Pod{}, map[Op][]*v1.Pod{}
	note := func(op Op, p *v1.Pod) *v1.Pod {
		changed[op] = append(changed[op], p)
		return p
	}
	for _, p := range list {
		old, known := had[p.UID]
		switch {
		case !known:
			p = withAnnotations(p, map[string]string{
				pod.ConfigSourceAnnotation:    source,
				pod.ConfigFirstSeenAnnotation: seen,
			})
			has[p.UID] = note(ADD, p)
		case differs(old, p):
			local := annotations(old, true)
			op := UPDATE
			if p.DeletionTimestamp != nil {
				op = DELETE
			}
			has[p.UID] = note(op, withAnnotations(p, local))
		case !reflect.DeepEqual(old.Status, p.Status):
			old = old.DeepCopy()
			old.Status = p.Status
			has[p.UID] = note(RECONCILE, old)
		default:
			has[p.UID] = old
		}
	}
	for uid, p := range had {
		if _, still := has[uid]; !still {
			note(REMOVE, p)
		}
	}
	return has, changed
}

// updates puts changes in the order of delivery. A first list without changes becomes an empty ADD, which announces
// the source.
func updates(source string, changed map[Op][]*v1.Pod, first bool) []PodUpdate {
	var out []PodUpdate
	for op := REMOVE; op <= RECONCILE; op++ {
		var pods []*v1.Pod
		for _, p := range changed[op] {
			pods = append(pods, p.DeepCopy())
		}
		if len(pods) > 0 || first && op == ADD {
			out = append(out, PodUpdate{Op: op, Source: source, Pods: pods})
		}
	}
	return out
}

// differs reports a change that a pod worker must act on. Statuses are the kubelet's own, resource versions change with
// each of them, and neither counts.
func differs(a, b *v1.Pod) bool {
	return !reflect.DeepEqual(a.Spec, b.Spec) ||
		!reflect.DeepEqual(a.Labels, b.Labels) ||
		!reflect.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) ||
		!reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) ||
		!maps.Equal(annotations(a, false), annotations(b, false))
}

// annotations are those of a pod that the kubelet itself keeps on the pods in its memory (localAnnotations upstream),
// or all others. The hash of a static pod is not local: it is its UID.
func annotations(p *v1.Pod, local bool) map[string]string {
	out := maps.Clone(p.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		is := key == pod.ConfigSourceAnnotation || key == pod.ConfigMirrorAnnotation ||
			key == pod.ConfigFirstSeenAnnotation
		return is != local
	})
	return out
}

// withAnnotations is a copy of a pod with more annotations.
func withAnnotations(p *v1.Pod, more map[string]string) *v1.Pod {
	p = p.DeepCopy()
	for key, value := range more {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	}
	return p
}
