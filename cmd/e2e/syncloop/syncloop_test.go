//go:build e2e

package syncloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestMain(m *testing.M) { nodebox.Main(m) }

const (
	e2eNode   = "e2e"
	namespace = "shop"
	// e2ePatience is for what two cores do in some seconds, or in a minute when they have much else to do.
	e2ePatience = 60 * time.Second
)

// A node is a syncLoop on a private containerd, and a client of that containerd.
type node struct {
	*syncloop.SyncLoop // nil unless it runs
	t                  *testing.T
	box                *nodebox.Containerd
	cri                *remote.Service
	cfg                syncloop.Config
	log                looptest.Log
	cancel             context.CancelFunc
	ended              chan error
}

// newNode makes a node whose syncLoop is not started. Its periods are shortened by a factor, but for the deadline of a
// call. After the test all that is left of it is removed, and looked for.
func newNode(t *testing.T, faster float64) *node {
	t.Helper()
	n := &node{t: t, box: nodebox.Start(t, nodebox.Options{Network: true})}
	dir := t.TempDir()
	kubelet, _, err := syncloop.LoadKubelet("", map[string][]string{"cgroup-root": {filepath.Base(n.box.Dir())}})
	e2etest.Must(t, err)
	// How full the disk of the tests is must not matter.
	kubelet.EvictionHard = map[string]string{"memory.available": "1Mi"}
	kubelet.ImageGCHighThresholdPercent = 100
	kubelet.Authentication.Anonymous.Enabled, kubelet.Authorization.Mode = true, "AlwaysAllow"
	log := n.log.Logger(4)
	n.cfg = syncloop.Config{
		Endpoint: n.box.Endpoint(), NodeName: e2eNode, Kubelet: kubelet,
		Periods: syncloop.PeriodsFor(kubelet).Faster(faster),
		RootDir: dir + "/root", LogDir: dir + "/log", StatusFile: dir + "/statuses.json",
		Manifests: dir + "/manifests", Objects: dir + "/objects", Address: "127.0.0.1:0",
		Log: log, Recorder: syncloop.NewRecorder(nil, e2eNode, log),
	}
	n.cfg.Periods.Request = e2ePatience
	for _, d := range []string{n.cfg.Manifests, n.cfg.Objects} {
		e2etest.Must(t, os.Mkdir(d, 0o755))
	}
	n.cri, err = remote.Dial(n.box.Endpoint(), remote.Options{Log: logr.Discard()})
	e2etest.Must(t, err)
	t.Cleanup(n.end)
	return n
}

// end stops the syncLoop, removes what it left, and looks whether there is anything.
func (n *node) end() {
	n.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 2*e2ePatience)
	defer cancel()
	_, err := syncloop.Cleanup(ctx, syncloop.CleanupConfig{
		Endpoint: n.cfg.Endpoint, NodeName: e2eNode, RootDir: n.cfg.RootDir, LogDir: n.cfg.LogDir, Timeout: e2ePatience,
	})
	if err != nil {
		n.t.Errorf("cleaning up: %v", err)
	}
	if sandboxes, containers := n.list(ctx, ours()); len(sandboxes)+len(containers) > 0 {
		n.t.Errorf("after the cleanup: sandboxes %v, containers %v", sandboxes, containers)
	}
	if err := n.cri.Close(); err != nil {
		n.t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(n.cfg.RootDir)) {
		n.t.Errorf("after the cleanup something is mounted below %s (%v)", n.cfg.RootDir, err)
	}
	for _, dir := range []string{n.cfg.RootDir, n.cfg.LogDir} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			n.t.Errorf("after the cleanup: %s: %v", dir, err)
		}
	}
	if left := n.cgroups("kubepods*"); len(left) > 0 {
		n.t.Errorf("after the cleanup cgroups are left: %v", left)
	}
	if n.t.Failed() {
		all := n.log.Lines("")
		n.t.Logf("the log ends with:\n%s", strings.Join(all[max(0, len(all)-200):], "\n"))
	}
}

// list lists the sandboxes and containers with these labels.
func (n *node) list(
	ctx context.Context, labels map[string]string,
) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container) {
	n.t.Helper()
	sandboxes, err := n.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels})
	containers, listErr := n.cri.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	e2etest.Must(n.t, errors.Join(err, listErr))
	return sandboxes, containers
}

// cgroups are those of the node whose path below its root matches a pattern, in all hierarchies.
func (n *node) cgroups(pattern string) []string {
	var all []string
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(filepath.Join(top, filepath.Base(n.box.Dir()), pattern))
		e2etest.Must(n.t, err)
		all = append(all, found...)
	}
	return all
}

func ours() map[string]string { return map[string]string{container.OwnerLabel: e2eNode} }

// start starts the syncLoop.
func (n *node) start() {
	n.t.Helper()
	s, err := syncloop.New(n.t.Context(), n.cfg)
	e2etest.Must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	n.SyncLoop, n.cancel, n.ended = s, cancel, make(chan error, 1)
	go func() { n.ended <- s.Run(ctx) }()
}

// stop ends the syncLoop as an interrupt would, if it runs.
func (n *node) stop() {
	n.t.Helper()
	if n.cancel == nil {
		return
	}
	n.cancel()
	n.cancel = nil
	select {
	case err := <-n.ended:
		if err != nil {
			n.t.Errorf("the syncLoop ended with %v", err)
		}
	case <-time.After(e2ePatience):
		n.t.Errorf("the syncLoop did not end within %v", e2ePatience)
	}
}

// await polls until check finds nothing to complain of.
func (n *node) await(what string, check func() error) {
	n.t.Helper()
	e2etest.Await(n.t, what, check)
}

// sub runs a part of the test as a subtest.
func (n *node) sub(name string, check func()) {
	whole := n.t
	defer func() { n.t = whole }()
	whole.Run(name, func(t *testing.T) {
		n.t = t
		check()
	})
}

// apply writes a pod's manifest, in one step.
func (n *node) apply(p *v1.Pod) {
	n.t.Helper()
	data, err := json.Marshal(p)
	e2etest.Must(n.t, err)
	n.write(n.cfg.Manifests, p.Name, data)
}

func (n *node) write(dir, name string, data []byte) {
	n.t.Helper()
	tmp := filepath.Join(filepath.Dir(dir), name+".new")
	err := os.WriteFile(tmp, data, 0o644)
	e2etest.Must(n.t, errors.Join(err, os.Rename(tmp, filepath.Join(dir, name+".yaml"))))
}

// podsOf reads the pods of a file in testdata, with values for some of its variables: ${NAME}, value, and so on.
func podsOf(t *testing.T, file string, values ...string) []*v1.Pod {
	t.Helper()
	values = append(values, "${BUSYBOX}", nodebox.ImageBusybox, "${FOREVER}", forever, "${NODE}", e2eNode)
	return e2etest.Documents[v1.Pod](t, file, values...)
}

// remove removes a pod's manifest.
func (n *node) remove(name string) {
	n.t.Helper()
	e2etest.Must(n.t, os.Remove(filepath.Join(n.cfg.Manifests, name+".yaml")))
}

// pod is the pod of a manifest with its status, or an empty one.
func (n *node) pod(name string) *v1.Pod {
	for _, p := range n.PodsWithStatus() {
		if p.Name == name+"-"+e2eNode {
			return p
		}
	}
	return &v1.Pod{}
}

// awaitPod polls until the pod of a manifest is as wanted, and returns it.
func (n *node) awaitPod(what, name string, is func(p *v1.Pod) bool) (p *v1.Pod) {
	n.t.Helper()
	n.await(what, func() error {
		if p = n.pod(name); !is(p) {
			return fmt.Errorf("%s is %+v", name, p.Status)
		}
		return nil
	})
	return p
}

// awaitReady waits until the pods of manifests run and are ready.
func (n *node) awaitReady(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.awaitPod(name+" to be ready", name, isReady)
	}
}

func isReady(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && hasCondition(p, v1.PodReady) }

// containerOf returns the status of the one container of a pod, or an empty one.
func containerOf(p *v1.Pod) v1.ContainerStatus {
	if c := p.Status.ContainerStatuses; len(c) == 1 {
		return c[0]
	}
	return v1.ContainerStatus{}
}

func hasCondition(p *v1.Pod, kind v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == v1.ConditionTrue
	})
}

// running are the ids of the containers of a pod that run in containerd, by container name and pod UID.
func (n *node) running(name string) map[string]string {
	n.t.Helper()
	labels, out := ours(), map[string]string{}
	labels[container.PodNameLabel] = name + "-" + e2eNode
	_, list := n.list(n.t.Context(), labels)
	for _, c := range list {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[c.GetMetadata().GetName()+" of "+c.GetLabels()[container.PodUIDLabel]] = c.GetId()
		}
	}
	return out
}

// event waits for an event with this reason for a pod whose message has the text.
func (n *node) event(name, reason, text string) {
	n.t.Helper()
	about := fmt.Sprintf(`"Event occurred" "object"={"name"="%s-%s" "namespace"="%s"} `, name, e2eNode, namespace)
	quoted := strconv.Quote(text)
	n.await("event "+reason+" of "+name, func() error { // the recorder's goroutine logs it
		for _, line := range n.log.Lines(about) {
			if strings.Contains(line, fmt.Sprintf(`"reason"=%q "message"=`, reason)) &&
				strings.Contains(line, quoted[1:len(quoted)-1]) {
				return nil
			}
		}
		return fmt.Errorf("none with %q", text)
	})
}

// forever is a script that ends on SIGTERM.
const forever = "trap 'exit 0' TERM; sleep 1000000 & wait"

func shell(name, script string) v1.Container {
	return v1.Container{
		Name: name, Image: nodebox.ImageBusybox, ImagePullPolicy: v1.PullIfNotPresent,
		Command: []string{"sh", "-c", script},
	}
}

func newPod(name string, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1.PodSpec{Containers: containers, TerminationGracePeriodSeconds: new(int64(2))},
	}
}
