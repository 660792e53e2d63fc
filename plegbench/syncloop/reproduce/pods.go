package reproduce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubecontainer "github.com/kdiag/kdiag/plegbench/syncloop/container"
)

const (
	namespace = "reproduce"
	appName   = "app"
)

func podName(i int) string { return "app-" + strconv.Itoa(i) }

// latePod is the one that Add adds.
const latePod = "late"

// manifest is a pod on the host's network, so that a runtime without CNI can run it, with a container that ends at
// once when it is stopped.
const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: ` + namespace + `}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: ` + appName + `, image: %q, imagePullPolicy: IfNotPresent}
`

func (r *run) writeManifest(name string) error {
	// Renamed into place: a source that looks in between would take half a pod for a whole one.
	tmp := r.folder.path("manifest")
	if err := os.WriteFile(tmp, fmt.Appendf(nil, manifest, name, r.image), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(r.folder.path("manifests"), name+".yaml"))
}

var errNoImage = errors.New("the runtime has no pause image that the pods could run: name an image that runs by itself")

// pauseImage is an image that is there already, because a run pulls nothing: every runtime has one for its sandboxes,
// which does nothing for good.
func pauseImage(list []*runtimeapi.Image) (string, error) {
	for _, i := range list {
		for _, tag := range i.GetRepoTags() {
			if strings.Contains(path.Base(tag), "pause") {
				return tag, nil
			}
		}
	}
	return "", errNoImage
}

// labels select the run's objects of one pod.
func (r *run) labels(pod string) map[string]string {
	node := r.folder.node()
	return map[string]string{kubecontainer.OwnerLabel: node, kubecontainer.PodNameLabel: pod + "-" + node}
}

// kill ends a pod's container at the runtime itself.
func (r *run) kill(ctx context.Context, pod string) error {
	list, err := r.direct.ListContainers(ctx, &runtimeapi.ContainerFilter{
		LabelSelector: r.labels(pod),
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return fmt.Errorf("looking for the container of %s: %w", pod, err)
	}
	if len(list) == 0 {
		reason := ""
		for _, p := range r.loop.Snapshot().Pods {
			if p.Name == pod+"-"+r.folder.node() {
				reason = why(p)
			}
		}
		return fmt.Errorf("%s has no running container to kill%s", pod, reason)
	}
	id := list[0].GetId()
	if err := r.direct.StopContainer(ctx, id, 0); err != nil {
		return fmt.Errorf("killing the container of %s: %w", pod, err)
	}
	r.timeline.expect(PodDied, pod, id, "its container is killed")
	return nil
}

// floodName is the container of the exited instances: not in the pod's spec, so that it is not restarted.
const floodName = "flood"

// floodAtOnce bounds how many containers are made at the same time: more only wait for each other in a runtime.
const floodAtOnce = 4

// flood makes exited containers in a pod's sandbox, as a crash loop leaves them.
func (r *run) flood(ctx context.Context, pod string, n int) error {
	start := time.Now()
	sandboxes, err := r.direct.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: r.labels(pod)})
	if err != nil {
		return fmt.Errorf("looking for the sandbox of %s: %w", pod, err)
	}
	if len(sandboxes) == 0 {
		return fmt.Errorf("%s has no sandbox", pod)
	}
	sandbox := sandboxes[0]
	labels := maps.Clone(sandbox.GetLabels())
	labels[kubecontainer.ContainerNameLabel] = floodName
	config := &runtimeapi.PodSandboxConfig{
		Metadata: sandbox.GetMetadata(), Labels: sandbox.GetLabels(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(floodAtOnce)
	for i := range n {
		g.Go(func() error {
			c := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: floodName, Attempt: uint32(i)},
				Image:    &runtimeapi.ImageSpec{Image: r.image}, Labels: labels,
				Linux: &runtimeapi.LinuxContainerConfig{},
				Annotations: map[string]string{
					kubecontainer.HashAnnotation:         "0",
					kubecontainer.RestartCountAnnotation: strconv.Itoa(i),
				},
			}
			id, err := r.direct.CreateContainer(ctx, sandbox.GetId(), c, config)
			if err != nil {
				return err
			}
			if err := r.direct.StartContainer(ctx, id); err != nil {
				return err
			}
			return r.direct.StopContainer(ctx, id, 0)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("making exited containers: %w", err)
	}
	r.flooded = n
	r.timeline.event(Flooded, fmt.Sprintf("%s: %d containers have come and exited within %s", pod, n,
		time.Since(start).Round(time.Millisecond)))
	return nil
}

// floodLeft counts the containers that flood made and that are still there.
func (r *run) floodLeft(ctx context.Context) (int, error) {
	labels := r.labels(podName(0))
	labels[kubecontainer.ContainerNameLabel] = floodName
	list, err := r.direct.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	return len(list), err
}
