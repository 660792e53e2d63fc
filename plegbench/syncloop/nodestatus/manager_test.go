package nodestatus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

// criTimeout is the kubelet's runtimeRequestTimeout.
const criTimeout = 2 * time.Minute

// A rig is a manager with a runtime and an API server that a test breaks.
type rig struct {
	*Manager
	client *fake.Client // nil: standalone
	events *record.FakeRecorder
	state  *RuntimeState

	mu      sync.Mutex
	hung    bool
	err     error
	log     bytes.Buffer
	changes []string
}

// Write takes lines of the log.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *rig) breaks(hung bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung, r.err = hung, err
}

// call is a call to the runtime: one that hangs ends with its deadline.
func (r *rig) call(ctx context.Context) error {
	r.mu.Lock()
	hung, err := r.hung, r.err
	r.mu.Unlock()
	if !hung {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("rpc error: code = DeadlineExceeded desc = %w", ctx.Err())
}

// newRig makes a rig; with an API server, objects are what it has.
func newRig(api bool, change func(*Config), objects ...kruntime.Object) *rig {
	r := &rig{events: record.NewFakeRecorder(10000)}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(r), textlogger.Verbosity(2)))
	yes := true
	r.state = NewRuntimeState(RuntimeConfig{
		Period: 5 * time.Second, Down: 30 * time.Second, Log: log, OnReady: func() {},
		Status: func(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
			return runtimeStatus(&yes, &yes), r.call(ctx)
		},
	})
	cfg := Config{
		NodeName: "node-1", Register: true, Labels: map[string]string{"zone": "a"},
		Taints:  []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}},
		Runtime: r.state,
		Images:  func() []v1.ContainerImage { return nil }, Pressure: func() []v1.NodeConditionType { return nil },
		Version: func(ctx context.Context) (name, version string, err error) {
			return "containerd", "2.1.4", r.call(ctx)
		},
		KubeletVersion: "v1.36.2", RuntimeName: "containerd", MaxPods: 110, Port: 10250,
		Frequency: 10 * time.Second, Report: 5 * time.Minute, LeaseSeconds: 40,
		Machine:   Machine{BootID: "boot", Cores: 2, Memory: 1 << 30, Storage: 1 << 30},
		Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-1"}},
		OnReadyChange: func(ready bool, message string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes = append(r.changes, fmt.Sprintf("%v %s", ready, message))
		},
		Log: log, Recorder: r.events,
	}
	if api {
		r.client = fake.New(objects...)
		cfg.Client = r.client
	}
	if change != nil {
		change(&cfg)
	}
	r.Manager = New(cfg)
	return r
}

// start runs the manager and the updater until the test ends, or until stop is called, and checks that both end then.
func (r *rig) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{r.Run, r.state.Run} {
		wg.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

// ready is the Ready condition as whoever asks sees it: at the API server, or by Node.
func (r *rig) ready(t *testing.T) v1.NodeCondition {
	t.Helper()
	node := r.Node()
	if r.client != nil {
		var err error
		if node, err = r.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if node == nil {
		t.Fatal("no node")
	}
	if last := node.Status.Conditions[len(node.Status.Conditions)-1]; last.Type == v1.NodeReady {
		return last
	}
	t.Fatalf("Ready is not the last of %v", node.Status.Conditions)
	return v1.NodeCondition{}
}

func (r *rig) recorded() (out []string) {
	for {
		select {
		case e := <-r.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func both(t *testing.T, test func(t *testing.T, api bool)) {
	for name, api := range map[string]bool{"API server": true, "standalone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, api) })
		})
	}
}

func TestRuntimeDiesAndComesBack(t *testing.T) {
	both(t, func(t *testing.T, api bool) {
		r := newRig(api, nil)
		r.start(t)
		time.Sleep(time.Minute)
		if c := r.ready(t); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status" {
			t.Fatalf("at the start: %v", c)
		}
		r.breaks(false, errors.New("connection refused"))
		time.Sleep(24 * time.Second) // 30 s since the last good Status are not over
		if c := r.ready(t); c.Status != v1.ConditionTrue {
			t.Errorf("too early: %v", c)
		}
		time.Sleep(20 * time.Second)
		if c := r.ready(t); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "container runtime is down" {
			t.Errorf("not ready: %v", c)
		}
		log := r.logged()
		if n := strings.Count(log, `"Node became not ready" node="node-1" condition={"type":"Ready","status":"False","lastHeartbeatTime":"`); n != 1 {
			t.Errorf("%d lines, want 1: %s", n, log)
		}
		if !strings.Contains(log, `"reason":"KubeletNotReady","message":"container runtime is down"}`) ||
			!strings.Contains(log, `"Recording event message for node" node="node-1" event="NodeNotReady"`) {
			t.Error(log)
		}
		r.breaks(false, nil)
		time.Sleep(20 * time.Second)
		if c := r.ready(t); c.Status != v1.ConditionTrue {
			t.Errorf("does not recover: %v", c)
		}
		want := []string{
			"Normal Starting Starting kubelet.",
			"Normal NodeHasSufficientMemory Node node-1 status is now: NodeHasSufficientMemory",
			"Normal NodeHasNoDiskPressure Node node-1 status is now: NodeHasNoDiskPressure",
			"Normal NodeHasSufficientPID Node node-1 status is now: NodeHasSufficientPID",
			"Normal NodeNotReady Node node-1 status is now: NodeNotReady",
			"Normal NodeReady Node node-1 status is now: NodeReady",
		}
		if diff := cmp.Diff(want, r.recorded()); diff != "" {
			t.Error(diff)
		}
		wantChanges := []string{"true kubelet is posting ready status", "false container runtime is down", "true kubelet is posting ready status"}
		if diff := cmp.Diff(wantChanges, r.changes); diff != "" {
			t.Error(diff)
		}
	})
}

// A hung runtime holds up Version, and with it the whole pass, for its two minutes: only then is the node seen not
// ready.
func TestRuntimeHangs(t *testing.T) {
	both(t, func(t *testing.T, api bool) {
		r := newRig(api, nil)
		r.start(t)
		time.Sleep(time.Minute)
		r.breaks(true, nil)
		time.Sleep(100 * time.Second)
		if text(r.state.RuntimeErrors()) != "container runtime is down" {
			t.Error("the runtime is not down after 100 s")
		}
		if c := r.ready(t); c.Status != v1.ConditionTrue {
			t.Errorf("seen before Version gave up: %v", c)
		}
		time.Sleep(40 * time.Second)
		if c := r.ready(t); c.Status != v1.ConditionFalse || c.Message != "container runtime is down" {
			t.Errorf("not ready: %v", c)
		}
		if got := r.Node().Status.NodeInfo.ContainerRuntimeVersion; got != "containerd://Unknown" {
			t.Errorf("version %s", got)
		}
		r.breaks(false, nil)
		time.Sleep(criTimeout + 30*time.Second)
		if c := r.ready(t); c.Status != v1.ConditionTrue || r.Node().Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.1.4" {
			t.Errorf("does not recover: %v", c)
		}
	})
}

func TestFastStart(t *testing.T) {
	both(t, func(t *testing.T, api bool) {
		r := newRig(api, nil)
		r.breaks(false, errors.New("refused"))
		r.start(t)
		time.Sleep(33 * time.Second)
		if c := r.ready(t); c.Status != v1.ConditionFalse || r.state.loud ||
			c.Message != "[container runtime status check may not have completed yet, network state unknown]" {
			t.Fatalf("without a runtime: %v", c)
		}
		r.breaks(false, nil)
		time.Sleep(300 * time.Millisecond)
		if c := r.ready(t); c.Status != v1.ConditionTrue || !strings.Contains(r.logged(), "Fast updating node status as it just became ready") {
			t.Errorf("300 ms after the runtime came: %v", c)
		}
		if !r.state.loud {
			t.Error("the updater was not told")
		}
	})
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(true, nil)
			r.breaks(false, errors.New("refused"))
			r.start(t)
			time.Sleep(121 * time.Second)
			if n := strings.Count(r.logged(), "Node not becoming ready in time after startup"); n != 1 || !r.state.loud {
				t.Errorf("%d lines, told %v", n, r.state.loud)
			}
		})
	})
}

func patches(c *fake.Client) (n int) {
	for _, a := range c.Actions() {
		if a.Matches("patch", "nodes") {
			n++
		}
	}
	return n
}

func TestPatchesOnlyForNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var disk bool
		r := newRig(true, func(c *Config) {
			c.Pressure = func() []v1.NodeConditionType {
				mu.Lock()
				defer mu.Unlock()
				if disk {
					return []v1.NodeConditionType{v1.NodeDiskPressure}
				}
				return nil
			}
		})
		r.start(t)
		time.Sleep(time.Minute)
		n := patches(r.client)
		time.Sleep(90 * time.Second) // less than half of five minutes since the last
		if got := patches(r.client) - n; got != 0 {
			t.Errorf("%d patches without news", got)
		}
		mu.Lock()
		disk = true
		mu.Unlock()
		time.Sleep(11 * time.Second)
		if got := patches(r.client) - n; got != 1 {
			t.Errorf("%d patches for disk pressure", got)
		}
		time.Sleep(30 * time.Minute)
		if got := patches(r.client) - n - 1; got < 5 || got > 6 {
			t.Errorf("%d reports in 30 minutes, want one in five", got)
		}
	})
}

func TestRegistration(t *testing.T) {
	group := schema.GroupResource{Resource: "nodes"}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(true, nil)
		var tries int
		r.client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, kruntime.Object, error) {
			tries++
			return tries < 4, nil, apierrors.NewInternalError(errors.New("not up yet"))
		})
		r.start(t)
		time.Sleep(1600 * time.Millisecond) // tries at 0.1, 0.3, 0.7 and 1.5 s
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if node.Labels["zone"] != "a" || node.Labels[v1.LabelHostname] != "node-1" || len(node.Spec.Taints) != 1 || node.Status.Capacity.Pods().Value() != 110 ||
			node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
			t.Errorf("node %+v", node)
		}
		log := r.logged()
		got := []int{
			strings.Count(log, `"Attempting to register node" node="node-1"`), strings.Count(log, `"Unable to register node with API server" err=`),
			strings.Count(log, `"Successfully registered node" node="node-1"`),
		}
		if diff := cmp.Diff([]int{4, 3, 1}, got); diff != "" {
			t.Error(diff)
		}
	})
	for name, createErr := range map[string]error{
		"exists": nil, "must not create": apierrors.NewForbidden(group, "node-1", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := &v1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{v1.LabelHostname: "old", "zone": "b"}},
					Spec:       v1.NodeSpec{PodCIDR: "10.0.0.0/24"},
					Status: v1.NodeStatus{
						NodeInfo: v1.NodeSystemInfo{BootID: "earlier"},
						Capacity: v1.ResourceList{"example.com/device": resource.MustParse("1")},
					},
				}
				r := newRig(true, nil, old)
				if createErr != nil {
					r.client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, kruntime.Object, error) { return true, nil, createErr })
				}
				r.start(t)
				time.Sleep(time.Minute)
				node, err := r.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if node.Labels[v1.LabelHostname] != "old" || node.Labels["zone"] != "b" || len(node.Spec.Taints) != 0 || node.Spec.PodCIDR == "" {
					t.Errorf("labels %v, spec %+v", node.Labels, node.Spec)
				}
				if _, ok := node.Status.Allocatable["example.com/device"]; !ok || r.ready(t).Status != v1.ConditionTrue {
					t.Errorf("status %+v", node.Status)
				}
			})
		})
	}
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(true, nil)
		r.start(t)
		time.Sleep(time.Minute)
		r.breaks(true, nil)
		time.Sleep(5 * time.Minute) // the lease does not wait for the runtime
		lease, err := r.client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > 10400*time.Millisecond {
			t.Errorf("renewed %v ago", age)
		}
		if *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "node-1" ||
			len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].Kind != "Node" {
			t.Errorf("lease %+v", lease)
		}
	})
}

// Without an API server the node is judged all the same.
func TestServerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(true, nil)
		var gone atomic.Bool
		r.client.PrependReactor("*", "nodes", func(clienttesting.Action) (bool, kruntime.Object, error) {
			return gone.Load(), nil, errors.New("no route to host")
		})
		r.start(t)
		time.Sleep(time.Minute)
		gone.Store(true)
		r.breaks(false, errors.New("refused"))
		time.Sleep(45 * time.Second)
		if last := r.Node().Status.Conditions[3]; last.Status == v1.ConditionTrue {
			t.Errorf("still seen ready: %v", last)
		}
		for _, line := range []string{
			`"Node became not ready" node="node-1"`,
			`"Error updating node status, will retry" err="patching the status of node \"node-1\": no route to host"`,
			`"Error updating node status, will retry" err="error getting node \"node-1\": no route to host"`,
		} {
			if !strings.Contains(r.logged(), line) {
				t.Errorf("no line %s", line)
			}
		}
	})
}
