package fleet

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// podsOf are the pods on a node.
type podsOf struct {
	count   int
	daemons []string // namespace/name of DaemonSets, sorted
}

// unfinished are the pods that kubectl describe node counts.
const unfinished = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// readPods counts the pods of each node. Metadata alone lacks the name of the node, and a Table is JSON, which costs the
// server several times more than the pods in protobuf. Nothing of these is decoded but three fields: 150,000 pods have
// some 30 million strings.
func (r *reading) readPods(ctx context.Context) (func(), error) {
	pods := map[string]*podsOf{}
	names := map[string]string{} // of DaemonSets: one string each, not one for each pod
	count := func(namespace, node, daemon []byte) {
		p := pods[string(node)]
		if p == nil {
			p = &podsOf{}
			pods[string(node)] = p
		}
		if p.count++; len(daemon) == 0 {
			return
		}
		key := slices.Concat(namespace, []byte("/"), daemon)
		if _, ok := names[string(key)]; !ok {
			names[string(key)] = string(key)
		}
		p.daemons = append(p.daemons, names[string(key)])
	}
	opts := metav1.ListOptions{FieldSelector: unfinished}
	_, err := r.cluster.list(ctx, r.cluster.core, "", "pods", opts,
		func(answer rest.Result) (metav1.ListMeta, error) {
			var kind string
			if answer.ContentType(&kind); strings.HasPrefix(kind, runtime.ContentTypeProtobuf) {
				body, err := answer.Raw()
				if err != nil {
					return metav1.ListMeta{}, err
				}
				return scanPods(body, count)
			}
			var list v1.PodList
			err := answer.Into(&list)
			for _, p := range list.Items {
				var daemon string
				for _, o := range p.OwnerReferences {
					if o.Kind == "DaemonSet" {
						daemon = o.Name
					}
				}
				count([]byte(p.Namespace), []byte(p.Spec.NodeName), []byte(daemon))
			}
			return list.ListMeta, err
		})
	for _, p := range pods {
		slices.Sort(p.daemons)
		p.daemons = slices.Compact(p.daemons)
	}
	return func() { r.pods = pods }, err
}

var errMalformed = errors.New("the API server's answer is malformed protobuf")

// scanPods gives count the namespace, the node and the DaemonSet of each pod of a list. The numbers are those of the
// fields in the generated.proto of k8s.io/api/core/v1 and k8s.io/apimachinery/pkg/apis/meta/v1.
func scanPods(body []byte, count func(namespace, node, daemon []byte)) (meta metav1.ListMeta, err error) {
	body, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	w := wire{malformed: !ok}
	list := w.last(body, 2) // of a runtime.Unknown
	for pod := range w.all(list, 2) {
		meta := w.last(pod, 1)
		var daemon []byte
		for owner := range w.all(meta, 13) {
			if string(w.last(owner, 1)) == "DaemonSet" {
				daemon = w.last(owner, 3)
			}
		}
		count(w.last(meta, 3), w.last(w.last(pod, 2), 10), daemon)
	}
	if err = meta.Unmarshal(w.last(list, 1)); w.malformed {
		err = errMalformed
	}
	return meta, err
}

// A wire reads fields of protobuf messages.
type wire struct{ malformed bool }

// all returns the values of a field that is a message or a text.
func (w *wire) all(message []byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(message) > 0 {
			found, kind, n := protowire.ConsumeTag(message)
			size := protowire.ConsumeFieldValue(found, kind, message[max(n, 0):])
			if n < 0 || size < 0 {
				w.malformed = true
				return
			}
			value := message[n : n+size]
			message = message[n+size:]
			if found == number && kind == protowire.BytesType {
				if content, _ := protowire.ConsumeBytes(value); !yield(content) {
					return
				}
			}
		}
	}
}

// last returns the value of a field, of which the last one counts.
func (w *wire) last(message []byte, number protowire.Number) (value []byte) {
	for value = range w.all(message, number) {
	}
	return value
}
