package gc

import (
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// noon is when the tests' plans are made.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) int64 { return noon().Add(-d).UnixNano() }

// A world is a node that tests put together.
type world struct {
	node Node
	ends map[string]End
	pods map[string]*crictl.Pod
}

func newWorld() *world {
	return &world{ends: map[string]End{}, pods: map[string]*crictl.Pod{}}
}

func (w *world) pod(name string) *crictl.Pod {
	if w.pods[name] == nil {
		w.pods[name] = &crictl.Pod{Namespace: "default", Name: name, UID: "uid-" + name}
	}
	return w.pods[name]
}

func (w *world) sandbox(id, pod string, state crictl.SandboxState, age time.Duration) *world {
	w.node.Sandboxes = append(w.node.Sandboxes, crictl.PodSandbox{
		ID: id, Pod: w.pod(pod), ConfigSource: "api", CreatedAt: ago(age), State: state, Size: 100,
	})
	return w
}

// container adds one that was made at age and ended a minute later.
func (w *world) container(id, sandbox, pod, name string, state crictl.ContainerState, age time.Duration) *world {
	w.node.Containers = append(w.node.Containers, crictl.Container{
		ID: id, SandboxID: sandbox, Name: name, Pod: w.pod(pod), CreatedAt: ago(age), State: state, Size: 1000,
	})
	w.ends[id] = End{FinishedAt: noon().Add(-age + time.Minute)}
	return w
}

// plan plans for a node of which all ends are known that w has.
func (w *world) plan(node Node, rules Rules) Plan {
	return Make(node, rules, noon(), func([]Candidate) map[string]End { return w.ends })
}

const (
	exited  = crictl.ContainerExited
	running = crictl.ContainerRunning
	hour    = time.Hour
)

func ids(p Plan) []string {
	out := []string{}
	for _, v := range p.Remove {
		out = append(out, v.ID)
	}
	return out
}
