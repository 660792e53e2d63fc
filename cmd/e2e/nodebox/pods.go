//go:build e2e

package nodebox

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// runPatience is the deadline of one call while pods are made, and of containers that end by themselves: a busy machine
// is slow, but not sick.
const runPatience = 2 * time.Minute

// namespace is the Kubernetes namespace of the pods.
const namespace = "box"

// Pods describe pods that are created as a kubelet does. The zero value of each field is a default.
type Pods struct {
	Count      int                   // pods
	Containers int                   // containers in each
	Attempts   int                   // how often each container was started, as in a crash loop; 0 means once
	State      crictl.ContainerState // ContainerCreated, ContainerRunning (sleeping) or ContainerExited (with code 0)
	Prefix     string                // of the pods' names, which end in their number; empty means "pod"
	PodNetwork bool                  // a network namespace and CNI for each, instead of the host's network
	HostPID    bool                  // the host's pid namespace
	// NeverRan makes containers fail at their start: the sandbox is stopped first, so that the runtime refuses to start
	// them and marks them exited, with code 128 and reason StartError. Nothing is executed for them, so it is several
	// times as fast. State must be ContainerExited.
	NeverRan bool
	Padding  int // bytes of an extra annotation on each container, to make lists large

	// CgroupParent and LogDirectory are where the pods' cgroups and logs go. Containerd.RunPods sets the first, and the
	// second where it is empty. Without a log directory the output of containers is discarded.
	CgroupParent string
	LogDirectory string
}

// A Pod is one that was created.
type Pod struct {
	ID         string // of its sandbox
	Config     *runtimeapi.PodSandboxConfig
	Containers []Container
}

// A Container is one that was created.
type Container struct {
	ID     string
	Name   string
	Config *runtimeapi.ContainerConfig
}

// RunPods creates the pods in this runtime, with their cgroups and logs where Close removes them.
func (c *Containerd) RunPods(tb testing.TB, p Pods) []Pod {
	tb.Helper()
	p.CgroupParent, p.LogDirectory = "/"+filepath.Base(c.dir), cmp.Or(p.LogDirectory, c.path("logs"))
	pods, err := RunPods(tb.Context(), c.Endpoint(), p)
	must(tb, err)
	return pods
}

// MakeLargeList creates containers with large annotations, so that the answer to an unfiltered ListContainers has
// at least the given number of bytes. 20 MB take about five seconds.
func (c *Containerd) MakeLargeList(tb testing.TB, bytes int) {
	tb.Helper()
	const padding, perPod = 128 << 10, 16
	count := (bytes/padding + perPod) / perPod
	c.RunPods(tb, Pods{Count: count, Containers: perPod, Padding: padding, Prefix: "large"})
}

// RunPods creates pods in the runtime at endpoint and returns them in the order of their numbers, when every container
// has the wanted state.
func RunPods(ctx context.Context, endpoint string, p Pods) ([]Pod, error) {
	cri, err := remote.Dial(endpoint, remote.Options{Timeout: runPatience})
	if err != nil {
		return nil, fmt.Errorf("running pods: %w", err)
	}
	defer cri.Close()
	p.Prefix, p.Attempts = cmp.Or(p.Prefix, "pod"), cmp.Or(p.Attempts, 1)
	pods := make([]Pod, p.Count)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range p.Count {
		g.Go(func() (err error) {
			pods[i], err = p.run(gctx, cri, i)
			return err
		})
	}
	if err = g.Wait(); err == nil && p.State == crictl.ContainerExited {
		err = awaitExits(ctx, cri, pods)
	}
	if err != nil {
		return nil, fmt.Errorf("running pods on %s: %w", endpoint, err)
	}
	return pods, nil
}

// run creates the pod with number i.
func (p Pods) run(ctx context.Context, cri *remote.Service, i int) (pod Pod, err error) {
	pod.Config = p.sandbox(i)
	if pod.ID, err = cri.RunPodSandbox(ctx, pod.Config, ""); err != nil {
		return pod, err
	}
	for attempt := range p.Attempts {
		for n := range p.Containers {
			c := Container{Name: "c" + strconv.Itoa(n), Config: p.container(pod.Config, n, attempt)}
			if c.ID, err = cri.CreateContainer(ctx, pod.ID, c.Config, pod.Config); err != nil {
				return pod, err
			}
			pod.Containers = append(pod.Containers, c)
			if p.State == crictl.ContainerCreated || p.NeverRan {
				continue
			}
			if err = cri.StartContainer(ctx, c.ID); err != nil {
				return pod, err
			}
		}
	}
	if !p.NeverRan {
		return pod, nil
	}
	if err := cri.StopPodSandbox(ctx, pod.ID); err != nil {
		return pod, err
	}
	for _, c := range pod.Containers {
		if err := cri.StartContainer(ctx, c.ID); err == nil || remote.IsDeadlineExceeded(err) {
			return pod, fmt.Errorf("starting a container in a stopped sandbox: %w", err)
		}
	}
	return pod, nil
}

// sandbox returns the configuration of a pod's sandbox, with what a kubelet writes for a pod from the API server.
func (p Pods) sandbox(i int) *runtimeapi.PodSandboxConfig {
	name := p.Prefix + "-" + strconv.Itoa(i)
	hash := fnv.New32a()
	hash.Write([]byte(namespace + "/" + p.Prefix)) // a hash takes everything
	uid := fmt.Sprintf("%08x-0000-4000-8000-0000%08x", i, hash.Sum32())
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid},
		Labels: map[string]string{
			crictl.LabelPodName:      name,
			crictl.LabelPodNamespace: namespace,
			crictl.LabelPodUID:       uid,
		},
		Annotations: map[string]string{
			crictl.AnnotationConfigSource: "api",
			"kubernetes.io/config.seen":   time.Now().UTC().Format(time.RFC3339Nano),
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{}},
	}
	if p.CgroupParent != "" {
		config.Linux.CgroupParent = p.CgroupParent + "/pod" + uid
	}
	if p.LogDirectory != "" {
		config.LogDirectory = p.LogDirectory + "/" + namespace + "_" + name + "_" + uid
	}
	if p.PodNetwork {
		config.Hostname = name
	} else {
		host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
		config.Linux.SecurityContext.NamespaceOptions = host
		if p.HostPID {
			host.Pid = runtimeapi.NamespaceMode_NODE
		}
	}
	return config
}

// container returns the configuration of one attempt of a pod's container.
func (p Pods) container(sandbox *runtimeapi.PodSandboxConfig, n, attempt int) *runtimeapi.ContainerConfig {
	name := "c" + strconv.Itoa(n)
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: uint32(attempt)},
		Image:    &runtimeapi.ImageSpec{Image: ImageBusybox},
		Command:  []string{"/bin/sleep", "2147483647"},
		Labels:   maps.Clone(sandbox.Labels),
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     "6f2a1c3e",
			crictl.AnnotationRestartCount:                      strconv.Itoa(attempt),
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: sandbox.Linux.SecurityContext.NamespaceOptions,
			},
		},
	}
	config.Labels[crictl.LabelContainerName] = name
	if p.State == crictl.ContainerExited {
		config.Command = []string{"/bin/true"}
	}
	if p.LogDirectory != "" {
		config.LogPath = name + "/" + strconv.Itoa(attempt) + ".log"
	}
	if p.Padding > 0 {
		config.Annotations["example.com/padding"] = strings.Repeat("x", p.Padding)
	}
	return config
}

// awaitExits waits until none of the pods' containers runs.
func awaitExits(ctx context.Context, cri *remote.Service, pods []Pod) error {
	running := &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}
	return poll(ctx, runPatience, "containers to exit", func() (bool, error) {
		all, err := cri.ListContainers(ctx, running)
		return err == nil && !slices.ContainsFunc(all, func(c *runtimeapi.Container) bool {
			return slices.ContainsFunc(pods, func(p Pod) bool { return p.ID == c.GetPodSandboxId() })
		}), err
	})
}
