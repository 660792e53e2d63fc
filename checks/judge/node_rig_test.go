package judge

import (
	"reflect"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// good is a look that brought its value.
func good[T any](v T) facts.Reading[T] {
	return facts.Reading[T]{Value: v, OK: true, Took: 3 * time.Millisecond}
}

// some is an average that has lasted for a minute.
func some(percent float64) host.Averages {
	return host.Averages{Avg10: percent, Avg60: percent, Avg300: percent / 2}
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

// deadMount is a mount of web/checkout-1 that does not answer.
func deadMount(n *facts.Node) {
	m := &n.Mounts.Value.Probed[0]
	m.Hung, m.Waiting = true, 45*time.Second
}
