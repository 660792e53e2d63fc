package fake

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's labels and annotations that the scenario's objects carry.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationHash          = "io.kubernetes.container.hash"
	annotationRestartCount  = "io.kubernetes.container.restartCount"
	annotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
	annotationConfigSeen    = "kubernetes.io/config.seen"
	annotationConfigSource  = "kubernetes.io/config.source"
)

// Annotations of a container, or of its sandbox, that make a container end by itself after StartContainer.
const (
	AnnotationExitAfter = "kdiag.io/exit-after" // a duration such as "3s"
	AnnotationExitCode  = "kdiag.io/exit-code"  // 0 to 255; default 0
)

var errNotFound = errors.New("not found")

// A sandbox is one pod sandbox. All fields but the last two are fixed once it is in the store.
type sandbox struct {
	id      string
	meta    *runtimeapi.PodSandboxMetadata
	labels  map[string]string
	annots  map[string]string
	handler string
	logDir  string
	address string // empty on the host's network
	options *runtimeapi.NamespaceOption
	created int64 // Unix nanoseconds, as CRI gives it

	ready      bool
	containers []*container // in the order of their creation
}

// A shape is what all instances of one container of one pod share. It is never changed.
type shape struct {
	name      string
	image     *runtimeapi.ImageSpec
	imageID   string // sha256:...
	imageRef  string // repository@sha256:..., or imageID
	labels    map[string]string
	annots    map[string]string // without the restart count if counted
	counted   bool              // each instance adds its attempt as the annotation io.kubernetes.container.restartCount
	logPath   string            // without the instance's number and ending if counted
	mounts    []*runtimeapi.Mount
	resources *runtimeapi.LinuxContainerResources
	exitAfter time.Duration // after the start; 0 means that the container runs until it is stopped
	exitWith  int32         // its exit code then
}

// A container is one instance of a shape.
type container struct {
	*shape
	id      string
	sandbox *sandbox
	attempt uint32

	state    runtimeapi.ContainerState
	created  int64 // Unix nanoseconds; 0 in the next two: not yet
	started  int64
	finished int64
	exitCode int32
	reason   string
	timer    *time.Timer // ends it by itself; nil without exitAfter
}

func (c *container) running() bool {
	return c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// annotations returns the container's annotations. The result may be shared and must not be changed.
func (c *container) annotations() map[string]string {
	if !c.counted {
		return c.annots
	}
	all := maps.Clone(c.annots)
	all[annotationRestartCount] = strconv.FormatUint(uint64(c.attempt), 10)
	return all
}

// log returns the path of the container's log as it would be.
func (c *container) log() string {
	if c.counted {
		return c.logPath + strconv.FormatUint(uint64(c.attempt), 10) + ".log"
	}
	return c.logPath
}

// exit records the end of a running container.
func (c *container) exit(now time.Time, code int32) {
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.finished = max(now.UnixNano(), c.started)
	c.exitCode = code
	c.reason = exitReason(code)
	if c.timer != nil {
		c.timer.Stop()
	}
}

func exitReason(code int32) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}

// A store is the runtime's state.
type store struct {
	scenario string
	events   *broker

	mu         sync.RWMutex
	sandboxes  table[*sandbox]
	containers table[*container]
	images     images
	made       int // sandboxes and containers made by RPCs: numbers their ids and addresses
	closed     bool
}

func newStore(scenario string, events *broker) *store {
	return &store{scenario: scenario, events: events}
}

// nextID returns the id of the next object that an RPC makes. The caller holds mu.
func (st *store) nextID(kind string) string {
	st.made++
	return objectID(st.scenario, "made", kind, strconv.Itoa(st.made))
}

func (st *store) addContainer(c *container) {
	st.containers.add(c.id, c)
	c.sandbox.containers = append(c.sandbox.containers, c)
}

// removeContainer forgets a container. The caller holds mu.
func (st *store) removeContainer(c *container) {
	st.containers.remove(c.id)
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(other *container) bool { return other == c })
	st.publish(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// stopContainer ends a container if it runs. The caller holds mu.
func (st *store) stopContainer(c *container, code int32) {
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		c.exit(time.Now(), code)
		st.publish(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// close stops the timers of containers that would end by themselves.
func (st *store) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for c := range st.containers.all() {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
}
