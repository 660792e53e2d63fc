//go:build e2e

package syncloop

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// 12 manifests come up; one is deleted, one gets another image. How one that is edited fares is compared with a
// kubelet's record, in cmd/e2e/kubelet.
func TestEndToEndPods(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	pods := make([]*v1.Pod, 12)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("web-%d", i), shell("c", forever))
		pods[i].Spec.HostNetwork = i%3 == 0
		n.apply(pods[i])
	}
	n.start()
	for _, p := range pods {
		n.awaitReady(p.Name)
	}
	for i, p := range pods {
		if got := n.running(p.Name); len(got) != 1 {
			t.Errorf("%s: running %v", p.Name, got)
		}
		if got := n.pod(p.Name).Status; i%3 != 0 && got.PodIP != "192.0.2.2" {
			t.Errorf("%s has the address %q, which is not the plugin's", p.Name, got.PodIP)
		}
	}
	n.sub("delete", func() { n.deletePod(pods[1]) })
	n.sub("hash", func() { n.changeImage(pods[2]) })
}

// deletePod removes a manifest.
func (n *node) deletePod(p *v1.Pod) {
	uid := n.pod(p.Name).UID
	if len(n.cgroups("kubepods/*/pod"+string(uid))) == 0 {
		n.t.Errorf("%s has no cgroup while it runs", p.Name)
	}
	n.remove(p.Name)
	n.await("the deleted pod's leftovers to go", func() error { return n.gone(uid) })
}

// gone complains of what is left of a pod anywhere.
func (n *node) gone(uid types.UID) error {
	labels := map[string]string{container.PodUIDLabel: string(uid)}
	if sandboxes, containers := n.list(n.t.Context(), labels); len(sandboxes)+len(containers) > 0 {
		return fmt.Errorf("sandboxes %v, containers %v", sandboxes, containers)
	}
	for _, pattern := range []string{
		filepath.Join(n.cfg.RootDir, "pods", string(uid)), filepath.Join(n.cfg.LogDir, "pods", "*_"+string(uid)),
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			return fmt.Errorf("files %v, %w", left, err)
		}
	}
	if left := n.cgroups("kubepods/*/pod" + string(uid)); len(left) > 0 {
		return fmt.Errorf("cgroups %v", left)
	}
	for _, w := range n.Snapshot().Workers {
		if w.UID == uid {
			return fmt.Errorf("its worker: %+v", w)
		}
	}
	return nil
}

// changeImage changes the hash of a container whose pod keeps its UID, which a manifest can give.
func (n *node) changeImage(p *v1.Pod) {
	p.UID = "8d1f0c4e-hash"
	n.apply(p)
	n.awaitPod("the pod with its own UID", p.Name, func(now *v1.Pod) bool { return now.UID == p.UID && isReady(now) })
	before := n.running(p.Name)
	p.Spec.Containers[0].Image = nodebox.ImagePause // the same program, with the command of the manifest
	n.apply(p)
	n.awaitPod("the container with the other image", p.Name, func(now *v1.Pod) bool {
		after, c := n.running(p.Name), containerOf(now)
		return len(after) == 1 && !maps.Equal(before, after) && c.RestartCount == 1 && c.Image == nodebox.ImagePause &&
			isReady(now)
	})
	n.event(p.Name, "Killing", "definition changed")
	labels := map[string]string{container.PodUIDLabel: string(p.UID)}
	if sandboxes, _ := n.list(n.t.Context(), labels); len(sandboxes) != 1 {
		n.t.Errorf("the pod has the sandboxes %v, not its first one only", sandboxes)
	}
}

// get returns an answer of the server, which is decoded as JSON unless into is nil.
func (n *node) get(path string, into any) string {
	n.t.Helper()
	var err error
	code, body := n.ask(path, "")
	if into != nil {
		err = json.Unmarshal([]byte(body), into)
	}
	if err != nil || code != http.StatusOK {
		n.t.Fatalf("%s: %d, %v", path, code, err)
	}
	return body
}
