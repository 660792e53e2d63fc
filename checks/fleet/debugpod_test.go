package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestDebugPodHasTheAgentsRights compares the pod with the DaemonSet.
func TestDebugPodHasTheAgentsRights(t *testing.T) {
	var set appsv1.DaemonSet
	manifest, err := os.ReadFile("../../deploy/kubernetes/daemonset.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(manifest, &set)
	}
	var got v1.Pod
	must(t, errors.Join(err, yaml.UnmarshalStrict(debugPod, &got)))
	want := set.Spec.Template.Spec
	type rights struct {
		HostPID, HostNetwork, HostIPC bool
		Container, Mount, Volume      any
		Tolerations                   []v1.Toleration
		Priority                      string
	}
	of := func(s v1.PodSpec) rights {
		return rights{
			s.HostPID, s.HostNetwork, s.HostIPC, s.Containers[0].SecurityContext, s.Containers[0].VolumeMounts[0],
			s.Volumes[0], s.Tolerations, s.PriorityClassName,
		}
	}
	if diff := cmp.Diff(of(want), of(got.Spec)); diff != "" || len(got.Spec.Volumes) != 1 {
		t.Error(diff)
	}
	if got.Labels["app.kubernetes.io/name"] == set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
		t.Error("the DaemonSet would adopt the pod")
	}
}

// waiting, running and ended are the lives of the pod.
func waiting(reason, message string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.StartTime = &metav1.Time{Time: time.Now()}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}

func running(p *v1.Pod) {
	p.Status.Phase = v1.PodRunning
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}
}

func ended(code int32, message string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Phase = v1.PodFailed
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message},
		}}}
	}
}

// then is a pod that changes after some seconds.
func then(first func(*v1.Pod), seconds int, next func(*v1.Pod)) func(*v1.Pod) {
	begin := time.Time{}
	return func(p *v1.Pod) {
		if begin.IsZero() {
			begin = time.Now()
		}
		if first(p); time.Since(begin) >= time.Duration(seconds)*time.Second {
			next(p)
		}
	}
}

// A life is that of the pod that kdiag makes.
type life struct {
	play func(*v1.Pod) // changes the pod at each look
	log  string

	mu      sync.Mutex
	created *v1.Pod
}

func (l *life) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case req.Method == http.MethodPost:
		l.created = &v1.Pod{}
		_ = json.NewDecoder(req.Body).Decode(l.created)
		l.created.Status.Phase = v1.PodPending
	case strings.HasSuffix(req.URL.Path, "/log"):
		_, _ = io.WriteString(w, l.log)
		return
	case l.created == nil || !strings.HasSuffix(req.URL.Path, "/"+l.created.Name):
		refuses(apierrors.NewNotFound(v1.Resource("pods"), req.URL.Path))(w, req)
		return
	case req.Method == http.MethodGet:
		l.play(l.created)
	}
	_ = json.NewEncoder(w).Encode(l.created)
	if req.Method == http.MethodDelete {
		var how metav1.DeleteOptions
		_ = json.NewDecoder(req.Body).Decode(&how)
		if grace := how.GracePeriodSeconds; grace != nil && *grace == 0 { // else a dead kubelet would have to agree
			l.created = nil
		}
	}
}

const reportLog = `kdiag: a warning
{
  "kind": "Report",
  "host": "n2"
}
kdiag: done
`

// TestDebug lets a pod live and die in each way: it is always removed, and what went wrong is in the problem.
func TestDebug(t *testing.T) {
	const cannot = "node n2 cannot start pods: "
	const byHand = "scp $(command -v kdiag) 10.0.0.2:/tmp/ && ssh 10.0.0.2 sudo /tmp/kdiag node"
	nothing := func(*v1.Pod) {}
	creating := waiting("ContainerCreating", "")
	gone := apierrors.NewNotFound(v1.Resource("pods"), "x")
	deleted := func(req *http.Request) *metav1.Status {
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/pods/") {
			return gone.ErrStatus.DeepCopy()
		}
		return nil
	}
	for _, tt := range []struct {
		name    string
		play    func(*v1.Pod)
		log     string
		fails   func(*http.Request) *metav1.Status
		want    string // problem; empty for a report
		hint    string
		seconds int // until the end
	}{
		{"a report", then(creating, 5, then(running, 5, ended(1, ""))), reportLog, nil, "", "", 10},
		{"no kubelet", nothing, "", nil, cannot + "the kubelet has not taken the pod after 45s", byHand, 45},
		{"a runtime that hangs", creating, "", nil, cannot + "ContainerCreating after 45s", byHand, 45},
		{
			"no image", then(creating, 3, waiting("ImagePullBackOff", "Back-off pulling image")), "", nil,
			cannot + "ImagePullBackOff: Back-off pulling image after 3s", byHand, 3,
		},
		{
			"refused by the kubelet", func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "OutOfpods" }, "", nil,
			cannot + "OutOfpods after 0s", byHand, 0,
		},
		{"endless", then(creating, 5, running), "", nil, "waiting for the pod on n2: no answer in time", byHand, 90},
		{
			"not started", ended(128, "exec: kdiag: not found"), "", nil,
			"kdiag node on n2 made no report: Error, exit code 128: exec: kdiag: not found", "registry/kdiag:2", 0,
		},
		{
			"bad usage", ended(2, ""), "{\n\"kind\": \"Error\", \"problems\": [\"unknown flag\"]}", nil,
			"kdiag node on n2 made no report: unknown flag", "registry/kdiag:2", 0,
		},
		{"deleted", nothing, "", deleted, "waiting for the pod on n2: " + gone.Error(), byHand, 0},
		{
			"may not", nothing, "", forbids("pods"),
			`creating a pod on n2: pods is forbidden: User "eve" cannot list it`,
			"the right to create pods in kube-system", 0,
		},
		{
			"may not read", ended(0, ""), "", forbids("log"),
			`reading the log of kdiag on n2: log is forbidden: User "eve" cannot list it`,
			"the right to get pods/log in kube-system", 0,
		},
		{"interrupted", creating, "", nil, "context canceled", "", 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			api, pod := agentServer(), &life{play: tt.play, log: tt.log}
			api.other = pod.ServeHTTP
			api.fail(tt.fails)
			if tt.name == "interrupted" {
				time.AfterFunc(5*time.Second, cancel)
			}
			began := time.Now()
			r, err := connect(t, api).Debug(ctx, DebugOptions{
				Node: "n2", Image: "registry/kdiag:2", Start: 45 * time.Second,
				Left: func(problem string) { t.Errorf("%s: %s", tt.name, problem) },
			})
			if d := int(time.Since(began).Seconds()); d != tt.seconds {
				t.Errorf("%s: took %d s", tt.name, d)
			}
			if pod.created != nil {
				t.Errorf("%s: the pod is left", tt.name)
			}
			if tt.want == "" {
				if err != nil || r.Host != "n2" {
					t.Errorf("%s: %+v, %v", tt.name, r, err)
				}
				return
			}
			e, ok := errors.AsType[*NodeError](err)
			if err == nil || err.Error() != tt.want || ok && !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("%s: %#v", tt.name, err)
			}
		})
	}
}

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
		{"of none", "", "", unknown, "name one that n2 can pull", nil},
	} {
		var made *v1.Pod
		api, end := agentServer(tt.pods...), ended(0, "")
		api.other = (&life{log: reportLog, play: func(p *v1.Pod) { made = p.DeepCopy(); end(p) }}).ServeHTTP
		_, err := connect(t, api).Debug(t.Context(), DebugOptions{
			Node: "n2", Image: tt.image, Released: tt.released, Start: time.Minute, Run: 30 * time.Second,
		})
		got := ""
		if err != nil {
			got = err.Error()
			if e, ok := errors.AsType[*NodeError](err); !ok || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("%s: %#v", tt.name, err)
			}
		} else {
			got = fmt.Sprint(made.Namespace, " ", made.Spec.Containers[0].Image, " ", made.Spec.ImagePullSecrets)
			c := made.Spec.Containers[0]
			line := strings.Join(append(c.Command, c.Args...), " ")
			if made.Spec.NodeName != "n2" || !strings.HasPrefix(made.Name, "kdiag-node-") ||
				line != "kdiag node --host-root=/host -o json --timeout 30s" {
				t.Errorf("%s: %s on %s: %s", tt.name, made.Name, made.Spec.NodeName, line)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
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
		if diff := cmp.Diff(want, byHand("n1", addresses)); diff != "" {
			t.Error(diff)
		}
	}
}
