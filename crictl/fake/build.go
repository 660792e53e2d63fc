package fake

import (
	"cmp"
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
	// to start, as on a node with the images present.
	createDelay = 2 * time.Second
	startDelay  = 200 * time.Millisecond
)

// build makes the state that the scenario describes at its start.
func build(s *Scenario, start time.Time) (*store, error) {
	st := &store{
		scenario: s.Name, watchers: map[chan *runtimeapi.ContainerEventResponse]struct{}{}, exits: s.Exits,
	}
	for _, name := range append([]string{pauseImage}, s.Images...) {
		st.addImage(name)
	}
	pods := map[string]bool{} // NAMESPACE/NAME
	for i := range s.Pods {
		g := &s.Pods[i]
		for n := range max(g.Count, 1) {
			name, namespace := g.Name, cmp.Or(g.Namespace, defaultNamespace)
			if g.Count > 1 {
				name += "-" + strconv.Itoa(n)
			}
			if key := namespace + "/" + name; pods[key] {
				return nil, fmt.Errorf("pods[%d]: a second pod %s", i, key)
			} else {
				pods[key] = true
			}
			st.buildPod(g, namespace, name, start)
		}
	}
	return st, nil
}

// buildPod adds one pod of a group.
func (st *store) buildPod(g *PodGroup, namespace, name string, start time.Time) {
	uid := podUID(st.scenario, "pod", namespace, name)
	created := start.Add(-cmp.Or(time.Duration(g.Age), defaultAge))
	labels := map[string]string{"app": g.Name}
	if g.Labels != nil {
		labels = maps.Clone(g.Labels)
	}
	labels[labelPodNamespace], labels[labelPodName], labels[labelPodUID] = namespace, name, uid
	annots := map[string]string{
		annotationConfigSeen:   created.UTC().Format(time.RFC3339Nano),
		annotationConfigSource: "api",
	}
	maps.Copy(annots, g.Annotations)
	pad(annots, g.Padding)
	options := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	address := podAddress(len(st.sandboxes.byID) + 1)
	if g.HostNetwork {
		options.Network, address = runtimeapi.NamespaceMode_NODE, ""
	}
	var sb *sandbox
	for attempt := range g.DeadBefore + 1 {
		sb = &sandbox{
			id: objectID(st.scenario, "sandbox", namespace, name, strconv.Itoa(attempt)),
			meta: &runtimeapi.PodSandboxMetadata{
				Name: name, Uid: uid, Namespace: namespace, Attempt: uint32(attempt),
			},
			labels: labels, annots: annots, options: options, address: address,
			logDir:  "/var/log/pods/" + namespace + "_" + name + "_" + uid,
			created: created.Add(-time.Duration(g.DeadBefore-attempt) * time.Minute).UnixNano(),
			ready:   attempt == g.DeadBefore && !g.NotReady,
		}
		st.sandboxes.add(sb.id, sb)
	}
	for i := range g.Containers {
		st.buildContainers(g, &g.Containers[i], sb, start)
	}
}

// pad adds an annotation of that many bytes.
func pad(annots map[string]string, size int) {
	if size > 0 {
		annots[annotationFill] = strings.Repeat("0123456789abcdef", size/16+1)[:size]
	}
}

// buildContainers adds the instances of one container of a pod: c.Exited dead ones, and the last in the group's state.
func (st *store) buildContainers(g *PodGroup, c *ContainerGroup, sb *sandbox, start time.Time) {
	image := cmp.Or(c.Image, defaultImage)
	stored := st.addImage(image)
	spec := &runtimeapi.ImageSpec{Image: stored.name(), UserSpecifiedImage: image}
	labels := map[string]string{
		labelContainerName: c.Name,
		labelPodName:       sb.meta.GetName(),
		labelPodNamespace:  sb.meta.GetNamespace(),
		labelPodUID:        sb.meta.GetUid(),
	}
	annots := map[string]string{
		annotationHash:          fmt.Sprintf("%x", number(1<<32, image, c.Name)),
		annotationMessagePath:   "/dev/termination-log",
		annotationMessagePolicy: "File",
		annotationGracePeriod:   "30",
	}
	pad(annots, g.Padding)
	first := time.Unix(0, sb.created).Add(createDelay)
	every := min(cmp.Or(time.Duration(c.Every), defaultEvery), max(start.Sub(first), 0)/time.Duration(c.Exited+1))
	for attempt := range c.Exited + 1 {
		count := strconv.Itoa(attempt)
		created := first
		if c.Exited > 0 {
			created = start.Add(-every * time.Duration(c.Exited+1-attempt))
		}
		made := &container{
			id:      objectID(st.scenario, "container", sb.meta.GetNamespace(), sb.meta.GetName(), c.Name, count),
			sandbox: sb, name: c.Name, attempt: uint32(attempt), image: spec, imageID: stored.id,
			imageRef: stored.digest,
			labels:   labels, annots: maps.Clone(annots), logPath: sb.logDir + "/" + c.Name + "/" + count + ".log",
			state: runtimeapi.ContainerState_CONTAINER_EXITED, created: created.UnixNano(),
		}
		made.annots[annotationRestartCount] = count
		if attempt == c.Exited && !g.NotReady {
			made.state = containerStates[c.State]
		}
		if made.state != runtimeapi.ContainerState_CONTAINER_CREATED {
			made.started = created.Add(min(startDelay, every/4)).UnixNano()
		}
		if made.state == runtimeapi.ContainerState_CONTAINER_EXITED {
			made.finished = created.Add(every / 2).UnixNano()
			made.exitCode = int32(c.ExitCode)
			made.reason = cmp.Or(c.Reason, exitReason(made.exitCode))
		}
		st.addContainer(made)
	}
}
