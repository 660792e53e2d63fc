package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// now is the moment at which all facts of the tests were taken.
func now() time.Time { return time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC) }

const deadline = 5 * time.Second

// A tweak changes what a healthy node shows.
type tweak func(*facts.Input)

// recordedCase reads a case of this package anew.
func recordedCase(name string) *facts.Input { return readCase("testdata/" + name) }

// node is the recorded node with three running pods of two containers, with tweaks applied, then summarised.
func node(tweaks ...tweak) *facts.Input {
	f := recordedCase("healthy")
	f.Summary = nil
	for _, t := range tweaks {
		t(f)
	}
	if f.Measurement != nil && f.Summary == nil {
		f.Summary = plegbench.Summarize(f.Measurement, f.Kubelet)
	}
	return f
}

// call is an answered call, at since the start of the measurement.
func call(method, object string, at, took time.Duration) crictl.Call {
	return crictl.Call{
		Method: method, Object: object, Start: now().Add(at - 2*time.Second), Elapsed: took, Code: crictl.OK,
	}
}

// lost turns a call into one that hung.
func lost(c crictl.Call) crictl.Call {
	c.Code, c.Err, c.Elapsed = crictl.DeadlineExceeded, "context deadline exceeded", deadline
	return c
}

// pods replaces the pods of the node.
func pods(n, containers int) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		m.Sandboxes.Sandboxes, m.Containers.Containers = nil, nil
		for p := range n {
			pod := &crictl.Pod{Namespace: "web", Name: fmt.Sprintf("checkout-%d", p), UID: fmt.Sprintf("uid-%d", p)}
			id := fmt.Sprintf("sandbox%d", p)
			created := now().Add(-24 * time.Hour).UnixNano()
			m.Sandboxes.Sandboxes = append(m.Sandboxes.Sandboxes,
				crictl.PodSandbox{ID: id, Pod: pod, CreatedAt: created, Size: 900})
			for c := range containers {
				m.Containers.Containers = append(m.Containers.Containers, crictl.Container{
					ID: fmt.Sprintf("container%d-%d", p, c), SandboxID: id, Name: fmt.Sprintf("app%d", c), Pod: pod,
					CreatedAt: created, Size: 1000, State: crictl.ContainerRunning,
				})
			}
		}
		measureLists(f)
	}
}

// measureLists sets the sizes of the lists to those of their entries.
func measureLists(f *facts.Input) {
	m := f.Measurement
	m.Sandboxes.Bytes, m.Containers.Bytes = 0, 0
	for _, s := range m.Sandboxes.Sandboxes {
		m.Sandboxes.Bytes += int(s.Size)
	}
	for _, c := range m.Containers.Containers {
		m.Containers.Bytes += int(c.Size)
	}
}

// sweep asks for the status of everything, two milliseconds each, answered.
func sweep(f *facts.Input) {
	m := f.Measurement
	m.Sweep = plegbench.Sweep{Reach: "everything"}
	at := time.Second
	for _, s := range m.Sandboxes.Sandboxes {
		at += 3 * time.Millisecond
		m.Sweep.Inspections = append(m.Sweep.Inspections, plegbench.Inspection{
			Kind: facts.KindSandbox, ID: s.ID, SandboxID: s.ID, Pod: *s.Pod, State: s.State.String(),
			Call: call("PodSandboxStatus", s.ID, at, 2*time.Millisecond),
		})
	}
	for _, c := range m.Containers.Containers {
		at += 3 * time.Millisecond
		m.Sweep.Inspections = append(m.Sweep.Inspections, plegbench.Inspection{
			Kind: facts.KindContainer, ID: c.ID, SandboxID: c.SandboxID, Name: c.Name, Pod: *c.Pod,
			State: c.State.String(), Call: call("ContainerStatus", c.ID, at, 2*time.Millisecond),
		})
	}
	m.Sweep.Total = len(m.Sweep.Inspections)
}

// hangs makes RPCs hang from the first call on, and takes away what they would have brought.
func hangs(names ...string) tweak {
	return each(names, func(c crictl.Call) crictl.Call { return lost(c) })
}

// fails makes RPCs fail with a code and a text.
func fails(code crictl.Code, text string, names ...string) tweak {
	return each(names, func(c crictl.Call) crictl.Call {
		c.Code, c.Err = code, text
		return c
	})
}

// takes makes RPCs take so long.
func takes(d time.Duration, names ...string) tweak {
	return func(f *facts.Input) {
		for i, c := range f.Measurement.Probes {
			if slices.Contains(names, c.Method) {
				f.Measurement.Probes[i].Elapsed = d
			}
		}
		for i := range f.Measurement.Samples {
			s := &f.Measurement.Samples[i]
			if slices.Contains(names, facts.RPCSandboxes) {
				s.Sandboxes.Elapsed = d
			}
			if slices.Contains(names, facts.RPCContainers) {
				s.Containers.Elapsed = d
			}
		}
	}
}

func each(names []string, change func(crictl.Call) crictl.Call) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		for i, c := range m.Probes {
			if slices.Contains(names, c.Method) {
				m.Probes[i] = change(c)
			}
		}
		if slices.Contains(names, facts.RPCVersion) {
			m.Version = nil
		}
		if slices.Contains(names, facts.RPCStatus) {
			m.Status = nil
		}
		for i := range m.Samples {
			s := &m.Samples[i]
			switch {
			case slices.Contains(names, facts.RPCSandboxes):
				s.Sandboxes, s.Containers = change(s.Sandboxes), crictl.Call{}
			case slices.Contains(names, facts.RPCContainers):
				s.Containers = change(s.Containers)
			}
		}
		if slices.Contains(names, facts.RPCSandboxes) {
			m.Sandboxes = nil
		}
		if slices.Contains(names, facts.RPCContainers) {
			m.Containers = nil
		}
		if m.Sandboxes == nil && m.Containers == nil {
			m.Sweep = plegbench.Sweep{}
		}
	}
}

// statusHangs makes the status of the given objects hang.
func statusHangs(ids ...string) tweak {
	return func(f *facts.Input) {
		for i := range f.Measurement.Sweep.Inspections {
			if in := &f.Measurement.Sweep.Inspections[i]; slices.Contains(ids, in.ID) {
				in.Call = lost(in.Call)
			}
		}
	}
}

// socket gives the socket another state and takes away everything behind it.
func socket(state crictl.ConnectState, text string) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		f.Measurement = &plegbench.Measurement{
			Started: m.Started, Ended: m.Ended, Connect: crictl.Connect{State: state, Elapsed: deadline, Err: text},
		}
	}
}

// processesOf replaces the processes of the host.
func processesOf(ps ...host.Process) tweak { return func(f *facts.Input) { f.Processes = ps } }

// daemonIn puts the runtime's process into a state.
func daemonIn(state byte, wchan string) tweak {
	return func(f *facts.Input) { f.Processes[0].State, f.Processes[0].Wchan = state, wchan }
}

// blockedFor puts the runtime's process into uninterruptible sleep that both looks saw.
func blockedFor(wchan string) tweak {
	return func(f *facts.Input) {
		daemonIn('D', wchan)(f)
		f.Processes[0].Lasting = true
	}
}

// exited adds dead containers, so many of each pod and name.
func exited(total, perPod int, bytes uint32) tweak {
	return func(f *facts.Input) {
		m := f.Measurement
		for i := range total {
			h := i / perPod
			m.Containers.Containers = append(m.Containers.Containers, crictl.Container{
				ID: fmt.Sprintf("dead%d", i), SandboxID: fmt.Sprintf("gone%d", h), Name: "job",
				State: crictl.ContainerExited, Size: bytes,
				Pod: &crictl.Pod{
					Namespace: "batch", Name: fmt.Sprintf("report-%d", h), UID: fmt.Sprintf("job-%d", h),
				},
				CreatedAt: now().Add(-time.Duration(i) * time.Minute).UnixNano(), Attempt: uint32(i % perPod),
			})
		}
		measureLists(f)
	}
}

// summary overrides figures of the summary, which is worked out first.
func figures(change func(*plegbench.Summary)) tweak {
	return func(f *facts.Input) {
		f.Summary = plegbench.Summarize(f.Measurement, f.Kubelet)
		change(f.Summary)
	}
}

// codes lists the codes of causes in order.
func codes(named []checks.Cause) []string {
	out := []string{}
	for _, c := range named {
		out = append(out, c.Code)
	}
	return out
}

// Results reads the checks as a report of kdiag node does.
func Results(in *facts.Input) []checks.Result { return results(judged(in)) }

// VerdictOf sums up causes as a report of kdiag node does.
func VerdictOf(in *facts.Input, all []checks.Cause) checks.Verdict {
	return verdict(facts.New(in), all, scopeSweep)
}
