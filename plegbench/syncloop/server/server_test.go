package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// start runs a server until the test ends.
func start(t *testing.T, cfg Config) (base string) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + s.Addr().String()
}

func ask(t *testing.T, method, url, body string) (code int, text string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func TestHealthz(t *testing.T) {
	var mu sync.Mutex
	var failing error
	var log strings.Builder
	base := start(t, Config{
		Checks: []Check{{"syncloop", func() error { mu.Lock(); defer mu.Unlock(); return failing }}},
		Log:    funcr.New(func(_, args string) { mu.Lock(); defer mu.Unlock(); log.WriteString(args) }, funcr.Options{Verbosity: 2}),
	})
	stuck := errors.New("sync Loop took longer than expected")
	tests := []struct {
		path string
		err  error
		code int
		want string
	}{
		{"/healthz", nil, 200, "ok"},
		{"/healthz?verbose", nil, 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"},
		{"/healthz/syncloop", nil, 200, "ok"},
		{"/healthz", stuck, 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"/healthz/syncloop", stuck, 500, "internal server error: sync Loop took longer than expected\n"},
		{"/healthz/ping", stuck, 200, "ok"},
		{"/healthz?exclude=syncloop", stuck, 200, "ok"},
		{
			"/healthz?verbose&exclude=syncloop&exclude=x&exclude=x&exclude=a", stuck, 200,
			"[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"x\"\nhealthz check passed\n",
		},
		{"/healthz/none", nil, 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			mu.Lock()
			failing = tt.err
			mu.Unlock()
			code, text, header := ask(t, "GET", base+tt.path, "")
			if diff := cmp.Diff(tt.want, text); diff != "" || code != tt.code {
				t.Errorf("code %d, %s", code, diff)
			}
			if got := header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("type %s", got)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "syncloop check failed: healthz\\n[-]syncloop failed: sync Loop took longer than expected") {
		t.Errorf("the reason is not in the log: %s", log.String())
	}
}

// A gathered is a gatherer with one counter in it.
func gathered(name string) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name}))
	return r
}

func full() Config {
	number := uint64(5)
	return Config{
		Pods: func() []*v1.Pod {
			return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Status: v1.PodStatus{Phase: v1.PodRunning}}}
		},
		RunningPods: func(context.Context) ([]*container.Pod, error) {
			return []*container.Pod{{UID: "u", Name: "run", Namespace: "ns", Containers: []*container.Container{{Name: "app", Image: "busybox"}}}}, nil
		},
		Summary: func(context.Context) (*statsapi.Summary, error) {
			return &statsapi.Summary{
				Node: statsapi.NodeStats{NodeName: "node-1", CPU: &statsapi.CPUStats{UsageNanoCores: &number}, Fs: &statsapi.FsStats{}},
				Pods: []statsapi.PodStats{{
					PodRef:     statsapi.PodReference{Name: "web"},
					Containers: []statsapi.ContainerStats{{Name: "app", Rootfs: &statsapi.FsStats{}}}, EphemeralStorage: &statsapi.FsStats{},
				}},
			}, nil
		},
		Metrics: gathered("main"), Probes: gathered("probes"), Resource: gathered("resource"),
		Configz:      map[string]any{"syncFrequency": "1m0s"},
		SetVerbosity: func(level string) error { return map[string]error{"x": errors.New("no number")}[level] },
	}
}

func TestPaths(t *testing.T) {
	base := start(t, full())
	for path, want := range map[string]string{
		"/pods":                          `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web","namespace":"ns"}`,
		"/runningpods/":                  `"metadata":{"name":"run","namespace":"ns","uid":"u"},"spec":{"containers":[{"name":"app","image":"busybox"`,
		"/stats/summary":                 `"ephemeral-storage"`,
		"/configz":                       `{"kubeletconfig":{"syncFrequency":"1m0s"}}`,
		"/metrics":                       "\nmain 0\n",
		"/metrics/probes":                "\nprobes 0\n",
		"/metrics/resource":              "\nresource 0\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=2": "goroutine 1 [",
		"/stats/summary?only_cpu_and_memory=true": `"usageNanoCores":5`,
		"/debug/pprof/cmdline":                    "server.test",
		"/debug/pprof/symbol?0x1":                 "num_symbols: 1",
	} {
		code, text, _ := ask(t, "GET", base+path, "")
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.300s", path, code, text)
		}
	}
	_, text, _ := ask(t, "GET", base+"/stats/summary?only_cpu_and_memory=true", "")
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node.Fs != nil || s.Pods[0].EphemeralStorage != nil || s.Pods[0].Containers[0].Name != "app" || s.Pods[0].Containers[0].Rootfs != nil {
		t.Errorf("more than CPU and memory: %s", text)
	}
}

func TestVerbosity(t *testing.T) {
	base := start(t, full())
	tests := []struct {
		method, body string
		code         int
		want         string
	}{
		{"PUT", "4", 200, "successfully set klog.logging.verbosity to 4"},
		{"PUT", "x", 400, "setting the verbosity: no number\n"},
		{"PUT", strings.Repeat("9", 65), 400, "setting the verbosity: http: request body too large\n"},
		{"POST", "4", 405, "Method Not Allowed\n"},
	}
	for _, tt := range tests {
		code, text, _ := ask(t, tt.method, base+"/debug/flags/v", tt.body)
		if code != tt.code || text != tt.want {
			t.Errorf("%s %.5s: %d %q", tt.method, tt.body, code, text)
		}
	}
}

func TestWhatIsSwitchedOffIsNotThere(t *testing.T) {
	debugging, profiling := full(), full()
	debugging.NoDebugging, profiling.NoProfiling = true, true
	for name, tt := range map[string]struct {
		cfg         Config
		there, gone []string
	}{
		"nothing given": {Config{}, []string{"/healthz"}, []string{"/pods", "/metrics", "/metrics/probes", "/stats/summary", "/configz", "/runningpods/"}},
		"no debugging": {
			debugging,
			[]string{"/healthz", "/pods", "/stats/summary", "/metrics", "/metrics/resource"},
			[]string{"/runningpods/", "/configz", "/debug/pprof/", "/debug/flags/v"},
		},
		"no profiling": {profiling, []string{"/configz", "/runningpods/"}, []string{"/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := start(t, tt.cfg)
			for _, path := range tt.there {
				if code, _, _ := ask(t, "GET", base+path, ""); code != http.StatusOK {
					t.Errorf("%s: %d", path, code)
				}
			}
			for _, path := range tt.gone {
				if code, _, _ := ask(t, "GET", base+path, ""); code != http.StatusNotFound {
					t.Errorf("%s: %d", path, code)
				}
			}
		})
	}
}

func TestErrorsOfTheRuntime(t *testing.T) {
	cfg := full()
	cfg.RunningPods = func(context.Context) ([]*container.Pod, error) { return nil, errors.New("hung") }
	cfg.Summary = func(context.Context) (*statsapi.Summary, error) { return nil, errors.New("hung too") }
	cfg.Configz = map[string]any{"x": make(chan int)}
	base := start(t, cfg)
	for path, want := range map[string]string{
		"/runningpods/": "hung\n", "/stats/summary": "hung too\n", "/configz": "internal server error: json: unsupported type: chan int\n",
	} {
		if code, text, _ := ask(t, "GET", base+path, ""); code != http.StatusInternalServerError || text != want {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
}

func TestRequestsAreCountedByPattern(t *testing.T) {
	cfg := full()
	cfg.Requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"path", "method", "code"})
	base := start(t, cfg)
	for _, path := range []string{"/pods", "/a", "/b", "/healthz/ping"} {
		ask(t, "GET", base+path, "")
	}
	ask(t, "BREW", base+"/pods", "")
	registry := prometheus.NewRegistry()
	registry.MustRegister(cfg.Requests)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		got[strings.Join(labels, " ")] = m.GetCounter().GetValue()
	}
	want := map[string]float64{
		"200 GET /pods": 1, "200 GET /healthz/ping": 1, "404 GET other": 2, "405 other other": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:80", "127.0.0.1"} {
		if _, err := New(Config{Address: address}); err == nil || strings.HasPrefix(err.Error(), "listening") {
			t.Errorf("%s: %v", address, err)
		}
	}
	_, err := New(Config{Address: "0.0.0.0:10250"})
	want := `address "0.0.0.0:10250" is not on loopback: the server has no authentication and serves 127.0.0.1, ::1 and localhost only`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	base := start(t, Config{})
	if _, err := New(Config{Address: strings.TrimPrefix(base, "http://")}); err == nil {
		t.Error("one address was taken twice")
	}
	for host, want := range map[string]int{"localhost:1": 200, "[::1]": 200, "evil.example:80": 403, "10.0.0.1": 403} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", base+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: %d", host, resp.StatusCode)
		}
	}
}

// A request that waits for the runtime sees its context end, and one that does not look is cut off.
func TestEndsWithRequestsUnderWay(t *testing.T) {
	for path, tt := range map[string]struct {
		within time.Duration // a moment for who will not end, a long time for who will
		want   string
	}{
		"/stats/summary": {5 * time.Minute, "500"},
		"/pods":          {time.Millisecond, "cut off"},
	} {
		t.Run(path, func(t *testing.T) {
			entered, release := make(chan struct{}), make(chan struct{})
			s, err := New(Config{
				Log: logr.Discard(),
				Summary: func(ctx context.Context) (*statsapi.Summary, error) {
					entered <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				},
				Pods: func() []*v1.Pod {
					entered <- struct{}{}
					<-release
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			s.endWithin = tt.within
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			answered := make(chan string, 1)
			go func() {
				resp, err := http.Get("http://" + s.Addr().String() + path) //nolint:noctx // the server's end is what ends it
				if err != nil {
					answered <- "cut off"
					return
				}
				defer resp.Body.Close()
				answered <- fmt.Sprint(resp.StatusCode)
			}()
			<-entered
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			close(release)
			if got := <-answered; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestRunReportsABrokenListener(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.listener.Close()
	if err := s.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
