package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kdiag/kdiag/internal/testkit"
)

// line is what a snapshot shows of its nodes, in one line.
func line(s *Snapshot) string {
	var out []string
	for _, n := range s.Nodes {
		age := "none"
		if !n.Renewed.IsZero() {
			age = s.At.Sub(n.Renewed).String()
		}
		out = append(out, fmt.Sprintf("%s %s %s %d", n.Name, n.Condition(v1.NodeReady).Status, age, len(n.Events)))
	}
	return strings.Join(append(out, s.Problems...), ", ")
}

func small(nodes ...v1.Node) *server {
	leases := &coordinationv1.LeaseList{}
	for _, n := range nodes {
		leases.Items = append(leases.Items, lease(n.Name, time.Now()))
	}
	return &server{lists: map[string]runtime.Object{
		nodesPath: &v1.NodeList{Items: nodes}, leasesPath: leases, eventsPath: &v1.EventList{Items: []v1.Event{
			{InvolvedObject: v1.ObjectReference{Name: "a"}, LastTimestamp: metav1.Now()},
		}},
	}}
}

// event writes an event of a watch of nodes, JSON.
func event(w http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	_ = http.NewResponseController(w).Flush()
}

func nodeEvent(w http.ResponseWriter, kind, version string, n v1.Node) {
	n.TypeMeta, n.ResourceVersion = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, version
	event(w, kind, n)
}

// hold keeps a watch open without events.
func hold(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// TestWatch follows nodes, and lets the watch fail, end, and expire, and lists fail. The nodes that were read last stay
// until they are listed again.
func TestWatch(t *testing.T) {
	jitter := retry.Jitter
	retry.Jitter = 0
	t.Cleanup(func() { retry.Jitter = jitter })
	away := &metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "etcd is away"}
	for _, tt := range []struct {
		name    string
		first   func(api *server, w http.ResponseWriter, req *http.Request) // the first watch
		later   http.HandlerFunc                                            // nil: none ends
		length  time.Duration
		want    []string
		watches []string // from which versions
	}{
		{
			name: "many events at once, and a bookmark",
			first: func(_ *server, w http.ResponseWriter, _ *http.Request) {
				for range 50 {
					nodeEvent(w, "ADDED", "8", kubeNode("b", v1.ConditionFalse))
				}
				nodeEvent(w, "MODIFIED", "9", kubeNode("a", v1.ConditionUnknown))
				time.Sleep(3 * time.Second)
				nodeEvent(w, "DELETED", "10", kubeNode("b", v1.ConditionFalse))
				nodeEvent(w, "ADDED", "11", kubeNode("c", v1.ConditionTrue))
				time.Sleep(time.Second)
				nodeEvent(w, "BOOKMARK", "20", v1.Node{})
			},
			length: 20 * time.Second,
			want: []string{
				"a Unknown 0s 1, b False none 0", "a Unknown 0s 1, c True none 0", "a Unknown 15s 1, c True none 0",
			},
			watches: []string{"7", "20"},
		},
		{
			name: "gone: listed again without a problem",
			first: func(api *server, w http.ResponseWriter, _ *http.Request) {
				api.lists[nodesPath].(*v1.NodeList).Items[0] = kubeNode("a", v1.ConditionFalse)
				event(w, "ERROR", metav1.Status{
					TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 410, Reason: "Expired",
				})
			},
			length: 10 * time.Second,
			want:   []string{"a False 0s 1"}, watches: []string{"7", "7"},
		},
		{
			name: "away: nodes and leases stay, with problems",
			first: func(api *server, _ http.ResponseWriter, _ *http.Request) {
				time.Sleep(10 * time.Second)
				api.fail(func(*http.Request) *metav1.Status { return away })
				time.AfterFunc(30*time.Second, func() { api.fail(nil) })
			},
			length: time.Minute + 10*time.Second,
			want: []string{
				"a True 0s 0, watching nodes: etcd is away",
				"a True 0s 0, listing nodes: etcd is away, watching nodes: etcd is away",
				"a True 0s 0, listing leases: etcd is away, listing nodes: etcd is away, watching nodes: etcd is away",
				"a True 0s 0, listing leases: etcd is away",
				"a True 45s 0",
				"a True 1m0s 0",
			},
			watches: []string{"7", "7"},
		},
		{
			name:  "a watch that ends at once: nodes are listed more and more seldom",
			first: func(*server, http.ResponseWriter, *http.Request) {}, later: func(http.ResponseWriter, *http.Request) {},
			length:  14 * time.Second,
			want:    []string{"a True 0s 0, watching nodes: the API server ended the watch at once"},
			watches: []string{"7", "7", "7", "7"},
		},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			api := small(kubeNode("a", v1.ConditionTrue))
			var watches []string
			api.watch = func(w http.ResponseWriter, req *http.Request) {
				if watches = append(watches, req.URL.Query().Get("resourceVersion")); len(watches) == 1 {
					tt.first(api, w, req)
				} else {
					tt.later(w, req)
				}
			}
			if tt.later == nil {
				tt.later = hold
			}
			s, err := connect(t, api).Read(t.Context(), Options{})
			must(t, err)
			ctx := testkit.Within(t, tt.length)
			var got []string
			s.Watch(ctx, func(s *Snapshot) {
				if l := line(s); len(got) == 0 || l != got[len(got)-1] {
					got = append(got, l)
				}
			})
			if ctx.Err() == nil {
				t.Error("Watch ended before its context")
			}
			synctest.Wait() // for the server
			equal(t, "snapshots", tt.want, got)
			equal(t, "watches", tt.watches, watches)
		})
	}
}
