package kuberuntime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// ErrPodNotFound is GetPod's error when the runtime has nothing of a pod. Its text is the kubelet's.
var ErrPodNotFound = errors.New("pod sandboxes not found")

// GetPods returns the pods of this node's syncLoop, the newest first: all of them, or only those that are ready or
// running. It makes two lists; if the first fails, the second is not made.
func (m *Manager) GetPods(ctx context.Context, all bool) ([]*container.Pod, error) {
	sandboxes, containers := &runtimeapi.PodSandboxFilter{}, &runtimeapi.ContainerFilter{}
	if !all {
		sandboxes.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		containers.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	}
	byUID, foreign, err := m.list(ctx, sandboxes, containers)
	if err != nil {
		return nil, err
	}
	if all {
		m.foreign.Store(int64(foreign))
	}
	pods := make([]*container.Pod, 0, len(byUID))
	for _, p := range byUID {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *container.Pod) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.UID, b.UID))
	})
	return pods, nil
}

// GetPod returns one pod as the runtime has it now, or ErrPodNotFound.
func (m *Manager) GetPod(ctx context.Context, uid types.UID) (*container.Pod, error) {
	label := map[string]string{container.PodUIDLabel: string(uid)}
	pods, _, err := m.list(ctx,
		&runtimeapi.PodSandboxFilter{LabelSelector: label}, &runtimeapi.ContainerFilter{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	if p := pods[uid]; p != nil {
		return p, nil
	}
	return nil, ErrPodNotFound
}

// Foreign returns how many pods without this node's label the last full list had.
func (m *Manager) Foreign() int { return int(m.foreign.Load()) }

// list makes the two lists and groups them by pod. Pods without this node's label are only counted. A container whose
// sandbox is gone makes a pod all the same: it may run.
func (m *Manager) list(
	ctx context.Context, sf *runtimeapi.PodSandboxFilter, cf *runtimeapi.ContainerFilter,
) (pods map[types.UID]*container.Pod, foreign int, err error) {
	sandboxes, err := m.CRI.ListPodSandbox(ctx, sf)
	if err != nil {
		return nil, 0, err
	}
	containers, err := m.CRI.ListContainers(ctx, cf)
	if err != nil {
		return nil, 0, err
	}
	pods, others := map[types.UID]*container.Pod{}, map[string]bool{}
	podOf := func(labels map[string]string, uid string) *container.Pod {
		if labels[container.OwnerLabel] != m.NodeName {
			others[cmp.Or(labels[container.PodUIDLabel], uid)] = true
			return nil
		}
		p := pods[types.UID(uid)]
		if p == nil {
			p = &container.Pod{
				UID: types.UID(uid), Name: labels[container.PodNameLabel], Namespace: labels[container.PodNamespaceLabel],
			}
			pods[p.UID] = p
		}
		return p
	}
	for _, s := range sandboxes {
		if p := podOf(s.GetLabels(), s.GetMetadata().GetUid()); p != nil {
			p.Sandboxes = append(p.Sandboxes, &container.Container{
				ID: m.id(s.GetId()), State: container.SandboxState(s.GetState()), CreatedAt: time.Unix(0, s.GetCreatedAt()),
				Attempt: s.GetMetadata().GetAttempt(), SandboxID: s.GetId(),
			})
		}
	}
	for _, c := range containers {
		if p := podOf(c.GetLabels(), c.GetLabels()[container.PodUIDLabel]); p != nil {
			p.Containers = append(p.Containers, &container.Container{
				ID: m.id(c.GetId()), Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage(), ImageRef: c.GetImageRef(),
				Hash: number(c.GetAnnotations(), container.HashAnnotation, 16), State: container.ContainerState(c.GetState()),
				CreatedAt: time.Unix(0, c.GetCreatedAt()), Attempt: c.GetMetadata().GetAttempt(), SandboxID: c.GetPodSandboxId(),
			})
		}
	}
	for _, p := range pods {
		slices.SortFunc(p.Sandboxes, func(a, b *container.Container) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), newerFirst(a, b))
		})
		slices.SortFunc(p.Containers, newerFirst)
		if len(p.Sandboxes) > 0 {
			p.CreatedAt = p.Sandboxes[0].CreatedAt
		}
	}
	return pods, len(others), nil
}

func newerFirst(a, b *container.Container) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID.ID, b.ID.ID))
}

// number reads an annotation. One that is missing or unreadable is 0.
func number(annotations map[string]string, key string, base int) uint64 {
	n, err := strconv.ParseUint(annotations[key], base, 63)
	if err != nil {
		return 0
	}
	return n
}

// GetPodStatus gets the status of each of a pod's sandboxes and then of each of its containers, one after the other. It
// leaves out what vanished since the lists; any other error ends it. Termination messages are read from the node's
// files.
func (m *Manager) GetPodStatus(ctx context.Context, p *container.Pod) (*container.PodStatus, error) {
	st := &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, TimeStamp: time.Now()}
	name := p.FullName() + "(" + string(p.UID) + ")"
	for i, sb := range p.Sandboxes {
		s, err := m.CRI.PodSandboxStatus(ctx, sb.ID.ID)
		if remote.IsNotFound(err) {
			continue
		}
		if err != nil {
			m.Log.Error(err, "PodSandboxStatus of sandbox for pod", "pod", name, "podSandboxID", sb.ID.ID)
			return nil, err
		}
		st.SandboxStatuses = append(st.SandboxStatuses, s)
		if i == 0 && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			st.IPs = sandboxIPs(s)
		}
	}
	for _, c := range p.Containers {
		s, err := m.CRI.ContainerStatus(ctx, c.ID.ID)
		if remote.IsNotFound(err) {
			continue
		}
		if err != nil {
			if m.reduced.ShouldMessageBePrinted(err.Error(), name) {
				m.Log.Error(err, "getPodContainerStatuses for pod failed", "pod", name)
			}
			return nil, err
		}
		status := m.status(s)
		status.SandboxID = c.SandboxID
		st.ContainerStatuses = append(st.ContainerStatuses, status)
	}
	slices.SortStableFunc(st.ContainerStatuses, func(a, b *container.Status) int {
		return b.CreatedAt.Compare(a.CreatedAt)
	})
	m.reduced.ClearID(name)
	return st, nil
}

// status converts a container's status of CRI.
func (m *Manager) status(s *runtimeapi.ContainerStatus) *container.Status {
	annotations := s.GetAnnotations()
	out := &container.Status{
		ID: m.id(s.GetId()), Name: s.GetLabels()[container.ContainerNameLabel], State: container.ContainerState(s.GetState()),
		CreatedAt: time.Unix(0, s.GetCreatedAt()), Image: s.GetImage().GetImage(), ImageRef: s.GetImageRef(),
		ImageID:      cmp.Or(s.GetImageId(), s.GetImageRef()), // runtimes before Kubernetes 1.30 have no ImageId
		Hash:         number(annotations, container.HashAnnotation, 16),
		RestartCount: int(number(annotations, container.RestartCountAnnotation, 10)),
	}
	if out.State != container.Created {
		out.StartedAt = time.Unix(0, s.GetStartedAt())
	}
	if out.State == container.Exited {
		out.FinishedAt, out.ExitCode = time.Unix(0, s.GetFinishedAt()), int(s.GetExitCode())
		out.Reason, out.Message = s.GetReason(), s.GetMessage()
		// A container that could not even be started has no log.
		policy := v1.TerminationMessagePolicy(annotations[container.TerminationMessagePolicyAnnotation])
		fromLog := policy == v1.TerminationMessageFallbackToLogsOnError &&
			out.ExitCode != 0 && out.Reason != "ContainerCannotRun"
		if text := terminationMessage(s, fromLog); text != "" {
			out.Message = strings.TrimPrefix(out.Message+": "+text, ": ")
		}
	}
	return out
}

// sandboxIPs are the addresses that a sandbox reports, the primary one first. On the host's network there are none.
func sandboxIPs(s *runtimeapi.PodSandboxStatus) []string {
	ip := s.GetNetwork().GetIp()
	if ip == "" {
		return nil
	}
	ips := []string{ip}
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	return ips
}

// plain is the runtime's own text in a gRPC error, without the code; any other error's text is unchanged.
func plain(err error) string {
	s := err.Error()
	if _, desc, ok := strings.Cut(s, " desc = "); ok && strings.HasPrefix(s, "rpc error: code = ") {
		return desc
	}
	return s
}

// Bounds of termination messages (pkg/kubelet/container/runtime.go upstream).
const (
	messageBytes = 4096 // of the file
	logLines     = 80   // of the log
	logBytes     = 2048
	// logWindow is how much of a log's end is read. A line of containerd has at most 16 KiB, so a line that the window
	// cuts matters only if the lines after it are far more than enough.
	logWindow = 256 << 10
)

// terminationMessage is what a container left when it ended: its file, which is mounted into it, or with fromLog, if
// the file is empty, the end of its log.
func terminationMessage(s *runtimeapi.ContainerStatus, fromLog bool) string {
	path := s.GetAnnotations()[container.TerminationMessagePathAnnotation]
	i := slices.IndexFunc(s.GetMounts(), func(m *runtimeapi.Mount) bool {
		return path != "" && m.GetContainerPath() == path
	})
	if i >= 0 {
		file := s.GetMounts()[i].GetHostPath()
		switch data, err := readEnd(file, messageBytes); {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("Error on reading termination log %s: %v", file, err)
		case len(data) > 0:
			return string(data)
		}
	}
	if !fromLog {
		return ""
	}
	data, err := readEnd(s.GetLogPath(), logWindow)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(logEnd(data))
}

// readEnd reads at most the last bytes of a regular file.
func readEnd(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe that the container made would block
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

// logEnd returns the end of what a container wrote, from the end of its log in CRI's format: a time, a stream, tags and
// text. The tag P marks a part of a line. Lines of another form are skipped.
//
//	2016-10-06T00:17:09.669794202Z stdout P the beginning
//	2016-10-06T00:17:09.669794203Z stderr F and the end of a line
func logEnd(data []byte) []byte {
	lines := slices.Collect(bytes.Lines(data))
	var out []byte
	for _, line := range lines[max(0, len(lines)-logLines):] {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 {
			continue
		}
		tag, _, _ := bytes.Cut(parts[2], []byte(runtimeapi.LogTagDelimiter))
		if runtimeapi.LogTag(tag) == runtimeapi.LogTagPartial {
			parts[3] = bytes.TrimSuffix(parts[3], []byte("\n"))
		}
		out = append(out, parts[3]...)
	}
	return out[max(0, len(out)-logBytes):]
}
