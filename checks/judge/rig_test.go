package judge

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
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
		f.Summarize()
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
		f.Summarize()
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

// seen gives the node the recorded host that is well, and applies changes.
func seen(changes ...func(*facts.Node)) tweak { return onHost("host_healthy", changes) }

// surfaces gives the node a healthy host and kubelet, and applies changes.
func surfaces(changes ...func(*facts.Node)) tweak {
	return func(f *facts.Input) {
		f.Processes = append(f.Processes, kubeletProcess('S'))
		onHost("kubelet_healthy", changes)(f)
	}
}

func onHost(name string, changes []func(*facts.Node)) tweak {
	return func(f *facts.Input) {
		f.Node = recordedCase(name).Node
		f.Node.Pressure.Value.Memory = &host.Stall{}
		for _, change := range changes {
			change(f.Node)
		}
	}
}

// times10 is ten writes of the same time.
func times10(d time.Duration) []time.Duration {
	out := make([]time.Duration, 10)
	for i := range out {
		out[i] = d
	}
	return out
}

// notSeen gives the node looks that brought nothing: as a user without rights has them, or on a kernel without these
// files.
func notSeen(f *facts.Input) {
	f.Node = &facts.Node{}
	walkStrings(reflect.ValueOf(f.Node).Elem(), func(field string, v reflect.Value) {
		if field == "Missing" {
			v.SetString("permission denied")
		}
	})
}

// walkStrings visits every string below a value, with the name of its field. Values of maps are left alone.
func walkStrings(v reflect.Value, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkStrings(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkStrings(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.String && f.CanSet() {
				visit(v.Type().Field(i).Name, f)
			} else if f.CanSet() {
				walkStrings(f, visit)
			}
		}
	}
}

func kubeletProcess(state byte) host.Process {
	return host.Process{
		PID: 812, PPID: 1, Name: "kubelet", Role: host.RoleKubelet, State: state,
		Wchan: "futex_wait_queue", Started: now().Add(-72 * time.Hour),
	}
}

func daemonProcess() host.Process {
	return host.Process{
		PID: 4711, PPID: 1, Name: "containerd", Role: host.RoleRuntime, State: 'S', Wchan: "ep_poll",
		Started: now().Add(-72 * time.Hour),
	}
}

// noKubelet takes the kubelet away, and with it what only a kubelet that runs is asked.
func noKubelet(f *facts.Input) {
	f.Kubelet = nil
	f.Processes = []host.Process{daemonProcess()}
	if f.Node != nil {
		skipped := "no kubelet runs here"
		f.Node.Settings = facts.Reading[kubelet.Settings]{Skipped: true, Missing: skipped}
		f.Node.Health = facts.Reading[kubelet.Health]{Skipped: true, Missing: skipped}
		f.Node.Server = facts.Reading[kubelet.Server]{Skipped: true, Missing: skipped}
	}
}

// An entry adds something to a journal.
type entry func(*journal.Report)

// logs gives the node a journal that was read when the measurement began.
func logs(entries ...entry) tweak {
	return func(f *facts.Input) {
		r := &journal.Report{APIVersion: journal.APIVersion, Kind: "JournalReport", GeneratedAt: readAt(), Lines: 4200}
		for _, e := range entries {
			e(r)
		}
		f.Journal = r
	}
}

// readAt is when the journal was read.
func readAt() time.Time { return now().Add(-2 * time.Second) }

// ago is so long before the journal was read.
func ago(d time.Duration) *time.Time { return new(readAt().Add(-d)) }

// signs adds n records of a signature, the first and the last so long ago, about subjects such as "runc pid 7".
func signs(code string, n int64, first, last time.Duration, example string, subjects ...string) entry {
	return func(r *journal.Report) {
		c := journal.Count{
			Code: code, Title: "x", Lane: string(signature.Kubelet), Count: n, First: ago(first),
			Last: ago(last), Example: example,
		}
		for _, s := range subjects {
			subject := journal.SubjectCount{Kind: "Container", ID: s, Count: n, First: ago(first), Last: ago(last)}
			if name, pid, ok := strings.Cut(s, " pid "); ok {
				subject.Kind, subject.ID, subject.Name = "Process", pid, name
			}
			c.Subjects = append(c.Subjects, subject)
		}
		r.Signatures = append(r.Signatures, c)
	}
}

// burst adds an event of a signature to the timeline.
func burst(code string, n int64, from, to time.Duration, subject string) entry {
	return func(r *journal.Report) {
		r.Events = append(r.Events, journal.Event{
			At: ago(from), Until: ago(to), Count: n, Code: code, What: code, Subject: subject,
		})
	}
}

// incident adds an episode in which PLEG was unhealthy, from and to so long ago, and its records.
func incident(from, to time.Duration, changes ...func(*journal.Episode)) entry {
	return func(r *journal.Report) {
		e := journal.Episode{
			Kind: journal.Incident, Start: ago(from), End: ago(to), Anchor: ago(from + 3*time.Minute),
			Seconds: (from - to).Seconds(), Lines: int((from-to)/(5*time.Second)) + 1,
			MaxLastSeenSeconds: (from - to + 3*time.Minute).Seconds(), ThresholdSeconds: 180,
		}
		for _, change := range changes {
			change(&e)
		}
		r.Episodes = append(r.Episodes, e)
		signs(signature.PLEGNotHealthy, int64(e.Lines), from, to,
			`"Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m1.2s ago"`)(r)
	}
}

// recovered makes an episode one that ended so long ago.
func recovered(at time.Duration) func(*journal.Episode) {
	return func(e *journal.Episode) {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, ago(at), signature.SyncLoopActive
	}
}

// The records that tests repeat, as a kubelet, systemd and the kernel write them.
const (
	refusedRelist = `"GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = ` +
		`connection error: desc = \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: ` +
		`connect: connection refused\""`
	leaseTimeout = `"Failed to update lease" err="Put \"https://10.0.0.1:6443/apis/coordination.k8s.io/v1/namespaces/` +
		`kube-node-lease/leases/node-7?timeout=10s\": dial tcp 10.0.0.1:6443: i/o timeout"`
	scheduled = "kubelet.service: Scheduled restart job, restart counter is at 41."
	memcgKill = "Memory cgroup out of memory: Killed process 7011 (java) total-vm:9000000kB, anon-rss:2000000kB"
)

// calm is what a healthy node's journal holds: nothing but the noise of its day.
func calm() tweak {
	return logs(signs(signature.SyncLoopActive, 320, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE" source="api"`),
		signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate.service", "logrotate.service"),
		signs(signature.OOMKill, 1, 9*time.Minute, 9*time.Minute, memcgKill, "java"),
		signs(signature.NodeReady, 1, 8*time.Minute, 8*time.Minute, "Node became ready"),
		signs(signature.CreateFailed, 1, 5*time.Minute, 5*time.Minute, "CreatePodSandbox for pod failed"),
		signs(signature.APIServerFailed, 2, 4*time.Minute, 4*time.Minute-time.Second, leaseTimeout))
}
