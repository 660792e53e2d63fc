// Package nodestatus models how a kubelet judges its runtime and reports its node to the cluster: the runtime state
// with its 30 s clock, the node's conditions, registration, heartbeat and lease. Without an API server the node is
// computed and kept all the same. Left out: cloud providers, device plugins, huge pages, swap, runtime handlers and
// features, volumes in use, addresses beyond one and a host name, the events of reboots and of nodes that become
// unschedulable, and the correction of labels at a second registration.
package nodestatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Client is the nodes of an API server and their leases.
type Client interface {
	Get(ctx context.Context, namespace, name string, into kruntime.Object) error
	Create(ctx context.Context, o kruntime.Object) error
	Update(ctx context.Context, o kruntime.Object) error
	PatchStatus(ctx context.Context, namespace, name string, patch []byte, into kruntime.Object) error
}

// Config configures a Manager. Fields are required unless they say what nil or zero means.
type Config struct {
	Client   Client // nil: no API server; the node is computed and kept only
	NodeName string
	Register bool // create the node's object; otherwise wait until it exists
	Labels   map[string]string
	Taints   []v1.Taint

	Runtime *RuntimeState
	// Version is the CRI call, with its own deadline. A runtime that hangs delays each pass for so long.
	Version     func(ctx context.Context) (name, version string, err error)
	RuntimeName string // when Version fails

	KubeletVersion string
	Machine        Machine
	MaxPods        int
	Addresses      []v1.NodeAddress
	Port           int32                            // of the server; 0: none
	Images         func() []v1.ContainerImage       // from memory, largest first
	Pressure       func() []v1.NodeConditionType    // the conditions of pressure that the node is under
	OnReadyChange  func(ready bool, message string) // the first status counts as a change
	Frequency      time.Duration                    // nodeStatusUpdateFrequency
	Report         time.Duration                    // nodeStatusReportFrequency
	LeaseSeconds   int32                            // nodeLeaseDurationSeconds. Renewed at a quarter of it.
	Log            logr.Logger
	Recorder       record.EventRecorder
}

// A Manager keeps one node's status. Node is safe for use by several goroutines.
type Manager struct {
	cfg Config
	ref *v1.ObjectReference

	// Used by the goroutine of the passes alone.
	registered bool
	stored     *v1.Node  // as the API server last gave it, or as last computed without one
	due        time.Time // of the next report without a change
	lastReady  v1.ConditionStatus

	mu   sync.Mutex
	view *v1.Node // as last computed
}

// New makes a Manager that has computed nothing yet.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, ref: pod.NodeReference(cfg.NodeName)}
}

// Numbers of pkg/kubelet/kubelet.go upstream.
const (
	fastPeriod = 100 * time.Millisecond // between updates of the runtime state until the node is first ready
	fastFor    = 120 * time.Second      // nodeReadyGracePeriod
	passJitter = 0.04                   // random part of the pause between passes, and between renewals of the lease
)

// Run computes and reports the node's status until ctx ends, whose error it returns: each 10 s, and as soon as the
// runtime is first ready. The lease has its own goroutine, which never waits for the runtime: a node whose runtime
// hangs becomes NotReady, but not Unknown.
func (m *Manager) Run(ctx context.Context) error {
	m.cfg.Recorder.Eventf(m.ref, v1.EventTypeNormal, "Starting", "Starting kubelet.")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		m.start(ctx)
		wait.JitterUntilWithContext(ctx, m.pass, m.cfg.Frequency, passJitter, true)
		return ctx.Err()
	})
	if m.cfg.Client != nil {
		g.Go(func() error { return m.keepLease(ctx) })
	}
	return g.Wait()
}

// start waits until the runtime is first ready, for 120 s at most, and makes passes meanwhile, so that the node's
// status does not wait for the next pass.
func (m *Manager) start(ctx context.Context) {
	began := time.Now()
	for next := began; time.Since(began) < fastFor; {
		m.cfg.Runtime.Update(ctx)
		if m.cfg.Runtime.RuntimeErrors() == nil && m.cfg.Runtime.NetworkErrors() == nil {
			m.cfg.Log.Info("Fast updating node status as it just became ready")
			return
		}
		if !time.Now().Before(next) {
			m.pass(ctx)
			next = time.Now().Add(m.cfg.Frequency)
		}
		if m.lastReady == v1.ConditionTrue {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(fastPeriod):
		}
	}
	m.cfg.Log.Error(nil, "Node not becoming ready in time after startup")
}

// Node is the node as last computed, whether or not it could be reported. It is nil before the first pass, and it
// must not be changed.
func (m *Manager) Node() *v1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// compute is the node after one pass over a copy of before. Version, a call to the runtime, comes before the
// conditions, as in a kubelet. A pass that is cut short by the end of ctx changes nothing.
func (m *Manager) compute(ctx context.Context, before *v1.Node) *v1.Node {
	node := before.DeepCopy()
	s, machine := &node.Status, m.cfg.Machine
	name, version, err := m.cfg.Version(ctx)
	if err != nil {
		name, version = m.cfg.RuntimeName, "Unknown"
	}
	if ctx.Err() != nil {
		return before
	}
	s.NodeInfo = machine.Info
	s.NodeInfo.ContainerRuntimeVersion, s.NodeInfo.KubeletVersion = name+"://"+version, m.cfg.KubeletVersion
	if s.Capacity == nil {
		s.Capacity = v1.ResourceList{}
	}
	maps.Copy(s.Capacity, machine.capacity(m.cfg.MaxPods)) // others may advertise more, which is left
	s.Allocatable = s.Capacity.DeepCopy()                  // nothing is reserved
	s.Addresses, s.DaemonEndpoints.KubeletEndpoint.Port, s.Images = m.cfg.Addresses, m.cfg.Port, m.cfg.Images()
	m.setConditions(node)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = node
	return node
}

// setConditions sets the conditions that the eviction manager decides and Ready, with the kubelet's reasons and
// messages (nodestatus/setters.go upstream).
func (m *Manager) setConditions(node *v1.Node) {
	under := m.cfg.Pressure()
	pressure := func(kind v1.NodeConditionType, yes, yesMessage, no, noMessage string) {
		c := v1.NodeCondition{Type: kind, Status: v1.ConditionFalse}
		reason, message := no, noMessage
		if slices.Contains(under, kind) {
			c.Status, reason, message = v1.ConditionTrue, yes, yesMessage
		}
		c.Reason, c.Message = "KubeletHas"+reason, "kubelet has "+message
		if old := setCondition(node, &c); old != c.Status {
			m.event("NodeHas" + reason)
		}
	}
	pressure(v1.NodeMemoryPressure, "InsufficientMemory", "insufficient memory available",
		"SufficientMemory", "sufficient memory available")
	pressure(v1.NodeDiskPressure, "DiskPressure", "disk pressure", "NoDiskPressure", "no disk pressure")
	pressure(v1.NodePIDPressure, "InsufficientPID", "insufficient PID available",
		"SufficientPID", "sufficient PID available")
	ready := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status",
	}
	errs := []error{m.cfg.Runtime.RuntimeErrors(), m.cfg.Runtime.NetworkErrors()}
	if err := utilerrors.NewAggregate(errs); err != nil {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	switch old := setCondition(node, &ready); {
	case old == "" || old == ready.Status: // a node's first condition is no change
	case ready.Status == v1.ConditionTrue:
		m.event("NodeReady")
	default:
		// The kubelet compares with the API server's condition and without an API server never prints this line. Here
		// the last computed condition takes its place, so that the log has the moment.
		m.event("NodeNotReady")
		m.cfg.Log.Info("Node became not ready", "node", klog.KObj(node), "condition", ready)
	}
	if ready.Status != m.lastReady {
		m.cfg.OnReadyChange(ready.Status == v1.ConditionTrue, ready.Message)
	}
	m.lastReady = ready.Status
}

// setCondition writes a condition with its times and returns the status that it had, empty if there was none.
func setCondition(node *v1.Node, c *v1.NodeCondition) (old v1.ConditionStatus) {
	c.LastHeartbeatTime = metav1.Now()
	c.LastTransitionTime = c.LastHeartbeatTime
	had := pod.Find(node.Status.Conditions, func(have v1.NodeCondition) bool { return have.Type == c.Type })
	if had == nil {
		node.Status.Conditions = append(node.Status.Conditions, *c)
		return ""
	}
	if old = had.Status; old == c.Status {
		c.LastTransitionTime = had.LastTransitionTime
	}
	*had = *c
	return old
}

// changed compares two statuses but for the heartbeats of their conditions.
func changed(before, after v1.NodeStatus) bool {
	still := func(s v1.NodeStatus) v1.NodeStatus {
		s.Conditions = slices.Clone(s.Conditions)
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		return s
	}
	return !equality.Semantic.DeepEqual(still(before), still(after))
}

func (m *Manager) event(event string) {
	m.cfg.Log.V(2).Info("Recording event message for node", "node", klog.KRef("", m.cfg.NodeName), "event", event)
	m.cfg.Recorder.Eventf(m.ref, v1.EventTypeNormal, event, "Node %s status is now: %s", m.cfg.NodeName, event)
}

// Numbers of pkg/kubelet/kubelet_node_status.go and k8s.io/component-helpers/apimachinery/lease upstream, whose
// controller is not used: it takes the whole clientset.
const (
	tries         = 5                      // nodeStatusUpdateRetry, and of a renewal of the lease
	registerFirst = 100 * time.Millisecond // pause before a try to register, doubling
	registerMost  = 7 * time.Second
	callTimeout   = 10 * time.Second // of the heartbeat client
	leaseFraction = 4                // renewals of the lease within its duration
)

var (
	// errTries has the text of the kubelet's line about a node that could not be reported.
	errTries = errors.New("update node status exceeds retry count")
	errLease = fmt.Errorf("failed %d attempts to update lease", tries)
)

// pass registers the node if need be, computes its status and reports it.
func (m *Manager) pass(ctx context.Context) {
	if !m.registered && (m.cfg.Register || m.cfg.Client == nil) {
		if m.registered = m.register(ctx); !m.registered {
			return
		}
	}
	update := func(try int) error { return m.update(ctx, try) }
	if !m.try(ctx, "Error updating node status, will retry", update) {
		m.cfg.Log.Error(errTries, "Unable to update node status")
	}
}

// try calls a function until it succeeds or ctx ends, a few times at most, and logs each failure. It returns false if
// every try failed.
func (m *Manager) try(ctx context.Context, failed string, do func(try int) error) bool {
	for try := range tries {
		err := do(try)
		if err == nil || ctx.Err() != nil {
			return true
		}
		m.cfg.Log.Error(err, failed)
	}
	return false
}

// update computes the node and reports it if more than heartbeats changed or it was long ago. The node is read from
// the API server each time, and if that fails, the first try goes on from the last known node, so that a node is
// judged without an API server as well. The kubelet's first try reads from a watch.
func (m *Manager) update(ctx context.Context, try int) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if m.cfg.Client != nil {
		stored := &v1.Node{}
		err := m.cfg.Client.Get(callCtx, "", m.cfg.NodeName, stored)
		if err == nil {
			m.stored = stored
		} else if try > 0 || m.stored == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("error getting node %q: %w", m.cfg.NodeName, err)
		}
	}
	before := m.stored
	node := m.compute(ctx, before)
	due := time.Now().Add(m.cfg.Report)
	if !changed(before.Status, node.Status) && time.Now().Before(m.due) {
		return nil
	}
	if m.cfg.Client == nil {
		m.stored, m.due = node, due
		return nil
	}
	was, errWas := json.Marshal(before)
	is, errIs := json.Marshal(node)
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.Node{})
	if err := errors.Join(errWas, errIs, err); err != nil {
		return fmt.Errorf("making a patch for node %q: %w", node.Name, err)
	}
	callCtx, cancel = context.WithTimeout(ctx, callTimeout) // Version may have taken its time
	defer cancel()
	stored := &v1.Node{}
	if err := m.cfg.Client.PatchStatus(callCtx, "", node.Name, patch, stored); err != nil {
		return fmt.Errorf("patching the status of node %q: %w", node.Name, err)
	}
	m.stored, m.due = stored, due
	return nil
}

// initialNode is the node as it is registered, without a status but for its resources.
func (m *Manager) initialNode() *v1.Node {
	labels := map[string]string{
		v1.LabelHostname: m.cfg.NodeName, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, m.cfg.Labels)
	capacity := m.cfg.Machine.capacity(m.cfg.MaxPods)
	return &v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: m.cfg.NodeName, Labels: labels},
		Spec:       v1.NodeSpec{Taints: slices.Clone(m.cfg.Taints)},
		Status:     v1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
	}
}

// GetNodeAnyWay returns the node as last computed, or before that as it will be registered. Without useCache its labels
// are those that the API server has now, if it answers. It must not be changed.
func (m *Manager) GetNodeAnyWay(ctx context.Context, useCache bool) *v1.Node {
	node := cmp.Or(m.Node(), m.initialNode())
	if !useCache && m.cfg.Client != nil {
		stored := &v1.Node{}
		if m.cfg.Client.Get(ctx, "", m.cfg.NodeName, stored) == nil {
			node = node.DeepCopy()
			node.Labels = stored.Labels
		}
	}
	return node
}

// register creates the node's object. It tries until the object is there or ctx ends.
func (m *Manager) register(ctx context.Context) bool {
	initial := m.initialNode()
	if m.cfg.Client == nil {
		m.stored = initial
		return true
	}
	backOff := wait.Backoff{Duration: registerFirst, Factor: 2, Cap: registerMost, Steps: 1 << 30}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backOff.Step()):
		}
		node := m.compute(ctx, initial)
		m.cfg.Log.Info("Attempting to register node", "node", klog.KObj(node))
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		stored := node.DeepCopy()
		err := m.cfg.Client.Create(callCtx, stored)
		// One that is there is taken with its labels and taints. One that must not create it may still own it.
		if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) {
			err = m.cfg.Client.Get(callCtx, "", node.Name, stored)
		}
		cancel()
		if err == nil {
			m.cfg.Log.Info("Successfully registered node", "node", klog.KObj(node))
			m.stored = stored
			return true
		}
		m.cfg.Log.Error(err, "Unable to register node with API server", "node", klog.KObj(node))
	}
}

// keepLease renews the node's lease.
func (m *Manager) keepLease(ctx context.Context) error {
	period := time.Duration(m.cfg.LeaseSeconds) * time.Second / leaseFraction
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if !m.try(ctx, "Failed to update lease", func(int) error { return m.renew(ctx) }) {
			m.cfg.Log.Error(errLease, "Will retry updating lease", "interval", period)
		}
	}, period, passJitter, true)
	return ctx.Err()
}

// renew reads the lease and updates it, or creates it once the node is there to own it.
func (m *Manager) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := &metav1.MicroTime{Time: time.Now()}
	lease, node := &coordinationv1.Lease{}, &v1.Node{}
	err := m.cfg.Client.Get(ctx, v1.NamespaceNodeLease, m.cfg.NodeName, lease)
	if err == nil {
		lease.Spec.RenewTime = now
		return m.cfg.Client.Update(ctx, lease)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := m.cfg.Client.Get(ctx, "", m.cfg.NodeName, node); err != nil {
		m.cfg.Log.Error(err, "Failed to get node when trying to set owner ref to the node lease",
			"node", klog.KRef("", m.cfg.NodeName))
		return nil
	}
	return m.cfg.Client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.cfg.NodeName, Namespace: v1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &m.cfg.NodeName, LeaseDurationSeconds: &m.cfg.LeaseSeconds, RenewTime: now,
		},
	})
}
