package fleet

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
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

// readPods counts the pods of each node. Metadata alone lacks the name of the node; a Table with owners is JSON, and
// costs the server twice as much. So these are whole pods in protobuf, of which three fields are looked at: to decode
// 150,000 would make tens of millions of strings.
func (r *reading) readPods(ctx context.Context) (func(), error) {
	pods := map[string]*podsOf{}
	opts := metav1.ListOptions{FieldSelector: unfinished}
	_, err := r.cluster.list(ctx, "/api/v1/pods", opts,
		func(answer rest.Result) (metav1.ListMeta, error) {
			var w wire
			body, err := answer.Raw()
			list, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
			if ok {
				list = w.last(list, 2) // of a runtime.Unknown
			} else if err == nil { // JSON
				var decoded v1.PodList
				if err = answer.Into(&decoded); err == nil {
					list, err = decoded.Marshal()
				}
			}
			if err != nil {
				return metav1.ListMeta{}, err
			}
			return w.scanPods(list, pods)
		})
	for _, p := range pods {
		slices.Sort(p.daemons)
		p.daemons = slices.Compact(p.daemons)
	}
	return func() { r.pods = pods }, err
}

// A wire reads fields of protobuf messages, by their numbers in the generated.proto of k8s.io/api/core/v1 and
// k8s.io/apimachinery/pkg/apis/meta/v1.
type wire struct{ malformed bool }

// scanPods adds the pods of a PodList to those of their nodes.
func (w *wire) scanPods(list []byte, pods map[string]*podsOf) (meta metav1.ListMeta, err error) {
	for pod := range w.all(list, 2) {
		meta, node := w.last(pod, 1), w.last(w.last(pod, 2), 10)
		on := pods[string(node)]
		if on == nil {
			on = &podsOf{}
			pods[string(node)] = on
		}
		on.count++
		for owner := range w.all(meta, 13) {
			if string(w.last(owner, 1)) == "DaemonSet" {
				on.daemons = append(on.daemons, string(w.last(meta, 3))+"/"+string(w.last(owner, 3)))
			}
		}
	}
	if err = meta.Unmarshal(w.last(list, 1)); w.malformed {
		err = errors.New("the API server's answer is malformed protobuf")
	}
	return meta, err
}

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
