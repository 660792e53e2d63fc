package syncloop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/testkit"
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
			got := []any{s.loopState().Why, testkit.Text(s.syncLoopHealthCheck()), len(s.PodsWithStatus())}
			testkit.Equal(t, fmt.Sprint("minute ", minute), []any{why, health, pods}, got)
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
	testkit.Must(t, err)
	return k
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
		testkit.Must(t, err)
		testkit.Equal(t, "running pods", 1, len(running))
		testkit.Equal(t, "running containers", 1, len(running[0].Containers))
		restarted := s.metrics.RestartedPods.WithLabelValues("true")
		testkit.Equal(t, "restarted", 1.0, looptest.Metric(t, restarted).GetCounter().GetValue())
	})
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
		duration := s.metrics.PodWorkerDuration.WithLabelValues(string(kind))
		n += looptest.Metric(t, duration).GetHistogram().GetSampleCount()
	}
	return n
}

// TestSettings has a kubelet's file and flags: whether the server is secure, where it serves, whether it has the
// debugging handlers, and what has no effect, or is refused by LoadKubelet or then, without an API server, by auth.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, dir+"/ca", "no certificate")
	const unknownGate, knownGates = "unrecognized feature gate: ", ": here are AllAlpha, EventedPLEG, PLEGOnDemandRelist"
	for _, tt := range []struct{ file, flags, want string }{
		{"", "", "false 127.0.0.1 false []"},
		{"", "enable-debugging-handlers=true", "false 127.0.0.1 true []"},
		{"address: 10.0.0.1", "", "false 127.0.0.1 false [address]"},
		{"address: 10.0.0.1", "kubeconfig=/x", "true 10.0.0.1 false []"},
		{"{tlsCertFile: /c, address: 0.0.0.0}", "authorization-mode=AlwaysAllow", "loading the serving certificate: " +
			"open /c: no such file or directory"},
		{"authorization: {mode: RBAC}", "", "authorization.mode is RBAC: it must be Webhook or AlwaysAllow"},
		{
			"", "client-ca-file=/x", "no client provided, cannot use webhook authorization: there is no API server; " +
				"give --kubeconfig, or --authorization-mode AlwaysAllow",
		},
		{
			"", "authorization-mode=AlwaysAllow client-ca-file=" + dir + "/ca", "unable to load client CA file " + dir +
				"/ca: error creating pool from " + dir + "/ca: data does not contain any valid RSA or ECDSA certificates",
		},
		{"", "feature-gates=NodeSwap=true", unknownGate + "NodeSwap" + knownGates},
		// The file may have gates that only a kubelet knows.
		{"featureGates: {NodeSwap: true}", "", "false 127.0.0.1 false [featureGates.NodeSwap]"},
	} {
		file, flags := filepath.Join(dir, "kubelet.yaml"), map[string][]string{}
		testkit.Write(t, file, tt.file)
		for _, f := range strings.Fields(tt.flags) {
			name, value, _ := strings.Cut(f, "=")
			flags[name] = []string{value}
		}
		k, noEffect, err := LoadKubelet(file, flags)
		secure := err == nil && Secure(k, flags["kubeconfig"] != nil)
		if secure && flags["kubeconfig"] == nil {
			_, err = (&Config{Kubelet: k, RootDir: dir, NodeName: "n"}).auth()
		}
		got := testkit.Text(err)
		if err == nil {
			got = fmt.Sprint(secure, " ", k.Address, " ", k.EnableDebuggingHandlers, " ", noEffect)
		}
		testkit.Equal(t, fmt.Sprint(tt), tt.want, got)
	}
	k := kubelet(t)
	k.StaticPodURLHeader = map[string][]string{"Authorization": {"Bearer secret"}}
	testkit.Equal(t, "header", map[string][]string{"Authorization": {"<masked>"}}, configz(k).StaticPodURLHeader)
	testkit.Equal(t, "header in use", []string{"Bearer secret"}, k.StaticPodURLHeader["Authorization"])
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
	} {
		got, err := ContainerGC(tt.flags)
		if !strings.HasPrefix(testkit.Text(err), tt.err) || (err == nil) != (tt.err == "") {
			t.Errorf("%v: %v, want %s", tt.flags, err, tt.err)
		} else if err == nil {
			testkit.Equal(t, fmt.Sprint(tt.flags), tt.want, got)
		}
	}
}

// TestGeneralFilter has a node with two pods, of which one is left out by its own name.
func TestGeneralFilter(t *testing.T) {
	node, others := &v1.Node{}, []*v1.Pod{{}, {}}
	looptest.Decode(t, `
metadata: {name: node-1, labels: {zone: a}}
spec: {taints: [{key: k, value: "1", effect: NoExecute}, {key: n, effect: NoSchedule}]}
status: {allocatable: {pods: 3, cpu: 2, memory: 1Gi, ephemeral-storage: 1Gi, example.com/gpu: 1}}
`, node)
	for _, p := range others {
		looptest.Decode(t, `{spec: {containers: [{resources: {requests: {cpu: 500m, example.com/gpu: 1}}}]}}`, p)
	}
	others = others[:1]
	const tolerated = "tolerations: [{key: k, operator: Exists}]"
	resources := func(list string) string {
		return tolerated + ", containers: [{resources: {requests: {" + list + "}}}]"
	}
	const short = "Node didn't have enough resource: "
	for _, tt := range []struct {
		metadata, spec string
		reason, text   string
	}{
		{"", tolerated, "", ""},
		{"", resources("cpu: 1500m, memory: 1Gi, ephemeral-storage: 1Gi"), "", ""},
		{"", resources("cpu: 1501m"), "OutOfcpu", short + "cpu, requested: 1501, used: 500, capacity: 2000"},
		{
			"", resources("example.com/gpu: 1"), "OutOfexample.com/gpu",
			short + "example.com/gpu, requested: 1, used: 1, capacity: 1",
		},
		{"", resources("example.com/license: 1"), "", ""}, // of the cluster
		{
			"", tolerated + ", nodeSelector: {zone: b}", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"", tolerated + ", nodeName: node-2", "NodeName",
			"Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{
			"", "nodeName: node-1", "TaintToleration",
			"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{"annotations: {kubernetes.io/config.source: file}", "nodeName: node-1", "", ""},
	} {
		p := &v1.Pod{}
		looptest.Decode(t, "{metadata: {"+tt.metadata+"}, spec: {"+tt.spec+"}}", p)
		got := append(generalFilter(logr.Discard(), p, others, node), predicateFailure{})[0]
		testkit.Equal(t, tt.spec, []string{tt.reason, tt.text}, []string{got.reason, got.message})
	}
	got := generalFilter(logr.Discard(), &v1.Pod{}, append(others, others[0], others[0]), node)
	testkit.Equal(t, "too many", short+"pods, requested: 1, used: 3, capacity: 3", got[0].message)
}
