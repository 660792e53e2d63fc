package fake

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// A container is one container. Containers of one pod share labels, which are never changed.
type container struct {
	id        string
	sandbox   *sandbox
	name      string
	attempt   uint32
	image     *runtimeapi.ImageSpec
	imageID   string // sha256:...
	imageRef  string // repository@sha256:..., or imageID
	labels    map[string]string
	annots    map[string]string
	logPath   string
	mounts    []*runtimeapi.Mount
	resources *runtimeapi.LinuxContainerResources

	state    runtimeapi.ContainerState
	created  int64 // Unix nanoseconds; 0 in the next two: not yet
	started  int64
	finished int64
	exitCode int32
	reason   string
}

func (c *container) running() bool {
	return c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
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
	exits    []Exit

	mu         sync.RWMutex
	sandboxes  table[*sandbox]
	containers table[*container]
	images     table[*image]
	made       int                                                  // sandboxes and containers made by RPCs
	watchers   map[chan *runtimeapi.ContainerEventResponse]struct{} // of container events
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

// end stops or removes the object with that id. That there is none is no error in CRI.
func end[T any](st *store, objects *table[T], id string, do func(T)) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	object, err := objects.find(id)
	if err == nil {
		do(object)
	} else if status.Code(err) == codes.NotFound {
		err = nil
	}
	return err
}

// stopContainer ends a container if it runs. The caller holds mu.
func (st *store) stopContainer(c *container, code int32) {
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		c.finished = max(time.Now().UnixNano(), c.started)
		c.exitCode, c.reason = code, exitReason(code)
		st.publish(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}
