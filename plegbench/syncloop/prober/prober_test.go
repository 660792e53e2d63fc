package prober

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

const period = 10 * time.Second // the API's default

var errBroken = errors.New("runtime is broken")

// exit is the error of a command that exited with a code.
func exit(code int) error {
	return exec.CodeExitError{Err: fmt.Errorf("exited with %d", code), Code: code}
}

// A harness is a Manager with the status and the exec that a test gives it.
type harness struct {
	*Manager
	stop     func() // ends Run
	recorder *record.FakeRecorder

	mu     sync.Mutex
	status *v1.PodStatus
	answer error // of the next commands
	calls  int
}

// perform runs a test in a bubble, with the pod's probes under way, and ends the Manager after it.
func perform(t *testing.T, p *v1.Pod, started bool, play func(t *testing.T, s *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &harness{status: live(started), recorder: record.NewFakeRecorder(1000)}
		s.Manager = New(Config{
			Liveness: NewResults(), Readiness: NewResults(), Startup: NewResults(),
			Exec: s.exec, Recorder: s.recorder, Log: logr.Discard(), Metrics: metrics.New(nil, nil),
			PodStatus: func(types.UID) (v1.PodStatus, bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return *s.status.DeepCopy(), true
			},
		})
		s.AddPod(p)
		s.AddPod(p) // the second time without effect
		s.stop = looptest.Run(t, s.Run)
		play(t, s)
	})
}

func (s *harness) exec(ctx context.Context, _ container.ID, _ []string, _ time.Duration) ([]byte, error) {
	s.mu.Lock()
	s.calls++
	answer := s.answer
	s.mu.Unlock()
	if answer == errHangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, answer
}

// errHangs makes exec wait for the end of its context.
var errHangs = errors.New("hangs")

// change changes the answer and the status, and lets time pass until nothing moves. It returns the number of probes.
func (s *harness) change(answer error, change func(*v1.PodStatus), d time.Duration) int {
	s.mu.Lock()
	before := s.calls
	s.answer = answer
	if change != nil {
		change(s.status)
	}
	s.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls - before
}

// lastEvent takes all events and returns the last.
func (s *harness) lastEvent() string {
	all := append([]string{""}, looptest.Drain(s.recorder.Events)...)
	return all[len(all)-1]
}

// updates are those that wait, of all kinds.
func (s *harness) updates() string {
	var out []string
	names := map[Result]string{Unknown: "Unknown", Success: "Success", Failure: "Failure"}
	for k, r := range []*Results{s.Liveness, s.Readiness, s.Startup} {
		for _, u := range looptest.Drain(r.Updates()) {
			out = append(out, fmt.Sprint(kind(k), " ", u.ContainerID.ID, " ", names[u.Result]))
		}
	}
	return strings.Join(out, ", ")
}

// workersLeft are the probes that go on, with their containers.
func (s *harness) workersLeft() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for k := range maps.Keys(s.workers) {
		out = append(out, k.container+" "+k.kind.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func execProbe(change ...func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{
		ProbeHandler:   v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3, // the API's defaults
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func newPod(change func(*v1.Pod, *v1.Container)) *v1.Pod {
	return looptest.Pod("web", func(p *v1.Pod) {
		p.UID = "u1"
		change(p, &p.Spec.Containers[0])
	})
}

// live is the status of a pod whose container app runs since now, as instance a.
func live(started bool) *v1.PodStatus {
	return &v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://a", Started: &started,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
}

// A step is what happens to a pod with probes of one container, app.
type step struct {
	answer  error               // of the commands from now on
	change  func(*v1.PodStatus) // may be nil
	wait    time.Duration
	updates string
	probes  int // in this time
}

func TestProbes(t *testing.T) {
	restarted := func(st *v1.PodStatus) { st.ContainerStatuses[0].ContainerID = "containerd://b" }
	ended := func(st *v1.PodStatus) {
		st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
	}
	const becomesReady = "Readiness a Failure, Readiness a Success"
	ill := exit(1)
	for name, tt := range map[string]struct {
		pod     func(*v1.Pod, *v1.Container)
		started bool
		steps   []step
		workers string // that are left
		event   string // the last
	}{
		"liveness": {
			func(_ *v1.Pod, c *v1.Container) { c.LivenessProbe = execProbe() }, true,
			[]step{
				{nil, nil, period, "Liveness a Success", 1},
				{ill, nil, 2 * period, "", 2},
				{ill, nil, period, "Liveness a Failure", 1},
				{ill, nil, 10 * period, "", 0}, // it will be restarted
				{nil, restarted, period, "Liveness b Success", 1},
			},
			"app Liveness", "Warning Unhealthy Liveness probe failed: ",
		},
		"readiness": {
			func(_ *v1.Pod, c *v1.Container) {
				c.ReadinessProbe = execProbe(func(p *v1.Probe) {
					p.SuccessThreshold, p.FailureThreshold, p.PeriodSeconds = 2, 1, 5
				})
			}, true,
			[]step{
				{nil, nil, 5 * time.Second, "Readiness a Failure", 1}, // until it has succeeded twice
				{nil, nil, 5 * time.Second, "Readiness a Success", 1},
				{ill, nil, 5 * time.Second, "Readiness a Failure", 1},
				{ill, nil, 50 * time.Second, "", 10},
			},
			"app Readiness", "Warning Unhealthy Readiness probe failed: ",
		},
		"startup": {
			func(_ *v1.Pod, c *v1.Container) { c.StartupProbe, c.LivenessProbe = execProbe(), execProbe() }, false,
			[]step{
				{ill, nil, 2 * period, "Liveness a Success, Startup a Unknown", 2},
				{nil, nil, period, "Startup a Success", 1},
				{nil, nil, 5 * period, "", 0},
				{nil, func(st *v1.PodStatus) { *st.ContainerStatuses[0].Started = true }, 5 * period, "", 5},
			},
			"app Liveness, app Startup", "Warning Unhealthy Startup probe failed: ",
		},
		"initial delay": {
			func(_ *v1.Pod, c *v1.Container) {
				c.LivenessProbe = execProbe(func(p *v1.Probe) {
					p.InitialDelaySeconds, p.PeriodSeconds, p.FailureThreshold = 60, 1, 1
				})
			}, true,
			[]step{
				{ill, nil, 59 * time.Second, "Liveness a Success", 0},
				{ill, nil, 3 * time.Second, "Liveness a Failure", 1},
			},
			"app Liveness", "Warning Unhealthy Liveness probe failed: ",
		},
		"errors are no result": {
			func(_ *v1.Pod, c *v1.Container) { c.ReadinessProbe = execProbe() }, true,
			[]step{{nil, nil, period, becomesReady, 1}, {errBroken, nil, 10 * period, "", 10 * mostTries}},
			"app Readiness",
			"Warning Unhealthy Readiness probe errored and resulted in unknown state: runtime is broken",
		},
		"the container ends for good": {
			func(p *v1.Pod, c *v1.Container) {
				p.Spec.RestartPolicy, c.ReadinessProbe = v1.RestartPolicyNever, execProbe()
			}, true,
			[]step{{nil, nil, period, becomesReady, 1}, {nil, ended, period, "Readiness a Failure", 0}},
			"", "",
		},
		"a deleted pod": {
			func(p *v1.Pod, c *v1.Container) {
				c.LivenessProbe, c.StartupProbe, c.ReadinessProbe = execProbe(), execProbe(), execProbe()
				p.DeletionTimestamp = new(metav1.Now())
			}, false,
			[]step{
				{nil, nil, period, "Liveness a Success, Readiness a Failure, Startup a Unknown, Startup a Success", 0},
			},
			"app Readiness", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			perform(t, newPod(tt.pod), tt.started, func(t *testing.T, s *harness) {
				for i, step := range tt.steps {
					probes := s.change(step.answer, step.change, step.wait)
					testkit.Equal(t, fmt.Sprint("step ", i), []any{step.updates, step.probes}, []any{s.updates(), probes})
				}
				testkit.Equal(t, "workers, event", []string{tt.workers, tt.event}, []string{s.workersLeft(), s.lastEvent()})
			})
		})
	}
}

// TestPodEnds ends probes of a container with all three.
func TestPodEnds(t *testing.T) {
	p := newPod(func(_ *v1.Pod, c *v1.Container) {
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = execProbe(), execProbe(), execProbe()
	})
	desired := map[types.UID]bool{p.UID: true}
	for _, tt := range []struct {
		end  func(s *harness)
		want string
	}{
		{func(s *harness) { s.StopLivenessAndStartup(p) }, "app Readiness"},
		{func(s *harness) { s.RemovePod(p) }, ""},
		{func(s *harness) { s.CleanupPods(nil) }, ""},
		{func(s *harness) { s.CleanupPods(desired) }, "app Liveness, app Readiness, app Startup"},
		{func(s *harness) { s.change(nil, func(st *v1.PodStatus) { st.Phase = v1.PodFailed }, 0) }, ""},
	} {
		perform(t, p, true, func(t *testing.T, s *harness) {
			tt.end(s)
			s.change(nil, nil, 2*period)
			testkit.Equal(t, "workers", tt.want, s.workersLeft())
		})
	}
}

// When the syncLoop takes no updates, the workers stand still; when it takes them again, they go on.
func TestBackPressure(t *testing.T) {
	p := newPod(func(_ *v1.Pod, c *v1.Container) {
		c.ReadinessProbe = execProbe(func(p *v1.Probe) { p.FailureThreshold, p.PeriodSeconds = 1, 1 })
	})
	perform(t, p, true, func(t *testing.T, s *harness) {
		probes := 0
		for i := range 60 {
			probes += s.change([]error{nil, exit(1)}[i%2], nil, time.Second)
		}
		if probes != updatesCap { // the first update was not a probe's, and one probe blocks
			t.Errorf("%d probes while no update was taken", probes)
		}
		for range 2 { // a status asks for a probe, and does not wait for it
			s.UpdatePodStatus(p, live(true))
		}
		if got := strings.Count(s.updates(), "Readiness"); got < updatesCap {
			t.Errorf("%d updates", got)
		}
		if s.change(nil, nil, 5*time.Second) == 0 {
			t.Error("no probe after the updates were taken")
		}
	})
}

func handle(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); r.URL.Path {
	case "/code":
		code, _ := strconv.Atoi(q.Get("is"))
		w.WriteHeader(code)
	case "/slow":
		<-r.Context().Done()
	case "/headers": // a teapot unless they are right
		got := r.Host + "|" + r.UserAgent() + "|" + r.Header.Get("X-Own") + "|" + r.Header.Get("Accept")
		if got != q.Get("are")+"|*/*" {
			w.WriteHeader(http.StatusTeapot)
		}
	}
}

func portOfServer(t *testing.T, s *httptest.Server) intstr.IntOrString {
	t.Cleanup(s.Close)
	return intstr.FromInt32(int32(s.Listener.Addr().(*net.TCPAddr).Port))
}

// TestOnce runs each kind of probe of a container app at 127.0.0.1 one time.
func TestOnce(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1") // probes go past it
	port := portOfServer(t, httptest.NewServer(http.HandlerFunc(handle)))
	secure := portOfServer(t, httptest.NewTLSServer(http.HandlerFunc(handle)))
	refusing := intstr.FromInt32(1)
	get := func(path string, port intstr.IntOrString, headers ...v1.HTTPHeader) v1.ProbeHandler {
		return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: port, HTTPHeaders: headers}}
	}
	tls := get("/code?is=200", secure)
	tls.HTTPGet.Scheme = v1.URISchemeHTTPS
	connect := func(host string, port intstr.IntOrString) v1.ProbeHandler {
		return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: port}}
	}
	grpc := v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 50051, Service: new("orders")}}
	execs := v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"echo", "hi"}}}
	much := strings.Repeat("x", 2*mostOutput)
	for _, tt := range []struct {
		name   string
		probe  v1.ProbeHandler
		output string // of the command
		err    error  // of the command or the gRPC call
		want   string // success, failure or error, with the beginning of the text
	}{
		{name: "400", probe: get("/code?is=400", port), want: "failure: HTTP probe failed with statuscode: 400"},
		{name: "own headers", probe: get("/headers?are=shop|me|x", port,
			v1.HTTPHeader{Name: "Host", Value: "shop"}, v1.HTTPHeader{Name: "User-Agent", Value: "me"},
			v1.HTTPHeader{Name: "X-Own", Value: "x"}), want: "success"},
		{name: "TLS", probe: tls, want: "success"},
		{name: "slow", probe: get("/slow", port), want: `failure: Get "http://127.0.0.1:` + port.String() + `/slow`},
		{name: "no path", probe: get("/100%", port), want: `error: parse "/100%": invalid URL escape`},
		{name: "port by name", probe: get("/", intstr.FromString("web")), want: "success"},
		{name: "unknown port", probe: get("/", intstr.FromString("x")), want: "error: invalid port number: x"},
		{name: "TCP", probe: connect("", port), want: "success"},
		{name: "TCP refused", probe: connect("", refusing), want: "failure: dial tcp 127.0.0.1:1: connect: conn"},
		{name: "gRPC", probe: grpc, want: "success"},
		{name: "gRPC failed", probe: grpc, err: errors.New("unhealthy"), want: "failure: unhealthy"},
		{name: "command", probe: execs, output: "fine", want: "success"},
		{
			name: "command failed", probe: execs, output: "ill", err: fmt.Errorf("running: %w", exit(3)),
			want: "failure: ill",
		},
		{name: "much output", probe: execs, output: much, err: exit(3), want: "failure: " + much[:mostOutput]},
		{
			name: "command too slow", probe: execs, err: status.FromContextError(context.DeadlineExceeded).Err(),
			want: `failure: command timed out: "echo hi" timed out after 1s`,
		},
		{name: "runtime broken", probe: execs, err: errBroken, want: "error: runtime is broken"},
		{name: "nothing to do", want: "error: missing probe handler for shop/web:app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(func(_ *v1.Pod, c *v1.Container) {
				c.LivenessProbe = &v1.Probe{ProbeHandler: tt.probe, TimeoutSeconds: 1}
				c.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(port.IntValue())}}
			})
			called := func(want string, args ...any) error {
				testkit.Equal(t, "call", want, fmt.Sprint(args...))
				return tt.err
			}
			m := New(Config{
				Liveness: NewResults(),
				Exec: func(_ context.Context, id container.ID, command []string, d time.Duration) ([]byte, error) {
					return []byte(tt.output), called("containerd://a [echo hi] 1s", id, command, d)
				},
				GRPC: func(_ context.Context, addr, service string, timeout time.Duration) error {
					return called("127.0.0.1:50051 orders 1s", addr, " ", service, " ", timeout)
				},
			})
			w := newWorker(m, key{p.UID, "app", liveness}, p, &p.Spec.Containers[0])
			w.id = container.ID{Type: "containerd", ID: "a"}
			err := w.once(t.Context(), &v1.PodStatus{PodIP: "127.0.0.1"})
			var failed failure
			got := "success"
			if errors.As(err, &failed) {
				got = "failure: " + string(failed)
			} else if err != nil {
				got = "error: " + err.Error()
			}
			if !strings.HasPrefix(got, tt.want) || len(got) > mostOutput+len("failure: ") {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
