//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Parts of volumes and their group, in containers; a part that is a link out of the volume; volumes whose sources come
// after the pod; and a readiness probe that is run when the startup probe has succeeded.
func TestEndToEndVolumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	n.write(n.cfg.Objects, "settings", fmt.Appendf(nil, configMap, "green"))
	n.write(n.cfg.Objects, "password", []byte(secret))
	host := filepath.Join(t.TempDir(), "late")
	for _, p := range podsOf(t, "rows.yaml", "${HOST}", host) {
		n.apply(p)
	}
	n.start()
	n.sub("subPath and fsGroup", func() {
		n.awaitReady("parts")
		for script, want := range map[string]string{
			"touch /made/file /mine/file; ls /whole/*/*/file": "/whole/a/b/file\n/whole/logs/me/file\n",
			"cat /etc/colour; ls -d /etc/colour":              "green/etc/colour\n",
			"stat -c '%g %a' /whole /memory":                  "4242 2777\n4242 3777\n", // the kernel adds a sticky bit
			"touch /made/own; stat -c %g /made/own":           "4242\n",                 // by the folder's set-group-ID bit
			"stat -Lc '%g %a' /password/key":                  "4242 440\n",
			"id -G | tr ' ' '\n' | grep 4":                    "4242\n4343\n",
		} {
			testkit.Equal(n.t, script, want, n.exec("parts", script))
		}
		uid := n.pod("parts").UID
		n.remove("parts")
		n.await("its volumes to go", func() error { return n.gone(uid) })
	})
	n.sub("a link out of the volume", func() {
		p := n.awaitPod("the refusal", "escape", func(p *v1.Pod) bool {
			w := containerOf(p).State.Waiting
			return w != nil && w.Reason == "CreateContainerConfigError"
		})
		const want = `failed to prepare subPath for volumeMount "disk" of container "c"`
		testkit.Equal(n.t, "message", want, containerOf(p).State.Waiting.Message)
	})
	n.sub("late sources", func() {
		for _, text := range []string{
			`configmap \"late\" not found`, `secret \"late\" not found`, "hostPath type check failed",
		} {
			e2etest.Eventually(n.t, "a line with "+text, func() bool { return len(n.log.Lines(text)) > 0 })
		}
		n.write(n.cfg.Objects, "late", []byte("kind: ConfigMap\nmetadata: {name: late, namespace: shop}\ndata: {a: b}\n---\n"+
			"kind: Secret\nmetadata: {name: late, namespace: shop}\nstringData: {c: d}\n"))
		e2etest.Must(n.t, os.Mkdir(host, 0o755))
		n.awaitReady("late")
		testkit.Equal(n.t, "content", "bd/host\n", n.exec("late", "cat /map/a /key/c; ls -d /host"))
	})
	n.sub("readiness after startup", func() {
		n.awaitReady("startup")
		n.remove("startup") // and again, now that the prober is older than the period
		p := podsOf(t, "rows.yaml", "${HOST}", host)[3]
		p.Name = "again"
		n.apply(p)
		n.awaitReady("again")
		testkit.Contains(n.t, "out of turn", "again", fmt.Sprint(n.log.Lines("Triggered Probe by manual run")))
	})
}

// By the kubelet's rules pods are admitted or rejected; a readiness gate is waited for; and when the node allows one
// pod only after a restart, the oldest stays.
func TestEndToEndAdmission(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	client := fake.New()
	n.cfg.Client, n.cfg.Register, n.cfg.Objects = client, true, ""
	n.cfg.Labels = map[string]string{"zone": "a"}
	n.cfg.Kubelet.RegisterWithTaints = []kubeletconfig.Taint{{Key: "k", Effect: string(v1.TaintEffectNoExecute)}}
	create := func(p *v1.Pod) {
		e2etest.Must(t, client.Create(t.Context(), p))
	}
	for _, p := range podsOf(t, "admission.yaml") {
		create(onNode(p))
	}
	n.start()
	running := func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && hasCondition(p, v1.ContainersReady) }
	rejected := func(reason string) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodFailed && p.Status.Reason == reason &&
				strings.HasPrefix(p.Status.Message, "Pod was rejected: ")
		}
	}
	for name, is := range map[string]func(*v1.Pod) bool{
		"old": running, "young": isReady, "cpu": rejected("OutOfcpu"), "memory": rejected("OutOfmemory"),
		"selector": rejected("NodeAffinity"), "affinity": rejected("NodeAffinity"), "taint": rejected("TaintToleration"),
	} {
		n.awaitBound(client, name, is)
	}
	n.sub("a label that the node has just got", func() {
		node := &v1.Node{}
		e2etest.Must(n.t, client.Get(t.Context(), "", e2eNode, node))
		node.Labels["zone"] = "b"
		e2etest.Must(n.t, client.Update(t.Context(), node))
		p := onNode(podsOf(t, "admission.yaml")[4])
		p.Name, p.UID = "moved", "uid-7"
		create(p)
		n.awaitBound(client, "moved", isReady)
		node.Labels["zone"] = "a"
		e2etest.Must(n.t, client.Update(t.Context(), node))
	})
	n.sub("a readiness gate", func() {
		p := n.awaitBound(client, "old", func(p *v1.Pod) bool {
			for _, c := range p.Status.Conditions {
				if c.Type == v1.PodReady {
					return c.Reason == "ReadinessGatesNotReady"
				}
			}
			return false
		})
		gate := v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue}
		p.Status.Conditions = append(p.Status.Conditions, gate)
		_, err := client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
		e2etest.Must(n.t, err)
		n.awaitBound(client, "old", isReady)
	})
	n.sub("a restart with --max-pods 1", func() {
		before := unharmed(n.awaitBound(client, "old", isReady))
		n.stop()
		n.cfg.Kubelet.MaxPods = 1
		n.start()
		n.awaitBound(client, "young", rejected("OutOfpods"))
		n.awaitBound(client, "moved", rejected("NodeAffinity")) // it is admitted anew
		e2etest.Eventually(n.t, "what runs of young ends", func() bool {
			return n.listed("uid-0", runtimeapi.ContainerState_CONTAINER_RUNNING) == 0
		})
		n.awaitBound(client, "cpu", rejected("OutOfcpu")) // as before
		if after := unharmed(n.awaitBound(client, "old", isReady)); after != before || before == "" {
			n.t.Errorf("old was %q and is %q", before, after)
		}
	})
}

// onNode completes a pod that is bound to the node, with one container that sleeps.
func onNode(p *v1.Pod) *v1.Pod {
	one := shell("c", forever)
	if len(p.Spec.Containers) > 0 {
		one.Resources = p.Spec.Containers[0].Resources
	}
	p.Spec.Containers, p.Spec.NodeName, p.Spec.RestartPolicy = []v1.Container{one}, e2eNode, v1.RestartPolicyAlways
	p.Spec.DNSPolicy, p.Spec.TerminationGracePeriodSeconds = v1.DNSDefault, new(int64(2))
	if p.Name != "taint" {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "k", Operator: v1.TolerationOpExists})
	}
	return p
}

// listed counts the containers of a pod, by its UID or all if that is empty, in a state.
func (n *node) listed(uid string, state runtimeapi.ContainerState) (count int) {
	labels := ours()
	if uid != "" {
		labels[container.PodUIDLabel] = uid
	}
	_, containers := n.list(n.t.Context(), labels)
	for _, c := range containers {
		if c.GetState() == state {
			count++
		}
	}
	return count
}

// Dead containers by the policy: as many instances as are to be kept of one that crashes, and of the node. An unused
// image goes by its age.
func TestEndToEndGarbage(t *testing.T) {
	t.Parallel()
	const exited = runtimeapi.ContainerState_CONTAINER_EXITED
	dead := func(n *node, name string, want int) {
		n.t.Helper()
		e2etest.Eventually(n.t, fmt.Sprint(want, " dead containers"), func() bool {
			return n.listed(string(n.pod(name).UID), exited) == want // all, where there is no such pod
		})
	}
	for name, tt := range map[string]struct {
		policy kuberuntime.GCPolicy
		gc     time.Duration // between passes
		check  func(n *node)
	}{
		"instances of a container, at once": {
			kuberuntime.GCPolicy{MaxPerPodContainer: 2, MaxContainers: -1}, time.Hour, func(n *node) {
				n.apply(newPod("crash", shell("c", "exit 3")))
				n.awaitPod("restarts", "crash", func(p *v1.Pod) bool { return containerOf(p).RestartCount >= 4 })
				dead(n, "crash", 2)
			},
		},
		"the node's": {
			kuberuntime.GCPolicy{MaxPerPodContainer: 1, MaxContainers: 2}, 100 * time.Millisecond, func(n *node) {
				for i := range 4 {
					n.apply(endedPod(fmt.Sprint("done-", i)))
				}
				for i := range 4 {
					n.awaitPod("its end", fmt.Sprint("done-", i), hasEnded)
				}
				dead(n, "", 2)
			},
		},
		"young ones": { // what is left of the rest was not looked at
			kuberuntime.GCPolicy{MaxPerPodContainer: 0, MaxContainers: 0, MinAge: time.Hour},
			100 * time.Millisecond,
			func(n *node) {
				n.apply(endedPod("done-0"))
				n.awaitPod("its end", "done-0", hasEnded)
				dead(n, "done-0", 1)
				n.stop()
				n.cfg.ContainerGC.MinAge = 0
				n.start()
				dead(n, "", 0)
			},
		},
		"old images": {
			kuberuntime.DefaultGCPolicy(), 100 * time.Millisecond, func(n *node) {
				n.apply(newPod("user", shell("c", forever)))
				n.awaitReady("user")
				n.remove("user")
				e2etest.Eventually(n.t, "the image is gone", func() bool {
					image, err := n.cri.ImageStatus(n.t.Context(), nodebox.ImageBusybox)
					return image == nil && err == nil
				})
				image, err := n.cri.ImageStatus(n.t.Context(), nodebox.ImagePause)
				if image == nil || err != nil {
					n.t.Errorf("the sandboxes' image is %v, %v", image, err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 20)
			n.cfg.ContainerGC, n.cfg.Periods.ContainerGC = &tt.policy, tt.gc
			n.cfg.Periods.ImageGC = 100 * time.Millisecond
			n.cfg.Kubelet.ImageMinimumGCAge.Duration = time.Millisecond
			if name == "old images" {
				n.cfg.Kubelet.ImageMaximumGCAge.Duration = 2 * time.Second
			}
			n.start()
			tt.check(n)
		})
	}
}

// hasEnded is true of a failed pod too: its container may be collected before its end was noticed.
func hasEnded(p *v1.Pod) bool { return pod.IsTerminal(p.Status.Phase) }

// endedPod is a pod that ends by itself.
func endedPod(name string) *v1.Pod {
	p := newPod(name, shell("c", "exit 0"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	return p
}
