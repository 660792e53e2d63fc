package kuberuntime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// podLogs is where the logs of a pod are.
func podLogs(logs, uid string) string { return filepath.Join(logs, "pods", "ns_"+uid+"_"+uid) }

// makePod makes a sandbox with n attempts of one container, which never ran: the sandbox is stopped before they are
// started.
func (n *node) makePod(ctx context.Context, uid, owner string, attempts int) error {
	host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	labels := map[string]string{container.PodNameLabel: uid, container.PodNamespaceLabel: "ns", container.PodUIDLabel: uid, container.OwnerLabel: owner}
	dir := podLogs(n.logs, uid)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid}, Labels: labels, LogDirectory: dir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: host}},
	}
	if err := os.MkdirAll(filepath.Join(dir, "c"), 0o755); err != nil {
		return err
	}
	sandbox, err := n.cri.RunPodSandbox(ctx, config, "")
	if err != nil {
		return err
	}
	var ids []string
	for attempt := range attempts {
		logPath := fmt.Sprintf("c/%d.log", attempt)
		id, err := n.cri.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: uint32(attempt)}, Image: &runtimeapi.ImageSpec{Image: nodebox.ImageBusybox},
			Command: []string{"/bin/true"}, Labels: labels, LogPath: logPath,
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: host}},
		}, config)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, logPath), nil, 0o600)); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := n.cri.StopPodSandbox(ctx, sandbox); err != nil {
		return err
	}
	for _, id := range ids {
		if err := n.cri.StartContainer(ctx, id); err == nil {
			return errors.New("a container was started in a stopped sandbox")
		}
	}
	return nil
}

// 500 exited containers of ten pods are collected to the newest of each. A pod that is gone loses all, its logs too;
// another node's loses nothing.
func TestEndToEndCollects500(t *testing.T) {
	n := startNode(t)
	n.SourcesReady = func() bool { return true }
	n.ShouldPodContentBeRemoved = func(uid types.UID) bool { return uid == "uid-9" }
	var made errgroup.Group
	for i := range 10 {
		made.Go(func() error { return n.makePod(t.Context(), fmt.Sprintf("uid-%d", i), "e2e", 50) })
	}
	made.Go(func() error { return n.makePod(t.Context(), "uid-foreign", "other", 3) })
	if err := made.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	containers, err := n.cri.ListContainers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string][]uint32{}
	for _, c := range containers {
		uid := c.GetLabels()[container.PodUIDLabel]
		left[uid] = append(left[uid], c.GetMetadata().GetAttempt())
	}
	for i := range 9 {
		if got := left[fmt.Sprintf("uid-%d", i)]; len(got) != 1 || got[0] != 49 {
			t.Errorf("pod %d keeps %v, not the newest", i, got)
		}
	}
	if len(left["uid-9"]) != 0 || len(left["uid-foreign"]) != 3 || len(containers) != 12 {
		t.Errorf("left: %v", left)
	}
	sandboxes, err := n.cri.ListPodSandbox(t.Context(), nil)
	if err != nil || len(sandboxes) != 10 {
		t.Errorf("%d sandboxes, %v", len(sandboxes), err)
	}
	logs, err := filepath.Glob(filepath.Join(n.logs, "pods", "*_uid-[0-9]", "c", "*"))
	if err != nil || len(logs) != 9 {
		t.Errorf("%d logs are left, %v", len(logs), err)
	}
	if _, err := os.Stat(podLogs(n.logs, "uid-9")); !os.IsNotExist(err) {
		t.Errorf("the logs of the pod that is gone: %v", err)
	}
}
