package plegbench

import (
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// t0 is when the measurements of the pure tests begin.
var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func call(method string, elapsed time.Duration, code crictl.Code) crictl.Call {
	return crictl.Call{Method: method, Start: t0, Elapsed: elapsed, Code: code}
}

func sampleOf(at, sandboxes, containers time.Duration) Sample {
	return Sample{
		At:         t0.Add(at),
		Mode:       crictl.ModeUnary,
		Sandboxes:  call("ListPodSandbox", sandboxes, crictl.OK),
		Containers: call("ListContainers", containers, crictl.OK),
	}
}

func podNamed(name string) *crictl.Pod {
	return &crictl.Pod{Namespace: "default", Name: name, UID: "uid-" + name}
}

func sandboxOf(id, pod string, state crictl.SandboxState, created int64) crictl.PodSandbox {
	return crictl.PodSandbox{ID: id, Pod: podNamed(pod), State: state, CreatedAt: created, Size: 500}
}

func containerOf(id, pod, name string, state crictl.ContainerState, created int64) crictl.Container {
	return crictl.Container{
		ID: id, SandboxID: "s-" + pod, Name: name, Pod: podNamed(pod), State: state, CreatedAt: created, Size: 1000,
	}
}

func sandboxList(sandboxes ...crictl.PodSandbox) *crictl.PodSandboxList {
	l := &crictl.PodSandboxList{Sandboxes: sandboxes, Mode: crictl.ModeUnary, Complete: true}
	for _, s := range sandboxes {
		l.Bytes += int(s.Size)
	}
	return l
}

func containerList(containers ...crictl.Container) *crictl.ContainerList {
	l := &crictl.ContainerList{Containers: containers, Mode: crictl.ModeUnary, Complete: true}
	for _, c := range containers {
		l.Bytes += int(c.Size)
	}
	return l
}

// inspected is the inspection of a listed object.
func inspected(t target, elapsed time.Duration, code crictl.Code) Inspection {
	i := t.inspection()
	method := "ContainerStatus"
	if i.Kind == KindPodSandbox {
		method = "PodSandboxStatus"
	}
	i.Call = call(method, elapsed, code)
	i.Call.Object = i.ID
	return i
}
