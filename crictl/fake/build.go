package fake

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Defaults of a scenario's pods.
const (
	defaultNamespace = "default"
	defaultImage     = "docker.io/library/app:1"
	defaultAge       = 24 * time.Hour
	defaultEvery     = time.Minute
	annotationFill   = "kdiag.io/padding"

	// createDelay is how long after its sandbox a pod's first container is created, startDelay how long it then takes
	// to start: what a pod with its images present takes.
	createDelay = 2 * time.Second
	startDelay  = 200 * time.Millisecond
)

// A builder turns a scenario's pod groups into the state of a runtime that has run for a while.
type builder struct {
	scenario string
	start    time.Time
	store    *store
	pods     map[[2]string]bool // namespace and name of the pods so far
}

// build makes the state that the scenario describes, as of start.
func build(s *Scenario, start time.Time) (*store, error) {
	b := &builder{scenario: s.Name, start: start, store: newStore(s.Name, newBroker()), pods: map[[2]string]bool{}}
	b.store.images.add(pauseImage)
	for _, name := range s.Images {
		b.store.images.add(name)
	}
	for i := range s.Pods {
		g := &s.Pods[i]
		for n := range max(g.Count, 1) {
			if err := b.pod(g, n); err != nil {
				return nil, fmt.Errorf("pods[%d]: %w", i, err)
			}
		}
	}
	return b.store, nil
}

// pod adds the n-th pod of a group.
func (b *builder) pod(g *PodGroup, n int) error {
	name := g.Name
	if g.Count > 1 {
		name += "-" + strconv.Itoa(n)
	}
	namespace := or(g.Namespace, defaultNamespace)
	if key := [2]string{namespace, name}; b.pods[key] {
		return fmt.Errorf("a second pod %s/%s", namespace, name)
	} else {
		b.pods[key] = true
	}
	uid := podUID(b.scenario, "pod", namespace, name)
	created := b.start.Add(-or(time.Duration(g.Age), defaultAge))
	labels := podLabels(g, namespace, name, uid)
	annots := podAnnotations(g, created)
	for attempt := range g.DeadBefore + 1 {
		last := attempt == g.DeadBefore
		sb := &sandbox{
			id: objectID(b.scenario, "sandbox", namespace, name, strconv.Itoa(attempt)),
			meta: &runtimeapi.PodSandboxMetadata{
				Name: name, Uid: uid, Namespace: namespace, Attempt: uint32(attempt),
			},
			labels: labels, annots: annots,
			logDir:  "/var/log/pods/" + namespace + "_" + name + "_" + uid,
			options: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			created: created.Add(-time.Duration(g.DeadBefore-attempt) * time.Minute).UnixNano(),
			ready:   last && !g.NotReady,
		}
		if g.HostNetwork {
			sb.options.Network = runtimeapi.NamespaceMode_NODE
		} else {
			sb.address = podAddress(len(b.pods))
		}
		b.store.sandboxes.add(sb.id, sb)
		if last {
			b.containers(g, sb)
		}
	}
	return nil
}

// podLabels are the labels of a pod's sandboxes: the pod's own and the three that the kubelet adds.
func podLabels(g *PodGroup, namespace, name, uid string) map[string]string {
	labels := map[string]string{"app": g.Name}
	if g.Labels != nil {
		labels = maps.Clone(g.Labels)
	}
	labels[labelPodNamespace] = namespace
	labels[labelPodName] = name
	labels[labelPodUID] = uid
	return labels
}

// podAnnotations are the annotations of a pod's sandboxes: those that the kubelet adds, and the pod's own.
func podAnnotations(g *PodGroup, created time.Time) map[string]string {
	annots := map[string]string{
		annotationConfigSeen:   created.UTC().Format(time.RFC3339Nano),
		annotationConfigSource: "api",
	}
	maps.Copy(annots, g.Annotations)
	pad(annots, g.Padding)
	return annots
}

// pad adds an annotation of that many bytes.
func pad(annots map[string]string, size int) {
	if size > 0 {
		annots[annotationFill] = strings.Repeat("0123456789abcdef", size/16+1)[:size]
	}
}

func (b *builder) containers(g *PodGroup, sb *sandbox) {
	for i := range g.Containers {
		c := &g.Containers[i]
		sh := b.shape(g, c, sb)
		for attempt := range c.Exited + 1 {
			b.store.addContainer(b.instance(g, c, sh, sb, attempt))
		}
	}
}

func (b *builder) shape(g *PodGroup, c *ContainerGroup, sb *sandbox) *shape {
	image := or(c.Image, defaultImage)
	stored := b.store.images.add(image)
	sh := &shape{
		name:     c.Name,
		image:    &runtimeapi.ImageSpec{Image: stored.name(), UserSpecifiedImage: image},
		imageID:  stored.id,
		imageRef: stored.ref(),
		labels: map[string]string{
			labelContainerName: c.Name,
			labelPodName:       sb.meta.GetName(),
			labelPodNamespace:  sb.meta.GetNamespace(),
			labelPodUID:        sb.meta.GetUid(),
		},
		annots: map[string]string{
			annotationHash:          fmt.Sprintf("%x", number(1<<32, image, c.Name)),
			annotationMessagePath:   "/dev/termination-log",
			annotationMessagePolicy: "File",
			annotationGracePeriod:   "30",
		},
		counted: true,
		logPath: sb.logDir + "/" + c.Name + "/",
	}
	pad(sh.annots, g.Padding)
	return sh
}

// instance makes one container of a shape: attempts below c.Exited are the dead ones, the last is in the group's state.
func (b *builder) instance(g *PodGroup, c *ContainerGroup, sh *shape, sb *sandbox, attempt int) *container {
	first := time.Unix(0, sb.created).Add(createDelay)
	every := min(or(time.Duration(c.Every), defaultEvery), max(b.start.Sub(first), 0)/time.Duration(c.Exited+1))
	created := first
	if c.Exited > 0 {
		created = b.start.Add(-every * time.Duration(c.Exited+1-attempt))
	}
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if attempt == c.Exited && !g.NotReady {
		state, _ = containerState(c.State)
	}
	made := &container{
		shape:   sh,
		id:      objectID(b.scenario, "container", sb.meta.GetNamespace(), sb.meta.GetName(), c.Name, strconv.Itoa(attempt)),
		sandbox: sb,
		attempt: uint32(attempt),
		state:   state,
		created: created.UnixNano(),
	}
	if state != runtimeapi.ContainerState_CONTAINER_CREATED {
		made.started = created.Add(min(startDelay, every/4)).UnixNano()
	}
	if state == runtimeapi.ContainerState_CONTAINER_EXITED {
		made.finished = created.Add(every / 2).UnixNano()
		made.exitCode = int32(c.ExitCode)
		made.reason = or(c.Reason, exitReason(made.exitCode))
	}
	return made
}

// or returns v, or fallback if v is zero.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
