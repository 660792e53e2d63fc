package syncloop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// TestLoopSkips has a runtime that is down for nine minutes. The loop takes nothing meanwhile, and fails its health
// check after five.
func TestLoopSkips(t *testing.T) {
	down := fake.Scenario{Faults: []fake.Fault{
		{RPC: "Status", Error: "Unavailable: refused", From: second(60), Until: second(600)},
	}}
	onFake(t, down, nil, func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)) {
		start := time.Now()
		at := func(minute int, why, health string, pods int) {
			t.Helper()
			time.Sleep(time.Until(start.Add(time.Duration(minute) * time.Minute)))
			got := []any{s.loopState().Why, looptest.Text(s.syncLoopHealthCheck()), len(s.PodsWithStatus())}
			looptest.Equal(t, fmt.Sprint("minute ", minute), []any{why, health, pods}, got)
		}
		at(1, "", "", 0)
		at(2, "container runtime is down", "", 0)
		send(looptest.Pod("web"))
		at(6, "container runtime is down", "", 0)
		at(7, "container runtime is down", "sync Loop took longer than expected", 0)
		at(11, "", "", 1)
	})
}

// kubelet is the configuration of a kubelet that has none.
func kubelet(t *testing.T) *kubeletconfig.Config {
	t.Helper()
	k, _, err := LoadKubelet("", nil)
	looptest.Must(t, err)
	return k
}

// A shorter CrashLoopBackOff changes neither when it begins anew nor how long a failed pull waits (newCrashLoopBackOff
// in pkg/kubelet/kubelet.go).
func TestPeriods(t *testing.T) {
	k := kubelet(t)
	p := PeriodsFor(k)
	const second, minute = time.Second, time.Minute
	got := []time.Duration{
		p.Request, p.Resync, p.FileCheck, p.HTTPCheck, p.NodeStatus, p.NodeReport, p.CrashFirst, p.CrashMost,
	}
	want := []time.Duration{
		2 * minute, minute, 20 * second, 20 * second, 10 * second, 5 * minute, 10 * second, 5 * minute,
	}
	looptest.Equal(t, "times", want, got)
	k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = 5 * second
	p.CrashFirst, p.CrashMost = 5*second, 5*second
	looptest.Equal(t, "times", p, PeriodsFor(k))
	p = p.Faster(60)
	if p.RelistThreshold != 3*second || p.Request != 2*second || p.SkipFirst != leastPeriod {
		t.Errorf("%+v", p)
	}
}

// TestStaticPodComesBack takes a static pod away and puts it back unchanged while it terminates: it runs again, once.
func TestStaticPodComesBack(t *testing.T) {
	slowStop := fake.Scenario{Latency: []fake.Latency{{RPC: "StopContainer", Base: second(10)}}}
	onFake(t, slowStop, nil, func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)) {
		p := looptest.Pod("web", looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource))
		for _, pods := range [][]*v1.Pod{{p}, nil, {p}} {
			send(pods...)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		running, err := s.runtime.GetPods(t.Context(), false)
		if err != nil || len(running) != 1 || len(running[0].Containers) != 1 {
			t.Errorf("running: %+v, %v", running, err)
		}
		var m dto.Metric
		if err := s.metrics.RestartedPods.WithLabelValues("true").Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
			t.Errorf("restarted: %v, %v", &m, err)
		}
	})
}

// TestSafeServer checks what local users, whom the server does not authenticate, are not told unless one asks for it.
func TestSafeServer(t *testing.T) {
	k := kubelet(t)
	if k.EnableDebuggingHandlers {
		t.Error("the debugging handlers are on")
	}
	if k, _, err := LoadKubelet("", map[string][]string{"enable-debugging-handlers": {"true"}}); err != nil ||
		!k.EnableDebuggingHandlers {
		t.Errorf("the debugging handlers cannot be switched on: %v", err)
	}
	k.StaticPodURLHeader = map[string][]string{"Authorization": {"Bearer secret"}}
	looptest.Equal(t, "header", map[string][]string{"Authorization": {"<masked>"}}, configz(k).StaticPodURLHeader)
	looptest.Equal(t, "header in use", []string{"Bearer secret"}, k.StaticPodURLHeader["Authorization"])
}

// TestMirrorStatus changes the status of a mirror, as each report of the node does: its static pod is not synced again.
func TestMirrorStatus(t *testing.T) {
	onFake(t, fake.Scenario{}, nil, func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)) {
		send(looptest.Pod("web", looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource)))
		mirror := looptest.Pod("web", looptest.Annotated(pod.ConfigMirrorAnnotation, "hash"))
		mirror.UID = "mirror"
		set := func(p *v1.Pod) {
			update := config.PodUpdate{Op: config.SET, Source: pod.APIServerSource, Pods: []*v1.Pod{p}}
			s.podConfig.Merge(t.Context(), update)
		}
		set(mirror.DeepCopy())
		time.Sleep(10 * time.Second)
		before := syncs(t, s)
		mirror.Status.Phase = v1.PodRunning
		set(mirror)
		time.Sleep(10 * time.Second)
		if after := syncs(t, s); before == 0 || after != before {
			t.Errorf("%d syncs, and %d after a report", before, after)
		}
	})
}

// syncs counts the syncs of all pods.
func syncs(t *testing.T, s *SyncLoop) (n uint64) {
	t.Helper()
	for _, kind := range []podworkers.UpdateType{podworkers.Create, podworkers.Update, podworkers.Sync} {
		var m dto.Metric
		looptest.Must(t, s.metrics.PodWorkerDuration.WithLabelValues(string(kind)).(prometheus.Metric).Write(&m))
		n += m.GetHistogram().GetSampleCount()
	}
	return n
}

// TestServerSettings has a kubelet's file and flags of the server: whether it is secure, where it serves, and what has
// no effect or is refused.
func TestServerSettings(t *testing.T) {
	for _, tt := range []struct{ file, flag, want string }{
		{"", "", "false 127.0.0.1"},
		{"address: 10.0.0.1", "", "false 127.0.0.1 [address]"},
		{"address: ::1", "", "false ::1"},
		{"address: 10.0.0.1", "kubeconfig", "true 10.0.0.1"},
		{"", "kubeconfig", "true 127.0.0.1"},
		{"", "client-ca-file", "true 127.0.0.1"},
		{"{tlsCertFile: /c, address: 0.0.0.0}", "", "true 0.0.0.0"},
		{"authentication: {anonymous: {enabled: true}}", "", "false 127.0.0.1"},
		{"authorization: {mode: RBAC}", "", "authorization.mode is RBAC: it must be Webhook or AlwaysAllow"},
	} {
		file, flags := filepath.Join(t.TempDir(), "kubelet.yaml"), map[string][]string{}
		looptest.Write(t, file, tt.file)
		if tt.flag != "" {
			flags[tt.flag] = []string{"/x"}
		}
		k, noEffect, err := LoadKubelet(file, flags)
		got := looptest.Text(err)
		if err == nil {
			got = strings.TrimSuffix(fmt.Sprint(Secure(k, tt.flag == "kubeconfig"), " ", k.Address, " ", noEffect), " []")
		}
		looptest.Equal(t, fmt.Sprint(tt), tt.want, got)
	}
}

// TestAuthSettings makes the server's authentication without an API server.
func TestAuthSettings(t *testing.T) {
	dir := t.TempDir()
	looptest.Write(t, dir+"/ca", "no certificate")
	for ca, want := range map[string]string{
		"": "", dir + "/none": "no client provided, cannot use webhook authorization: there is no API server; " +
			"give --kubeconfig, or --authorization-mode AlwaysAllow",
		dir + "/ca AlwaysAllow": "unable to load client CA file " + dir + "/ca: error creating pool from " + dir +
			"/ca: data does not contain any valid RSA or ECDSA certificates",
	} {
		flags := map[string][]string{}
		file, mode, _ := strings.Cut(ca, " ")
		if file != "" {
			flags["client-ca-file"] = []string{file}
		}
		if mode != "" {
			flags["authorization-mode"] = []string{mode}
		}
		k, _, err := LoadKubelet("", flags)
		looptest.Must(t, err)
		cfg := Config{Kubelet: k, RootDir: dir, NodeName: "n"}
		auth, err := cfg.auth()
		looptest.Equal(t, ca, want, looptest.Text(err))
		if auth != nil {
			t.Errorf("%s: %+v", ca, auth)
		}
	}
}

// TestFeatureGates has gates of a command and of a kubelet's file. The file may have gates that only a kubelet knows.
func TestFeatureGates(t *testing.T) {
	const refused, known = "unrecognized feature gate: ", ": here are AllAlpha, EventedPLEG, PLEGOnDemandRelist"
	for _, tt := range []struct{ file, flag, noEffect, want string }{
		{"", "EventedPLEG=true,AllAlpha=false", "", ""},
		{"", "EventedPLEg=true", "", refused + "EventedPLEg" + known},
		{"", "NodeSwap=true", "", refused + "NodeSwap" + known},
		{"NodeSwap: true", "", "featureGates.NodeSwap", ""},
		{"eventedPLEG: true", "", "", refused + "eventedPLEG" + known},
	} {
		file, flags := filepath.Join(t.TempDir(), "kubelet.yaml"), map[string][]string{}
		looptest.Write(t, file, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
			"featureGates: {"+tt.file+"}")
		if tt.flag != "" {
			flags["feature-gates"] = []string{tt.flag}
		}
		_, noEffect, err := LoadKubelet(file, flags)
		got := []string{strings.Join(noEffect, " "), looptest.Text(err)}
		looptest.Equal(t, fmt.Sprint(tt), []string{tt.noEffect, tt.want}, got)
	}
}

// TestContainerGC has the kubelet's flags for dead containers.
func TestContainerGC(t *testing.T) {
	const per, all, age = "maximum-dead-containers-per-container", "maximum-dead-containers", "minimum-container-ttl-duration"
	for _, tt := range []struct {
		flags map[string][]string
		want  kuberuntime.GCPolicy
		err   string
	}{
		{nil, kuberuntime.GCPolicy{MaxPerPodContainer: 1, MaxContainers: -1}, ""},
		{
			map[string][]string{per: {"9", "3"}, all: {"7"}, age: {"1m"}},
			kuberuntime.GCPolicy{MinAge: time.Minute, MaxPerPodContainer: 3, MaxContainers: 7},
			"",
		},
		{map[string][]string{all: {"many"}}, kuberuntime.GCPolicy{}, "--" + all + " many: it must be a number"},
		{map[string][]string{age: {"-1s"}}, kuberuntime.GCPolicy{}, "--" + age + " -1s: it must be a number"},
	} {
		got, err := ContainerGC(tt.flags)
		if !strings.HasPrefix(looptest.Text(err), tt.err) || (err == nil) != (tt.err == "") {
			t.Errorf("%v: %v, want %s", tt.flags, err, tt.err)
		} else if err == nil {
			looptest.Equal(t, fmt.Sprint(tt.flags), tt.want, got)
		}
	}
}
