package kuberuntime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// A node is a Manager on its own containerd.
type node struct {
	*kuberuntime.Manager
	cri  *remote.Service
	logs string
}

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
	present := func(_ context.Context, _ *v1.Pod, c *v1.Container, _ *runtimeapi.PodSandboxConfig) (
		ref, message string, reason error,
	) {
		return c.Image, "", nil
	}
	n.Manager = kuberuntime.New(kuberuntime.Config{
		CRI: cri, EnsureImage: present, Mounts: func(types.UID) map[string]source.Volume { return nil },
		BackOff:      kuberuntime.NewBackOff(100*time.Millisecond, time.Second, time.Minute),
		CgroupParent: func(*v1.Pod) string { return "/" + filepath.Base(box.Dir()) },
		ClusterDNS:   []string{"192.0.2.53"}, ClusterDomain: "example.org",
		Recorder: record.NewFakeRecorder(1000), Log: testr.NewWithOptions(t, testr.Options{Verbosity: 3}),
		Metrics:  metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		NodeName: "e2e", RuntimeName: "containerd", RootDir: t.TempDir(), LogDir: n.logs, MemoryCapacity: 8 << 30,
		Liveness: result, Startup: result, SourcesReady: func() bool { return true },
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

// syncUntil syncs a pod, as its worker would, until it is done.
func (n *node) syncUntil(
	t *testing.T, p *v1.Pod, what string, done func(*container.PodStatus) bool,
) *container.PodStatus {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		st := n.status(t, p)
		if done(st) {
			return st
		}
		res := n.SyncPod(t.Context(), p, st)
		if res.Err != nil && !errors.Is(res.Err, kuberuntime.ErrCrashLoopBackOff) {
			t.Fatalf("waiting for %s: %v", what, res.Err)
		}
		time.Sleep(50 * time.Millisecond) // a real process runs by the machine's clock
	}
	t.Fatalf("no %s within %v", what, patience)
	return nil
}

func shell(name, script string) v1.Container {
	return v1.Container{
		Name: name, Image: nodebox.ImageBusybox, Command: []string{"sh", "-c", script},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}
}

// runs returns a condition: a container runs that was restarted so often, and so does the sidecar.
func runs(restarts int) func(*container.PodStatus) bool {
	return func(st *container.PodStatus) bool {
		main, side := st.Find("main"), st.Find("side")
		return main != nil && main.State == container.Running && main.RestartCount == restarts &&
			side != nil && side.State == container.Running
	}
}

// logUntil waits until a log that is being written holds a text so many times.
func (n *node) logUntil(t *testing.T, file, text string, times int) {
	t.Helper()
	var data []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if data, err = os.ReadFile(filepath.Join(n.logs, "pods", "shop_web_0000-1", file)); err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(data), text) == times {
			return
		}
	}
	t.Fatalf("%s does not hold %q %d times: %q", file, text, times, data)
}

// TestEndToEndPodLifecycle takes a pod with an init container, a sidecar and a main container from nothing to running,
// through a crash and the death of its sandbox, to its end.
func TestEndToEndPodLifecycle(t *testing.T) {
	n := startNode(t)
	side := shell("side", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	side.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	main := shell("main", "trap 'echo bye > /dev/termination-log; exit 3' TERM; echo $GREETING; echo $(GREETING); "+
		"while :; do sleep 0.1; done")
	podIP := &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}
	main.Env = []v1.EnvVar{{Name: "IP", ValueFrom: podIP}, {Name: "GREETING", Value: "hello from $(IP)"}}
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "> /started"}}}
	main.Lifecycle = &v1.Lifecycle{PostStart: hook}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "0000-1"},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(2)), Containers: []v1.Container{main},
			InitContainers: []v1.Container{shell("init", "echo init works; exit 0"), side},
		},
	}
	st := n.syncUntil(t, p, "running pod", runs(0))
	init := st.Find("init")
	if init == nil || init.State != container.Exited || init.ExitCode != 0 || init.Reason != "Completed" {
		t.Errorf("init container %+v", init)
	}
	if len(st.IPs) == 0 {
		t.Fatal("the pod has no address")
	}
	// A file of the postStart hook, hosts and resolv.conf.
	script := []string{"sh", "-c", "test -e /started && tail -1 /etc/hosts; cat /etc/resolv.conf"}
	out, err := n.Exec(t.Context(), st.Find("main").ID, script, patience)
	want := st.IPs[0] + "\tweb\nsearch shop.svc.example.org svc.example.org example.org\nnameserver 192.0.2.53\n" +
		"options ndots:5\n"
	if err != nil || string(out) != want {
		t.Errorf("hosts and resolv.conf are %q, %v", out, err)
	}
	n.logUntil(t, "init/0.log", " stdout F init works\n", 1)
	greeting := " stdout F hello from " + st.IPs[0] + "\n"
	n.logUntil(t, "main/0.log", greeting, 2) // its trap is set now

	// It crashes, and is restarted with another log.
	if err := n.cri.StopContainer(t.Context(), st.Find("main").ID.ID, patience); err != nil {
		t.Fatal(err)
	}
	st = n.syncUntil(t, p, "restart of main", runs(1))
	i := slices.IndexFunc(st.ContainerStatuses, func(c *container.Status) bool {
		return c.Name == "main" && c.ExitCode == 3 && c.Reason == "Error" && c.Message == "bye\n"
	})
	if i < 0 {
		t.Errorf("the instance that crashed is not in %+v", st.ContainerStatuses)
	}
	n.logUntil(t, "main/1.log", greeting, 2)

	// The sandbox dies, and all begins again in a new one.
	if err := n.cri.StopPodSandbox(t.Context(), st.SandboxStatuses[0].GetId()); err != nil {
		t.Fatal(err)
	}
	st = n.syncUntil(t, p, "new sandbox", runs(2))
	attempt := st.SandboxStatuses[0].GetMetadata().GetAttempt()
	if len(st.SandboxStatuses) != 2 || attempt != 1 || st.Find("init").RestartCount != 1 {
		t.Errorf("%d sandboxes, attempt %d, init %+v", len(st.SandboxStatuses), attempt, st.Find("init"))
	}

	// The end, without the pod's spec.
	if res := n.KillPod(t.Context(), nil, st.RunningPod("containerd"), nil); res.Err != nil {
		t.Fatal(res.Err)
	}
	st = n.status(t, p)
	state := st.SandboxStatuses[0].GetState()
	if left := st.Running(); len(left) != 0 || state != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("%d containers run, sandbox %v", len(left), state)
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
