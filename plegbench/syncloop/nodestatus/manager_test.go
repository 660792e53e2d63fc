package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// criTimeout is the kubelet's runtimeRequestTimeout.
const criTimeout = 2 * time.Minute

// A harness is a manager with a runtime and an API server that a test breaks.
type harness struct {
	*Manager
	client *fake.Client // nil: standalone
	events *record.FakeRecorder
	state  *RuntimeState
	log    looptest.Log

	mu       sync.Mutex
	hung     bool
	err      error // of the runtime
	pressure []v1.NodeConditionType
	changes  []string
}

// logged counts the lines of the log with a text.
func (r *harness) logged(text string) int { return len(r.log.Lines(text)) }

func (r *harness) set(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// call is a call to the runtime: one that hangs ends with its deadline.
func (r *harness) call(ctx context.Context) error {
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

// newHarness makes a harness that runs until the test ends. With an API server, objects are what it has.
func newHarness(t *testing.T, api bool, objects ...kruntime.Object) *harness {
	t.Helper()
	r := &harness{events: record.NewFakeRecorder(10000)}
	log := r.log.Logger(2)
	r.state = NewRuntimeState(RuntimeConfig{
		Period: 5 * time.Second, Down: 30 * time.Second, Log: log, OnReady: func() {},
		Status: func(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
			return runtimeStatus(true, true), r.call(ctx)
		},
	})
	cfg := Config{
		NodeName: "node-1", Register: true, Labels: map[string]string{"zone": "a"}, Runtime: r.state,
		Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}},
		Images: func() []v1.ContainerImage { return nil },
		Pressure: func() []v1.NodeConditionType {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.pressure
		},
		Version: func(ctx context.Context) (name, version string, err error) {
			return "containerd", "2.1.4", r.call(ctx)
		},
		KubeletVersion: "v1.36.2", RuntimeName: "containerd", MaxPods: 110, Port: 10250,
		Frequency: 10 * time.Second, Report: 5 * time.Minute, LeaseSeconds: 40,
		Machine:   Machine{Cores: 2, Memory: 1 << 30, Storage: 1 << 30},
		Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-1"}},
		OnReadyChange: func(ready bool, message string) {
			r.set(func() { r.changes = append(r.changes, fmt.Sprintf("%v %s", ready, message)) })
		},
		Log: log, Recorder: r.events,
	}
	if api {
		r.client = fake.New(objects...)
		cfg.Client = r.client
	}
	r.Manager = New(cfg)
	return r
}

// fails makes calls to the API server fail as long as err returns an error.
func (r *harness) fails(verb string, err func() error) {
	r.client.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, kruntime.Object, error) {
		err := err()
		return err != nil, nil, err
	})
}

// start runs the manager and the updater until the test ends.
func (r *harness) start(t *testing.T) {
	t.Helper()
	looptest.Run(t, r.Run)
	looptest.Run(t, r.state.Run)
}

func (r *harness) stored(t *testing.T) *v1.Node {
	t.Helper()
	node, err := r.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	testkit.Must(t, err)
	return node
}

// ready checks the Ready condition, at the API server or without one by Node. An empty message stands for a node that
// is ready.
func (r *harness) ready(t *testing.T, when, notReady string) {
	t.Helper()
	node := r.Node()
	if r.client != nil {
		node = r.stored(t)
	}
	got := node.Status.Conditions[len(node.Status.Conditions)-1]
	want := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status",
	}
	if notReady != "" {
		want.Status, want.Reason, want.Message = v1.ConditionFalse, "KubeletNotReady", notReady
	}
	got.LastHeartbeatTime, got.LastTransitionTime = metav1.Time{}, metav1.Time{}
	testkit.Equal(t, when, want, got)
}

func TestPatchesOnlyForNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, true)
		r.start(t)
		time.Sleep(time.Minute)
		patches := func(after time.Duration, least, most int) {
			t.Helper()
			r.client.ClearActions()
			time.Sleep(after)
			n := 0
			for _, a := range r.client.Actions() {
				if a.Matches("patch", "nodes") {
					n++
				}
			}
			if n < least || n > most {
				t.Errorf("%d patches in %v, want %d to %d", n, after, least, most)
			}
		}
		patches(90*time.Second, 0, 0)
		r.set(func() { r.pressure = []v1.NodeConditionType{v1.NodeDiskPressure} })
		patches(11*time.Second, 1, 1)
		patches(30*time.Minute, 5, 6) // one in five minutes
	})
}

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, true)
		tries := 0
		r.fails("create", func() error {
			if tries++; tries < 4 {
				return apierrors.NewInternalError(errors.New("not up yet"))
			}
			return nil
		})
		r.start(t)
		time.Sleep(1600 * time.Millisecond) // tries at 0.1, 0.3, 0.7 and 1.5 s
		node := r.stored(t)
		got := []any{
			node.Labels["zone"], node.Labels[v1.LabelHostname], len(node.Spec.Taints),
			node.Status.Capacity.Pods().Value(), node.Status.DaemonEndpoints.KubeletEndpoint.Port,
			r.logged("Attempting to register node"), r.logged("Unable to register node with API server"),
		}
		testkit.Equal(t, "node and tries", []any{"a", "node-1", 1, int64(110), int32(10250), 4, 3}, got)
	})
	forbidden := apierrors.NewForbidden(v1.Resource("nodes"), "node-1", errors.New("no"))
	for _, createErr := range []error{nil, forbidden} { // one that exists, and that it must not create
		synctest.Test(t, func(t *testing.T) {
			labels := map[string]string{v1.LabelHostname: "old", "zone": "b"}
			r := newHarness(t, true, &v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels},
				Spec:       v1.NodeSpec{PodCIDR: "10.0.0.0/24"},
				Status:     v1.NodeStatus{Capacity: v1.ResourceList{"example.com/device": resource.MustParse("1")}},
			})
			r.fails("create", func() error { return createErr })
			r.start(t)
			time.Sleep(time.Minute)
			node := r.stored(t)
			testkit.Equal(t, "labels", labels, node.Labels)
			testkit.Equal(t, "taints", 0, len(node.Spec.Taints))
			if _, ok := node.Status.Allocatable["example.com/device"]; !ok {
				t.Errorf("allocatable %v", node.Status.Allocatable)
			}
			r.ready(t, "after a minute", "")
		})
	}
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, true)
		r.start(t)
		time.Sleep(time.Minute)
		r.set(func() { r.hung = true })
		time.Sleep(5 * time.Minute) // the lease does not wait for the runtime
		leases := r.client.CoordinationV1().Leases("kube-node-lease")
		lease, err := leases.Get(t.Context(), "node-1", metav1.GetOptions{})
		testkit.Must(t, err)
		if age := time.Since(lease.Spec.RenewTime.Time); age > 10400*time.Millisecond {
			t.Errorf("renewed %v ago", age)
		}
		if *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "node-1" ||
			len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].Kind != "Node" {
			t.Errorf("lease %+v", lease)
		}
	})
}

// TestServerGone checks that the node is judged without an API server as well.
func TestServerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, true)
		r.fails("*", func() error {
			if testkit.Text(r.call(t.Context())) == "" {
				return nil
			}
			return errors.New("no route to host")
		})
		r.start(t)
		time.Sleep(time.Minute)
		r.set(func() { r.err = errors.New("refused") }) // both at once
		time.Sleep(45 * time.Second)
		if last := r.Node().Status.Conditions[3]; last.Status == v1.ConditionTrue {
			t.Errorf("still judged ready: %v", last)
		}
	})
}

// runtimeStatus is an answer of a runtime.
func runtimeStatus(runtime, network bool) *runtimeapi.RuntimeStatus {
	return &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: "RuntimeReady", Status: runtime, Reason: "R", Message: "M"},
		{
			Type: "NetworkReady", Status: network, Reason: "NetworkPluginNotReady",
			Message: "Network plugin returns error: cni plugin not initialized",
		},
	}}
}

func TestUpdate(t *testing.T) {
	const noCNI = "NetworkReady=false reason:NetworkPluginNotReady " +
		"message:Network plugin returns error: cni plugin not initialized"
	pleg := errors.New("pleg was last seen active 3m5s ago; threshold is 3m0s")
	for name, tt := range map[string]struct {
		status       *runtimeapi.RuntimeStatus
		checks       []error // of health
		runtime, net string
		log          string
		onReady      int
	}{
		"no network": {
			status: runtimeStatus(true, false), onReady: 1,
			net: "container runtime network not ready: " + noCNI, log: "Container runtime network not ready",
		},
		"pleg alone prints bare": {
			status: runtimeStatus(true, true), checks: []error{pleg, nil}, onReady: 1,
			runtime: "PLEG is not healthy: " + pleg.Error(),
		},
		"not ready does not refresh the clock; all, in order": {
			status: runtimeStatus(false, true), checks: []error{nil, pleg},
			runtime: "[container runtime is down, EventedPLEG is not healthy: " + pleg.Error() +
				", container runtime not ready: RuntimeReady=false reason:R message:M]",
			log: "Container runtime not ready",
		},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			var log looptest.Log
			readies := 0
			state := NewRuntimeState(RuntimeConfig{
				Down: 30 * time.Second, OnReady: func() { readies++ },
				Status: func(context.Context) (*runtimeapi.RuntimeStatus, error) { return tt.status, nil },
				Log:    log.Logger(0),
			})
			for i, err := range tt.checks {
				state.AddHealthCheck([]string{"PLEG", "EventedPLEG"}[i], func() error { return err })
			}
			state.lastSync = time.Now()
			time.Sleep(30 * time.Second)
			state.Update(t.Context())
			state.Update(t.Context())
			got := []any{testkit.Text(state.RuntimeErrors()), testkit.Text(state.NetworkErrors()), readies}
			testkit.Equal(t, "errors and calls of OnReady", []any{tt.runtime, tt.net, tt.onReady}, got)
			if lines := log.Lines(""); (len(log.Lines(tt.log)) > 0) != (tt.log != "") {
				t.Errorf("logged %q, want %q", lines, tt.log)
			}
		})
	}
}
