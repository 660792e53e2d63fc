package kuberuntime

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// GetPodStatus asks for the status of each of a pod's sandboxes and then of each of its containers, one after the other.
// What vanished since the lists is left out; any other error ends it. Termination messages are read from the node's files.
func (m *Manager) GetPodStatus(ctx context.Context, p *container.Pod) (*container.PodStatus, error) {
	st := &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, TimeStamp: time.Now()}
	name := p.Name + "_" + p.Namespace + "(" + string(p.UID) + ")"
	for i, sb := range p.Sandboxes {
		s, err := m.CRI.PodSandboxStatus(ctx, sb.ID.ID)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			m.Log.Error(err, "PodSandboxStatus of sandbox for pod", "pod", name, "podSandboxID", sb.ID.ID)
			return nil, err
		}
		st.SandboxStatuses = append(st.SandboxStatuses, s)
		if i == 0 && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			st.IPs = m.sandboxIPs(s)
		}
	}
	for _, c := range p.Containers {
		s, err := m.CRI.ContainerStatus(ctx, c.ID.ID)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			if m.said.say(name, err.Error()) {
				m.Log.Error(err, "getPodContainerStatuses for pod failed", "pod", name)
			}
			return nil, err
		}
		status := m.status(s)
		status.SandboxID = c.SandboxID
		st.ContainerStatuses = append(st.ContainerStatuses, status)
	}
	slices.SortStableFunc(st.ContainerStatuses, func(a, b *container.Status) int { return b.CreatedAt.Compare(a.CreatedAt) })
	m.said.forget(name)
	return st, nil
}

// status is what a container's status of CRI means.
func (m *Manager) status(s *runtimeapi.ContainerStatus) *container.Status {
	a := annotated{m.Log, s.GetAnnotations()}
	out := &container.Status{
		ID: m.id(s.GetId()), Name: s.GetLabels()[container.ContainerNameLabel], State: container.ContainerState(s.GetState()),
		CreatedAt: time.Unix(0, s.GetCreatedAt()),
		Image:     s.GetImage().GetImage(), ImageID: s.GetImageId(), ImageRef: s.GetImageRef(),
		Hash:         a.uint(container.HashAnnotation, 16),
		RestartCount: int(a.uint(container.RestartCountAnnotation, 10)),
	}
	if out.ImageID == "" {
		out.ImageID = s.GetImageRef() // runtimes before CRI of Kubernetes 1.30
	}
	if sig := s.GetStopSignal(); sig != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		out.StopSignal = strings.TrimPrefix(sig.String(), signalPrefix)
	}
	if out.State != container.Created {
		out.StartedAt = time.Unix(0, s.GetStartedAt())
	}
	if out.State == container.Exited {
		out.FinishedAt, out.ExitCode = time.Unix(0, s.GetFinishedAt()), int(s.GetExitCode())
		out.Reason, out.Message = s.GetReason(), s.GetMessage()
		// What could not even be started has written no log.
		fallback := s.GetAnnotations()[container.TerminationMessagePolicyAnnotation] == string(v1.TerminationMessageFallbackToLogsOnError) &&
			out.ExitCode != 0 && out.Reason != "ContainerCannotRun"
		if text := terminationMessage(s, fallback); text != "" {
			out.Message = strings.TrimPrefix(out.Message+": "+text, ": ")
		}
	}
	return out
}

// isNotFound reports whether the runtime does not know what it was asked about.
func isNotFound(err error) bool { return err != nil && remote.IsNotFound(err) }

// plain is the runtime's own text in a gRPC error, without the code; any other error's text as it is.
func plain(err error) string {
	s := err.Error()
	if _, desc, ok := strings.Cut(s, " desc = "); ok && strings.HasPrefix(s, "rpc error: code = ") {
		return desc
	}
	return s
}

// A reducer keeps a line that would be repeated each second from filling the log: the same text about the same thing is
// said once a minute.
type reducer struct {
	mu   sync.Mutex
	last map[string]saying
}

type saying struct {
	text string
	at   time.Time
}

func newReducer() *reducer { return &reducer{last: map[string]saying{}} }

func (r *reducer) say(thing, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.last[thing]; ok && s.text == text && time.Since(s.at) < time.Minute {
		return false
	}
	r.last[thing] = saying{text, time.Now()}
	return true
}

func (r *reducer) forget(thing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, thing)
}
