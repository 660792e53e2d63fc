//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

// The pods' volumes are on a small disk. When it is filled, the pod is evicted that uses more of it than it asked for;
// then there is enough, and the others stay: one of lower priority that asked for what it uses, and one that uses
// nothing.
func TestEndToEndEviction(t *testing.T) {
	t.Parallel()
	const size, threshold, used = 64 << 20, 32 << 20, 20 << 20
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mounting a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	n := newNode(t, 20)
	n.cfg.RootDir = filepath.Join(disk, "root")
	n.cfg.Kubelet.EvictionHard = map[string]string{
		"nodefs.available": resource.NewQuantity(threshold, resource.BinarySI).String(),
	}
	pods := podsOf(t, "eviction.yaml")
	client := fake.New(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: e2eNode, UID: "uid-node"}}, pods[0], pods[1], pods[2])
	n.cfg.Client, n.cfg.Register, n.cfg.Objects = client, true, ""
	get := func(name string) *v1.Pod {
		p, err := client.GetPod(t.Context(), namespace, name)
		e2etest.Must(t, err)
		return p
	}
	await := func(what, name string, is func(p *v1.Pod) bool) {
		t.Helper()
		n.await(what, func() error {
			if p := get(name); !is(p) {
				return fmt.Errorf("%+v", p.Status)
			}
			return nil
		})
	}
	n.start()
	for _, name := range []string{"hog", "modest", "idle"} {
		await(name, name, isReady)
	}
	// Directories are measured once a minute. Who was not measured yet goes first of all.
	for uid, bytes := range map[string]uint64{"uid-hog": used, "uid-modest": 1 << 20, "uid-idle": 0} {
		n.await("the figures of the volume of "+uid, func() error { return n.hasFigures(uid, bytes) })
	}
	before := map[string]string{"modest": unharmed(get("modest")), "idle": unharmed(get("idle"))}
	e2etest.Must(t, os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, used), 0o600))
	await("the eviction", "hog", func(p *v1.Pod) bool { return p.Status.Reason == "Evicted" })
	n.checkEvicted(get("hog"))
	n.await("enough room again", func() error {
		var fs unix.Statfs_t
		if err := unix.Statfs(disk, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < threshold {
			return fmt.Errorf("%d blocks, %w", fs.Bavail, err)
		}
		return nil
	})
	if _, err := client.CreatePod(t.Context(), pods[3]); err != nil {
		t.Fatal(err)
	}
	await("a pod that comes under pressure to be rejected", "late", func(p *v1.Pod) bool {
		const message = "Pod was rejected: The node had condition: [DiskPressure]. "
		return p.Status.Phase == v1.PodFailed && p.Status.Message == message
	})
	after := map[string]string{"modest": unharmed(get("modest")), "idle": unharmed(get("idle"))}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the others did not stay as they were:\n%s", diff)
	}
}

// unharmed is the container of a pod that runs and was never restarted, or else empty.
func unharmed(p *v1.Pod) string {
	if c := containerOf(p); p.Status.Phase == v1.PodRunning && c.RestartCount == 0 {
		return c.ContainerID
	}
	return ""
}

// hasFigures complains unless the server's summary has a volume of a pod with at least so many bytes.
func (n *node) hasFigures(uid string, bytes uint64) error {
	var s statsapi.Summary
	n.get("/stats/summary", &s)
	for _, p := range s.Pods {
		for _, v := range p.VolumeStats {
			if p.PodRef.UID == uid && v.UsedBytes != nil && *v.UsedBytes >= bytes {
				return nil
			}
		}
	}
	return fmt.Errorf("%+v", s.Pods)
}

// checkEvicted holds an evicted pod to the kubelet's words.
func (n *node) checkEvicted(p *v1.Pod) {
	const begin = "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: "
	if s := p.Status; s.Phase != v1.PodFailed || !strings.HasPrefix(s.Message, begin) {
		n.t.Errorf("the evicted pod's status is %+v", s)
	}
	if !hasCondition(p, v1.DisruptionTarget) {
		n.t.Errorf("no DisruptionTarget among %+v", p.Status.Conditions)
	}
}
