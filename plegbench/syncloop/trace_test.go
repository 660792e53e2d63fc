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
	"github.com/kdiag/kdiag/internal/testkit"
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
	testkit.Write(t, filepath.Join(dir, "web.yaml"), "kind: ConfigMap\nmetadata: {name: web, namespace: shop}")
	synctest.Test(t, func(t *testing.T) {
		k := kubelet(t)
		k.ImageGCHighThresholdPercent, k.EvictionHard = 100, nil
		s, err := New(t.Context(), Config{
			Endpoint: inMemory, NodeName: "lab", RootDir: dir + "/root", LogDir: dir + "/log",
			Objects: dir, Kubelet: k, Periods: PeriodsFor(k), Recorder: record.NewFakeRecorder(1000),
			Log: funcr.New(func(string, string) {}, funcr.Options{}), Dialer: faketest.Serve(t, runtime), Trace: trace,
		})
		testkit.Must(t, err)
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

// inOrder are the steps whose order is that of one goroutine, as text.
func inOrder(steps []Step) (out []string) {
	for _, s := range steps {
		if s.Part == "PLEG" || s.Func == "HandlePodSyncs" || s.Func == "handleProbeSync" || s.Kind == StepWaiting {
			continue
		}
		// A mount waits for the reconciler for up to 100 ms.
		text, _ := strings.CutSuffix(regexp.MustCompile(`\b[0-9]+,`).ReplaceAllString(s.Text, "N,"),
			"; slowest work: N, mounted config")
		out = append(out, strings.TrimSpace(s.Part+" "+text))
	}
	return out
}

func second(n int) fake.Duration { return fake.Duration(time.Duration(n) * time.Second) }

func TestTrace(t *testing.T) {
	const unready = ", not ready: [web]"
	begin := []string{
		"shop/web is new: the source file has it",
		"loop new pod from the source file", "worker starts a worker for it", "status Pending" + unready,
		"worker folders of the pod made", "volumes mounted config", "containers create sandbox, start setup",
		"runtime RunPodSandbox",
	}
	setup := []string{"runtime PullImage busybox:1", "runtime CreateContainer setup", "runtime StartContainer setup"}
	const failed = `worker the sync failed: failed to "StartContainer" for "setup" with `
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
				"containers start web",
				"runtime PullImage nginx:1", "runtime CreateContainer web", "runtime StartContainer web",
				"runtime ExecSync web: its hook", "status Running" + unready, "status Running, ready",
				"Ready; slowest work: N, PullImage busybox:1",
			}),
		},
		{
			"the pull fails",
			fake.Scenario{Faults: []fake.Fault{{RPC: "PullImage", Error: "NotFound: no such image"}}},
			[]string{
				"runtime PullImage busybox:1 failed",
				failed + `ErrImagePull: "rpc error: code = NotFound desc = no such image"`,
				"containers start setup",
				failed + `ImagePullBackOff: "Back-off pulling image \"busybox:1\": ErrImagePull: rpc error: code = ` +
					`NotFound desc = no such image"`,
				"runtime PullImage busybox:1 failed", "runtime PullImage busybox:1 failed",
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
			testkit.Equal(t, "steps", slices.Concat(begin, tt.end), inOrder(steps))
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

// TestTraceChapters changes a pod that is ready: a container of it ends, its image changes, its source loses it.
func TestTraceChapters(t *testing.T) {
	p := &v1.Pod{}
	looptest.Decode(t, strings.Replace(tracedPod, "restartPolicy: Never", "restartPolicy: Always", 1), p)
	var got []string
	trace := NewTrace("shop/web", "lab", func(s Step) {
		if s.Kind == StepChapter || s.Kind == StepEnd || s.Part == "containers" {
			text, _, _ := strings.Cut(s.Text, ";")
			got = append(got, strings.TrimSpace(s.Part+" "+text))
		}
	})
	exits := []fake.Exit{
		{Object: fake.Object{Container: "setup"}}, {Object: fake.Object{Container: "web"}, After: second(30)},
	}
	onFake(t, fake.Scenario{Exits: exits}, trace, func(_ *testing.T, _ *SyncLoop, send func(...*v1.Pod)) {
		send(p)
		time.Sleep(50 * time.Second)
		changed := p.DeepCopy()
		changed.Spec.Containers[0].Image = "nginx:2"
		send(changed)
		time.Sleep(10 * time.Second)
		send()
		time.Sleep(time.Minute)
	})
	testkit.Equal(t, "chapters", []string{
		"shop/web is new: the source file has it", "containers create sandbox, start setup", "containers start web",
		"Ready",
		"shop/web: container web has ended", "containers start web", "Ready",
		"shop/web changed: the source file has another specification", "containers stop web, start web",
		"containers stop web, grace 2s", "containers web has ended", "Ready",
		"shop/web is removed: the source file does not have it any more", "containers stop web, grace 2s",
		"containers web has ended", "Gone",
	}, got)
}

// TestTraceOfAnotherPod gives the name of a pod that does not come, and one of the pod's full name.
func TestTraceOfAnotherPod(t *testing.T) {
	want := []Step{{Kind: StepRemark, Text: "no pod default/web yet; pods seen: shop/web-lab"}}
	testkit.Equal(t, "steps", want, traced(t, fake.Scenario{}, "web"))
	if got := traced(t, fake.Scenario{}, "shop/web-lab"); len(got) < 10 {
		t.Errorf("only %+v", got)
	}
}
