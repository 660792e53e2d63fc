//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// Parts of volumes and their group, in containers; a part that is a link out of the volume; and volumes whose sources
// come after the pod.
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
			looptest.Equal(n.t, script, want, n.exec("parts", script))
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
		looptest.Equal(n.t, "message", want, containerOf(p).State.Waiting.Message)
	})
	n.sub("late sources", func() {
		for _, text := range []string{
			`configmap \"late\" not found`, `secret \"late\" not found`, "hostPath type check failed",
		} {
			n.await("the failure", func() error {
				if len(n.log.Lines(text)) == 0 {
					return fmt.Errorf("no line with %s", text)
				}
				return nil
			})
		}
		n.write(n.cfg.Objects, "late", []byte("kind: ConfigMap\nmetadata: {name: late, namespace: shop}\ndata: {a: b}\n---\n"+
			"kind: Secret\nmetadata: {name: late, namespace: shop}\nstringData: {c: d}\n"))
		e2etest.Must(n.t, os.Mkdir(host, 0o755))
		n.awaitReady("late")
		looptest.Equal(n.t, "content", "bd/host\n", n.exec("late", "cat /map/a /key/c; ls -d /host"))
	})
}

// As many instances of a container that crashes are kept as the policy says. The next pass is an hour away: a pod's
// worker removes what is too much when a container has ended.
func TestEndToEndGarbage(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	n.cfg.ContainerGC = &kuberuntime.GCPolicy{MaxPerPodContainer: 2, MaxContainers: -1}
	n.cfg.Periods.ContainerGC = time.Hour
	n.start()
	n.apply(newPod("crash", shell("c", "exit 3")))
	p := n.awaitPod("restarts", "crash", func(p *v1.Pod) bool { return containerOf(p).RestartCount >= 4 })
	labels := map[string]string{container.PodUIDLabel: string(p.UID)}
	n.await("two dead containers", func() error {
		dead := 0
		_, containers := n.list(t.Context(), labels)
		for _, c := range containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				dead++
			}
		}
		if dead != 2 {
			return fmt.Errorf("%d", dead)
		}
		return nil
	})
}
