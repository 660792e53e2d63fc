package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestDebugPodHasTheAgentsRights compares the pod with the DaemonSet.
func TestDebugPodHasTheAgentsRights(t *testing.T) {
	var set appsv1.DaemonSet
	must(t, yaml.UnmarshalStrict([]byte(testkit.Read(t, "../../deploy/kubernetes/daemonset.yaml")), &set))
	var got v1.Pod
	must(t, yaml.UnmarshalStrict(debugPod, &got))
	want := set.Spec.Template.Spec
	of := func(s v1.PodSpec) []any {
		return []any{
			s.HostPID, s.HostNetwork, s.HostIPC, s.Containers[0].SecurityContext, s.Containers[0].VolumeMounts[0],
			s.Volumes, s.Tolerations, s.PriorityClassName,
		}
	}
	want.Volumes = want.Volumes[:1]
	equal(t, "rights", of(want), of(got.Spec))
	if got.Labels["app.kubernetes.io/name"] == set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
		t.Error("the DaemonSet would adopt the pod")
	}
}

// A life is that of the pod that kdiag makes: at the first look at it, it has ended with a report as its log.
type life struct {
	pod     v1.Pod
	removed bool // at once: else a dead kubelet would have to agree
}

func (l *life) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodPost:
		_ = json.NewDecoder(req.Body).Decode(&l.pod)
		l.pod.Status.Phase = v1.PodFailed
		l.pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: 1},
		}}}
	case req.Method == http.MethodDelete:
		var how metav1.DeleteOptions
		_ = json.NewDecoder(req.Body).Decode(&how)
		l.removed = how.GracePeriodSeconds != nil && *how.GracePeriodSeconds == 0
	case strings.HasSuffix(req.URL.Path, "/log"):
		_, _ = io.WriteString(w, reportLog)
		return
	}
	_ = json.NewEncoder(w).Encode(l.pod)
}

const reportLog = `kdiag: a warning
{
  "kind": "Report",
  "host": "n2"
}
kdiag: done
`

// TestDebugImage has where the image comes from: never from a pod that a user of another namespace could make.
func TestDebugImage(t *testing.T) {
	host := func(p *v1.Pod) {
		p.Spec.HostPID, p.Spec.HostNetwork = true, true
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "kdiag", Controller: new(true)}}
	}
	impostor := agentPod("impostor", 0, func(p *v1.Pod) {
		host(p)
		p.Namespace, p.Spec.Containers[0].Image = "shop", "evil"
	})
	alone := agentPod("alone", 0, func(p *v1.Pod) {
		host(p)
		p.OwnerReferences = nil
	})
	const unknown = "no image of kdiag is known: no DaemonSet kdiag runs in the namespace kdiag"
	for _, tt := range []struct {
		name, image, released, want, hint string
		pods                              []v1.Pod
	}{
		{"given", "mine", "v1", "kube-system mine []", "", []v1.Pod{agentPod("a", 1, host)}},
		{"of an agent", "", "v1", "kdiag registry/kdiag:1 [{pull}]", "", []v1.Pod{impostor, agentPod("a", 1, host)}},
		{"published", "", "v1", "kube-system v1 []", "", []v1.Pod{impostor}},
		{"elsewhere", "", "", unknown, "shop/impostor runs evil", []v1.Pod{impostor}},
		{"of no DaemonSet", "", "", unknown, "kdiag/alone runs registry/kdiag:1", []v1.Pod{alone}},
	} {
		var l life
		api := agentServer(tt.pods...)
		api.other = l.ServeHTTP
		r, err := connect(t, api).Debug(t.Context(), DebugOptions{
			Node: "n2", Image: tt.image, Released: tt.released, Start: time.Minute, Run: 30 * time.Second,
		})
		got := testkit.Text(err)
		if err != nil {
			if e, ok := errors.AsType[*NodeError](err); !ok || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("%s: %#v", tt.name, err)
			}
		} else {
			c := l.pod.Spec.Containers[0]
			got = fmt.Sprint(l.pod.Namespace, " ", c.Image, " ", l.pod.Spec.ImagePullSecrets)
			line := strings.Join(append(c.Command, c.Args...), " ")
			if l.pod.Spec.NodeName != "n2" || !strings.HasPrefix(l.pod.Name, "kdiag-node-") || !l.removed ||
				r.Host != "n2" || line != "kdiag node --host-root=/host -o json --timeout 30s" {
				t.Errorf("%s: %+v: %s", tt.name, l, line)
			}
		}
		equal(t, tt.name, tt.want, got)
	}
}

// TestByHand has addresses as a node may publish them: what is none is not given to a shell.
func TestByHand(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.2":  "scp $(command -v kdiag) 10.0.0.2:/tmp/ && ssh 10.0.0.2 sudo /tmp/kdiag node",
		"fd00::9":   "scp $(command -v kdiag) [fd00::9]:/tmp/ && ssh fd00::9 sudo /tmp/kdiag node",
		"$(reboot)": "scp $(command -v kdiag) n1:/tmp/ && ssh n1 sudo /tmp/kdiag node",
	} {
		addresses := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
		equal(t, address, want, byHand("n1", addresses))
	}
}
