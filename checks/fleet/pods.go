package fleet

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// podsOf are the pods on a node.
type podsOf struct {
	count   int
	daemons []string // namespace/name of DaemonSets, sorted
}

// unfinished are the pods that kubectl describe node counts.
const unfinished = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// readPods counts the pods of each node. It lists whole pods, because metadata alone lacks the name of the node.
func (r *reading) readPods(ctx context.Context) (func(), error) {
	pods := map[string]*podsOf{}
	_, err := r.cluster.list(ctx, "/api/v1/pods", metav1.ListOptions{FieldSelector: unfinished},
		func(answer rest.Result) (metav1.ListMeta, error) {
			var list v1.PodList
			err := answer.Into(&list)
			for _, p := range list.Items {
				on := pods[p.Spec.NodeName]
				if on == nil {
					on = &podsOf{}
					pods[p.Spec.NodeName] = on
				}
				on.count++
				for _, owner := range p.OwnerReferences {
					if owner.Kind == "DaemonSet" {
						on.daemons = append(on.daemons, p.Namespace+"/"+owner.Name)
					}
				}
			}
			return list.ListMeta, err
		})
	for _, p := range pods {
		slices.Sort(p.daemons)
		p.daemons = slices.Compact(p.daemons)
	}
	return func() { r.pods = pods }, err
}
