package config

import (
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// changes is the difference between two lists of one source.
type changes struct{ removes, adds, changed, deletes, reconciles []*v1.Pod }

// updates puts the changes in the order of delivery: removals make room for additions. A first list without changes
// becomes an empty ADD, which announces the source.
func (c changes) updates(source string, first bool) []PodUpdate {
	var out []PodUpdate
	send := func(op Op, pods []*v1.Pod, always bool) {
		if len(pods) == 0 && !always {
			return
		}
		copies := make([]*v1.Pod, len(pods))
		for i, p := range pods {
			copies[i] = p.DeepCopy()
		}
		out = append(out, PodUpdate{Op: op, Source: source, Pods: copies})
	}
	send(Remove, c.removes, false)
	send(Add, c.adds, false)
	send(Update, c.changed, false)
	send(Delete, c.deletes, false)
	if first && len(c.adds)+len(c.changed)+len(c.deletes) == 0 {
		send(Add, nil, true)
	}
	send(Reconcile, c.reconciles, false)
	return out
}

// merge compares the full list of a source with what it had and returns what it has now and what changed. seen is the
// time stamped on new pods. Neither had nor the list nor any pod in them is changed.
func merge(source string, had map[types.UID]*v1.Pod, list []*v1.Pod, seen string) (map[types.UID]*v1.Pod, changes) {
	has := make(map[types.UID]*v1.Pod, len(list))
	var c changes
	for _, p := range list {
		old, known := had[p.UID]
		if !known {
			p = p.DeepCopy()
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[pod.ConfigSourceAnnotation] = source
			p.Annotations[pod.ConfigFirstSeenAnnotation] = seen
			has[p.UID] = p
			c.adds = append(c.adds, p)
			continue
		}
		if earlier, twice := has[p.UID]; twice {
			old = earlier // two pods of one UID in one list: the second is a change of the first
		}
		switch {
		case differs(old, p):
			old = updated(old, p)
			if p.DeletionTimestamp != nil {
				c.deletes = append(c.deletes, old)
			} else {
				c.changed = append(c.changed, old)
			}
		case !reflect.DeepEqual(old.Status, p.Status):
			old = old.DeepCopy()
			old.Status = p.Status
			c.reconciles = append(c.reconciles, old)
		}
		has[p.UID] = old
	}
	for uid, p := range had {
		if _, still := has[uid]; !still {
			c.removes = append(c.removes, p)
		}
	}
	slices.SortFunc(c.removes, byName)
	return has, c
}

// differs reports a change that a pod worker must act on. Statuses are the kubelet's own, resource versions change with
// each of them, and neither counts.
func differs(a, b *v1.Pod) bool {
	return !reflect.DeepEqual(a.Spec, b.Spec) ||
		!reflect.DeepEqual(a.Labels, b.Labels) ||
		!reflect.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) ||
		!reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) ||
		!maps.Equal(foreign(a.Annotations), foreign(b.Annotations))
}

// foreign returns the annotations that come from outside. The hash of a static pod is one of them: it is its UID.
func foreign(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key, _ string) bool { return local(key) })
	return out
}

// local reports an annotation that the kubelet itself keeps on the pods in its memory (localAnnotations upstream).
func local(key string) bool {
	return key == pod.ConfigSourceAnnotation || key == pod.ConfigMirrorAnnotation || key == pod.ConfigFirstSeenAnnotation
}

// updated is the old pod with what changed, and with the local annotations it had.
func updated(old, p *v1.Pod) *v1.Pod {
	out, p := old.DeepCopy(), p.DeepCopy()
	out.Spec, out.Status, out.Labels, out.Generation = p.Spec, p.Status, p.Labels, p.Generation
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = p.DeletionTimestamp, p.DeletionGracePeriodSeconds
	out.Annotations = p.Annotations
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	for key, value := range old.Annotations {
		if local(key) {
			out.Annotations[key] = value
		}
	}
	return out
}
