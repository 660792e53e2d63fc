package kuberuntime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// patience is for what takes a busy machine some seconds.
const patience = 2 * time.Minute

// A node is a Manager on a containerd of its own.
type node struct {
	*kuberuntime.Manager
	cri  *remote.Service
	logs string
}

// present are images that are there already, by their name.
type present struct{}

func (present) EnsureImage(
	_ context.Context, _ *v1.Pod, c *v1.Container, _ *runtimeapi.PodSandboxConfig,
) (ref, message string, reason error) {
	return c.Image, "", nil
}

// nothing has no objects.
type nothing struct{ source.Objects }

func startNode(t *testing.T) *node {
	t.Helper()
	nodebox.Need(t, nodebox.Missing(false))
	box, err := nodebox.Start(t.Context(), nodebox.Options{Network: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	cri, err := remote.Dial(box.Endpoint(), remote.Options{Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cri.Close() })
	n := &node{cri: cri, logs: t.TempDir()}
	result := func(container.ID) (failed, known bool) { return false, false }
	n.Manager = kuberuntime.New(kuberuntime.Config{
		CRI: cri, Images: present{}, Mounts: func(types.UID) map[string]source.Volume { return nil }, Objects: nothing{}, BackOff: kuberuntime.NewBackOff(100*time.Millisecond, time.Second, time.Minute),
		CgroupParent: func(*v1.Pod) string { return "/" + filepath.Base(box.Dir()) }, ClusterDNS: []string{"192.0.2.53"}, ClusterDomain: "example.org",
		Recorder: record.NewFakeRecorder(1000), Log: testr.NewWithOptions(t, testr.Options{Verbosity: 3}),
		Metrics:  metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		NodeName: "e2e", RuntimeName: "containerd", RootDir: t.TempDir(), LogDir: n.logs, MemoryCapacity: 8 << 30,
		Liveness: result, Startup: result, SandboxReady: func(*v1.Pod) {},
	})
	return n
}

// status is the pod as containerd has it.
func (n *node) status(t *testing.T, p *v1.Pod) *container.PodStatus {
	t.Helper()
	listed, err := n.GetPod(t.Context(), p.UID)
	if errors.Is(err, kuberuntime.ErrPodNotFound) {
		return &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := n.GetPodStatus(t.Context(), listed)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// syncUntil syncs a pod, as its worker would, until done likes what it sees.
func (n *node) syncUntil(t *testing.T, p *v1.Pod, what string, done func(*container.PodStatus) bool) *container.PodStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		st := n.status(t, p)
		if done(st) {
			return st
		}
		if res := n.SyncPod(ctx, p, st); res.Err != nil && !errors.Is(res.Err, kuberuntime.ErrCrashLoopBackOff) {
			t.Fatalf("waiting for %s: %v", what, res.Err)
		}
		time.Sleep(50 * time.Millisecond) // the pause between two looks at a real process, which no clock of ours moves
	}
	t.Fatalf("waiting for %s: %v", what, ctx.Err())
	return nil
}

func shell(name, script string) v1.Container {
	return v1.Container{
		Name: name, Image: nodebox.ImageBusybox, Command: []string{"sh", "-c", script},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}
}

func runs(st *container.PodStatus, name string) bool {
	s := st.Find(name)
	return s != nil && s.State == container.Running
}

func (n *node) log(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.logs, "pods", "shop_web_0000-1", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// logUntil waits until a log that is being written holds a text so many times.
func (n *node) logUntil(t *testing.T, file, text string, times int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := n.log(t, file)
		if strings.Count(got, text) == times {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not %d times %q: %q", file, times, text, got)
		}
		time.Sleep(20 * time.Millisecond) // between two looks at what containerd writes
	}
}

// TestEndToEndPodLifecycle takes a pod with an init container, a sidecar and a main container from nothing to running,
// through a crash and a change, to its end.
func TestEndToEndPodLifecycle(t *testing.T) {
	n := startNode(t)
	grace, always := int64(2), v1.ContainerRestartPolicyAlways
	side := shell("side", "trap 'echo side ends; exit 0' TERM; echo side begins; while :; do sleep 0.1; done")
	side.RestartPolicy = &always
	main := shell("main", "trap 'echo bye > /dev/termination-log; exit 3' TERM; echo $GREETING; echo $(GREETING); while :; do sleep 0.1; done")
	main.Env = []v1.EnvVar{
		{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}, {Name: "GREETING", Value: "hello from $(IP)"},
	}
	main.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "> /started"}}}}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "0000-1", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			InitContainers:                []v1.Container{shell("init", "echo init works; exit 0"), side},
			Containers:                    []v1.Container{main},
		},
	}
	st := n.syncUntil(t, p, "all to run", func(st *container.PodStatus) bool { return runs(st, "side") && runs(st, "main") })
	if init := st.Find("init"); init == nil || init.State != container.Exited || init.ExitCode != 0 || init.Reason != "Completed" {
		t.Errorf("init container %+v", init)
	}
	if len(st.IPs) == 0 {
		t.Error("the pod has no address")
	}
	if _, err := n.Exec(t.Context(), st.Find("main").ID, []string{"sh", "-c", "test -e /started"}, patience); err != nil {
		t.Errorf("the postStart hook: %v", err)
	}
	out, err := n.Exec(t.Context(), st.Find("main").ID, []string{"sh", "-c", "tail -1 /etc/hosts; cat /etc/resolv.conf"}, patience)
	want := st.IPs[0] + "\tweb\nsearch shop.svc.example.org svc.example.org example.org\nnameserver 192.0.2.53\noptions ndots:5\n"
	if err != nil || string(out) != want {
		t.Errorf("hosts and resolv.conf are %q, %v", out, err)
	}
	if got := n.log(t, "init/0.log"); !strings.HasSuffix(got, " stdout F init works\n") {
		t.Errorf("log of the init container: %q", got)
	}
	greeting := " stdout F hello from " + st.IPs[0] + "\n"
	n.logUntil(t, "main/0.log", greeting, 2) // then it also knows what to do when it is told to end
	links, err := filepath.Glob(filepath.Join(n.logs, "containers", "web_shop_*"))
	if err != nil || len(links) != 3 {
		t.Errorf("links %q, %v", links, err)
	}

	// It crashes, and is restarted with another log.
	if err := n.cri.StopContainer(t.Context(), st.Find("main").ID.ID, patience); err != nil {
		t.Fatal(err)
	}
	st = n.syncUntil(t, p, "main to be restarted", func(st *container.PodStatus) bool {
		return runs(st, "main") && st.Find("main").RestartCount == 1
	})
	dead := st.ContainerStatuses[len(st.ContainerStatuses)-1]
	for _, c := range st.ContainerStatuses {
		if c.Name == "main" && c.State == container.Exited {
			dead = c
		}
	}
	if dead.ExitCode != 3 || dead.Reason != "Error" || dead.Message != "bye\n" {
		t.Errorf("the instance that crashed: %+v", dead)
	}
	n.logUntil(t, "main/1.log", greeting, 2)

	// The sandbox dies, and all begins again in a new one.
	if err := n.cri.StopPodSandbox(t.Context(), st.SandboxStatuses[0].GetId()); err != nil {
		t.Fatal(err)
	}
	st = n.syncUntil(t, p, "a new sandbox", func(st *container.PodStatus) bool {
		return len(st.SandboxStatuses) == 2 && runs(st, "side") && runs(st, "main")
	})
	if st.SandboxStatuses[0].GetMetadata().GetAttempt() != 1 || st.Find("main").RestartCount != 2 || st.Find("init").RestartCount != 1 {
		t.Errorf("after the sandbox: attempt %d, main %d, init %d", st.SandboxStatuses[0].GetMetadata().GetAttempt(),
			st.Find("main").RestartCount, st.Find("init").RestartCount)
	}

	// The end, without the pod's spec.
	if res := n.KillPod(t.Context(), nil, st.RunningPod("containerd"), nil); res.Err != nil {
		t.Fatal(res.Err)
	}
	st = n.status(t, p)
	if left := st.Running(); len(left) != 0 || st.SandboxStatuses[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("%d containers run, sandbox %v", len(left), st.SandboxStatuses[0].GetState())
	}
	for _, sb := range st.SandboxStatuses {
		if err := n.cri.RemovePodSandbox(t.Context(), sb.GetId()); err != nil {
			t.Error(err)
		}
	}
	if pods, err := n.GetPods(t.Context(), true); err != nil || len(pods) != 0 {
		t.Errorf("%d pods are left, %v", len(pods), err)
	}
}
