package syncloop

import (
	"cmp"
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

const tracedPod = `
metadata: {name: web-lab, namespace: shop, uid: u1, annotations: {kubernetes.io/config.source: file}}
spec:
  volumes: [{name: config, configMap: {name: web}}]
  initContainers: [{name: setup, image: "busybox:1"}]
  restartPolicy: Never
  containers:
  - name: web
    image: "nginx:1"
    lifecycle: {postStart: {exec: {command: [x]}}}
    readinessProbe: {exec: {command: [x]}, periodSeconds: 1, timeoutSeconds: 1, successThreshold: 1}
    volumeMounts: [{name: config, mountPath: /config}]
`

// onFake runs a syncLoop on the embedded runtime, in a bubble, while play sends the pods of its one source.
func onFake(
	t *testing.T, runtime fake.Scenario, trace *Trace, play func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)),
) {
	t.Helper()
	dir := t.TempDir()
	looptest.Write(t, filepath.Join(dir, "web.yaml"), "kind: ConfigMap\nmetadata: {name: web, namespace: shop}")
	synctest.Test(t, func(t *testing.T) {
		k := kubelet(t)
		k.ImageGCHighThresholdPercent, k.EvictionHard = 100, nil
		s, err := New(t.Context(), Config{
			Endpoint: inMemory, NodeName: "lab", RootDir: dir + "/root", LogDir: dir + "/log",
			Objects: dir, Kubelet: k, Periods: PeriodsFor(k), Recorder: record.NewFakeRecorder(1000),
			Log: funcr.New(func(string, string) {}, funcr.Options{}), Dialer: faketest.Serve(t, runtime), Trace: trace,
		})
		looptest.Must(t, err)
		pods := make(chan []*v1.Pod)
		s.sources = []podSource{{pod.FileSource, func(ctx context.Context, send func([]*v1.Pod)) error {
			for {
				select {
				case p := <-pods:
					send(p)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}}}
		looptest.Run(t, func(ctx context.Context) error { return cmp.Or(s.Run(ctx), ctx.Err()) })
		play(t, s, func(p ...*v1.Pod) { pods <- p })
	})
}

// traced runs a syncLoop with the pod on the embedded runtime for a minute, and returns the steps of a Trace of name.
func traced(t *testing.T, runtime fake.Scenario, name string) (steps []Step) {
	t.Helper()
	p := &v1.Pod{}
	looptest.Decode(t, tracedPod, p)
	onFake(t, runtime, NewTrace(name, "Lab", func(s Step) { steps = append(steps, s) }),
		func(_ *testing.T, _ *SyncLoop, send func(...*v1.Pod)) {
			send(p)
			time.Sleep(time.Minute)
		})
	return steps
}

// inOrder are the steps whose order is that of one goroutine, as text without ids and numbers.
func inOrder(steps []Step) (out []string) {
	other := regexp.MustCompile(`PLEG|\(probe\)|Triggered Probe|^cri (PodSandbox|Container)Status|\(SYNC\)`)
	vary := regexp.MustCompile(`[0-9a-f]{64}|\b[0-9]+,`)
	for _, s := range steps {
		if line := strings.TrimSpace(s.Part + " " + s.Text); !other.MatchString(line) || s.N == 0 {
			out = append(out, vary.ReplaceAllString(line, "N"))
		}
	}
	return out
}

func second(n int) fake.Duration { return fake.Duration(time.Duration(n) * time.Second) }

func TestTrace(t *testing.T) {
	const unready = " ready=false why=containers with unready status: [web]"
	begin := []string{
		"syncloop SyncLoop ADD source=file",
		"podworkers Pod is being synced for the first time updateType=create",
		"status updateStatusInternal phase=Pending" + unready,
		"syncloop Pod data directories are made",
		"volumemanager MountVolume.SetUp succeeded for volume volumeName=config",
		"kuberuntime No sandbox for pod can be found. Need to start a new one",
		"kuberuntime computePodActions got for pod podActions={KillPod:true CreateSandbox:true SandboxID: Attempt:0 " +
			"Why:No sandbox for pod can be found. Need to start a new one ContainersToKill:[] InitContainersToStart:[0] " +
			"ContainersToStart:[]}",
		"cri RunPodSandbox",
	}
	actions := func(toStart, init string) string {
		return "kuberuntime computePodActions got for pod podActions={KillPod:false CreateSandbox:false SandboxID:N " +
			"Attempt:0 Why: ContainersToKill:[] InitContainersToStart:[" + init + "] ContainersToStart:[" + toStart + "]}"
	}
	setup := []string{"cri PullImage busybox:1", "cri CreateContainer setup (hash 389f4d54)", "cri StartContainer setup"}
	failed := `podworkers Error syncing pod, skipping err=failed to "StartContainer" for "setup" with `
	for _, tt := range []struct {
		name    string
		runtime fake.Scenario
		end     []string
	}{
		{
			"ready after a slow pull",
			fake.Scenario{
				Latency: []fake.Latency{{RPC: "PullImage", Base: second(8)}},
				Exits:   []fake.Exit{{Object: fake.Object{Container: "setup"}, After: second(5)}},
			},
			slices.Concat(setup, []string{
				actions("", ""), actions("0", ""),
				"cri PullImage nginx:1", "cri CreateContainer web (hash 855627a5)", "cri StartContainer web",
				"cri ExecSync web (hook)", "status updateStatusInternal phase=Running" + unready,
				"status updateStatusInternal phase=Running ready=true",
				"Ready; slowest step: N PullImage busybox:1",
			}),
		},
		{
			"the init container fails after a while",
			fake.Scenario{Exits: []fake.Exit{{After: second(5), Code: 1}}},
			slices.Concat(setup, []string{
				actions("", ""),
				"status updateStatusInternal phase=Failed ready=false",
				"Failed; slowest step: the wait before N PodSandboxStatus",
			}),
		},
		{
			"the pull fails",
			fake.Scenario{Faults: []fake.Fault{{RPC: "PullImage", Error: "NotFound: no such image"}}},
			[]string{
				"cri PullImage busybox:1 failed",
				failed + `ErrImagePull: "rpc error: code = NotFound desc = no such image"`,
				actions("", "0"),
				failed + `ImagePullBackOff: "Back-off pulling image \"busybox:1\": ErrImagePull: rpc error: code = ` +
					`NotFound desc = no such image"`,
				"cri PullImage busybox:1 failed", "cri PullImage busybox:1 failed",
			},
		},
		{
			"the pull hangs",
			fake.Scenario{Faults: []fake.Fault{{RPC: "PullImage", Hang: true, Until: second(61), Thaw: true}}},
			slices.Concat([]string{"PullImage busybox:1 has no answer after 10s"}, setup),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps := traced(t, tt.runtime, "shop/web")
			looptest.Equal(t, "steps", slices.Concat(begin, tt.end), inOrder(steps))
			n, at := 0, time.Duration(0)
			for _, s := range steps {
				if s.N > 0 && (s.N != n+1 || s.At < at) {
					t.Errorf("step %+v comes after %d", s, n)
				}
				n, at = max(n, s.N), max(at, s.At)
			}
		})
	}
}

// TestTraceOfAnotherPod gives the name of a pod that does not come, and one of the pod's full name.
func TestTraceOfAnotherPod(t *testing.T) {
	want := []Step{{Text: "no pod default/web yet; pods seen: shop/web-lab"}}
	looptest.Equal(t, "steps", want, traced(t, fake.Scenario{}, "web"))
	if got := traced(t, fake.Scenario{}, "shop/web-lab"); len(got) < 10 {
		t.Errorf("only %+v", got)
	}
}
