package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatchLeaving follows a node through watches: one that is forbidden, one that ends, and one of a server that is
// away. Each reason is told once while it lasts.
func TestWatchLeaving(t *testing.T) {
	node := func(ready v1.ConditionStatus, taints ...string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
		}
		return n
	}
	type event struct {
		Type   string   `json:"type"`
		Object *v1.Node `json:"object"`
	}
	const cordoned, karpenter = "node.kubernetes.io/unschedulable", "karpenter.sh/disrupted"
	watches := [][]event{
		nil, // forbidden
		{
			{"ADDED", node(v1.ConditionTrue, cordoned)}, {"MODIFIED", node(v1.ConditionFalse, cordoned, karpenter)},
			{"MODIFIED", node(v1.ConditionUnknown, karpenter)},
		},
		nil, // away
		{
			{"ADDED", node(v1.ConditionTrue)}, {"MODIFIED", node(v1.ConditionTrue, v1.TaintNodeOutOfService)},
			{"DELETED", node(v1.ConditionTrue)},
		},
	}
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		var asked []string
		api.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				return false
			}
			asked = append(asked, fmt.Sprintf("%v %s %s", time.Since(api.start) > 5*time.Minute, r.URL.Path,
				r.FormValue("fieldSelector")))
			switch n := len(asked); {
			case n == 1:
				w.WriteHeader(http.StatusForbidden)
			case n == 3:
				panic(http.ErrAbortHandler)
			case n <= len(watches):
				w.Header().Set("Content-Type", "application/json")
				for _, e := range watches[n-1] {
					_ = json.NewEncoder(w).Encode(e)
				}
			default:
				<-r.Context().Done()
			}
			return true
		}
		p, _, _ := run(t, api)
		var got []string
		go p.WatchLeaving(t.Context(), func(why string, ready bool) { got = append(got, fmt.Sprint(why, " ", ready)) })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{
			"the node has the taint karpenter.sh/disrupted false",
			"the node has the taint node.kubernetes.io/out-of-service true",
			"the node object is deleted true",
		}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		const path = " /api/v1/nodes metadata.name=" + nodeName
		if diff := cmp.Diff([]string{"false" + path, "true" + path}, asked[:2]); diff != "" {
			t.Error(diff)
		}
	})
}
