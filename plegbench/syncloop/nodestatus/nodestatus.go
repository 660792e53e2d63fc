package nodestatus

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// A Client is the nodes of an API server and their leases.
type Client interface {
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error)
	PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// Config is what a Manager needs. Fields are required unless they say what nil or zero means.
type Config struct {
	Client   Client // nil: no API server; the node is computed and kept only
	NodeName string
	Register bool // create the node's object; otherwise wait until it exists
	Labels   map[string]string
	Taints   []v1.Taint

	// The errors of a RuntimeState.
	RuntimeErrors, NetworkErrors func() error
	// UpdateRuntime asks the runtime for its Status (Updater.Update): before the first pass, and at each fast one.
	UpdateRuntime func(ctx context.Context)
	// ExpectReady is called when the node is first ready, or 120 s after the start (Updater.ExpectReady).
	ExpectReady func()
	// Version is the CRI call, with its own deadline. A runtime that hangs delays each pass for so long.
	Version     func(ctx context.Context) (name, version string, err error)
	RuntimeName string // until Version has answered once

	KubeletVersion string
	Machine        Machine
	MaxPods        int
	Addresses      []v1.NodeAddress
	Port           int32                            // of the server; 0: none
	Images         func() []v1.ContainerImage       // from memory, largest first; nil: none
	Pressure       func() (memory, disk, pid bool)  // nil: none
	OnReadyChange  func(ready bool, message string) // the first status counts as a change; may be nil
	Frequency      time.Duration                    // nodeStatusUpdateFrequency
	Report         time.Duration                    // nodeStatusReportFrequency
	LeaseSeconds   int32                            // nodeLeaseDurationSeconds. Renewed at a quarter of it.
	Log            logr.Logger
	Recorder       record.EventRecorder
}

// A Manager keeps one node's status. Node is safe for use by several goroutines. Left out are the events of reboots
// and of nodes that become unschedulable, and the correction of labels at a second registration.
type Manager struct {
	cfg  Config
	ref  *v1.ObjectReference
	turn chan struct{} // holds a token during a computation or report; guards the fields below

	registered  bool
	stored      *v1.Node // as the API server last gave it, or as last computed without one
	lastReport  time.Time
	delay       time.Duration // added to Report, so that the nodes of a cluster do not all report at one time
	runtimeName string
	lastReady   v1.ConditionStatus

	mu   sync.Mutex
	view *v1.Node // as last computed
}

// New makes a Manager that has computed nothing yet.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, turn: make(chan struct{}, 1), runtimeName: cfg.RuntimeName,
		ref: &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: cfg.NodeName, UID: types.UID(cfg.NodeName)},
	}
}

// passJitter is the random part of the pause between passes, and between renewals of the lease.
const passJitter = 0.04

// Run computes and reports the node's status until ctx ends, whose error it returns: each 10 s, each 100 ms until the
// node is first ready, and, on its own, the lease, which never waits for the runtime.
func (m *Manager) Run(ctx context.Context) error {
	m.cfg.Recorder.Eventf(m.ref, v1.EventTypeNormal, "Starting", "Starting kubelet.")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		m.cfg.UpdateRuntime(ctx) // or a restart would report NotReady for one period
		return every(ctx, m.cfg.Frequency, passJitter, m.sync)
	})
	g.Go(func() error { return m.fast(ctx) })
	if m.cfg.Client != nil {
		g.Go(func() error { return m.keepLease(ctx) })
	}
	return g.Wait()
}

// Node is the node as last computed, whether or not it could be reported. It is nil before the first pass, and it
// must not be changed.
func (m *Manager) Node() *v1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// compute is the node after one pass over a copy of before. The setters' order is the kubelet's, and it matters:
// Version, which asks the runtime, comes before Ready. A pass that is cut short by the end of ctx judges nothing.
func (m *Manager) compute(ctx context.Context, before *v1.Node) *v1.Node {
	node := before.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[v1.LabelOSStable], node.Labels[v1.LabelArchStable] = runtime.GOOS, runtime.GOARCH
	node.Status.Addresses = m.cfg.Addresses
	m.setMachine(node)
	m.setVersion(ctx, node)
	if ctx.Err() != nil {
		return before
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = m.cfg.Port
	if m.cfg.Images != nil {
		node.Status.Images = m.cfg.Images()
	}
	m.setConditions(node)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = node
	return node
}

func (m *Manager) setMachine(node *v1.Node) {
	info, machine := &node.Status.NodeInfo, m.cfg.Machine
	info.MachineID, info.SystemUUID = machine.MachineID, machine.SystemUUID
	info.BootID = machine.BootID
	info.OperatingSystem, info.Architecture = runtime.GOOS, runtime.GOARCH
	if node.Status.Capacity == nil {
		node.Status.Capacity = v1.ResourceList{}
	}
	for name, quantity := range machine.capacity(m.cfg.MaxPods) {
		node.Status.Capacity[name] = quantity // others may advertise more, which is left
	}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy() // nothing is reserved
}

func (m *Manager) setVersion(ctx context.Context, node *v1.Node) {
	info := &node.Status.NodeInfo
	info.KernelVersion, info.OSImage, info.KubeletVersion = m.cfg.Machine.KernelVersion, m.cfg.Machine.OSImage, m.cfg.KubeletVersion
	name, version, err := m.cfg.Version(ctx)
	if err != nil {
		name, version = m.runtimeName, "Unknown"
	}
	m.runtimeName = name
	info.ContainerRuntimeVersion = name + "://" + version
}

func (m *Manager) setConditions(node *v1.Node) {
	now := metav1.Now()
	conditions := &node.Status.Conditions
	var under [3]bool
	if m.cfg.Pressure != nil {
		under[0], under[1], under[2] = m.cfg.Pressure()
	}
	for i, p := range pressures() {
		var event string
		if *conditions, event = setPressure(*conditions, p, under[i], now); event != "" {
			m.event(event)
		}
	}
	list, ready, changed := setReady(*conditions, readyCondition(node.Status.Capacity, now, m.cfg.RuntimeErrors(), m.cfg.NetworkErrors()))
	*conditions = list
	switch {
	case changed && ready.Status == v1.ConditionTrue:
		m.event("NodeReady")
	case changed:
		// The kubelet compares with the API server's condition and without an API server never prints this line. Here
		// the last computed condition takes its place, so that the log has the moment.
		m.event("NodeNotReady")
		m.cfg.Log.Info("Node became not ready", "node", klog.KObj(node), "condition", ready)
	}
	if ready.Status != m.lastReady && m.cfg.OnReadyChange != nil {
		m.cfg.OnReadyChange(ready.Status == v1.ConditionTrue, ready.Message)
	}
	m.lastReady = ready.Status
}

func (m *Manager) event(event string) {
	m.cfg.Log.V(2).Info("Recording event message for node", "node", klog.KRef("", m.cfg.NodeName), "event", event)
	m.cfg.Recorder.Eventf(m.ref, v1.EventTypeNormal, event, "Node %s status is now: %s", m.cfg.NodeName, event)
}
