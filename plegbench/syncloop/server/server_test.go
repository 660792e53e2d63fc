package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// start runs a server until the test ends.
func start(t *testing.T, cfg Config) (base string) {
	t.Helper()
	cfg.Address = "127.0.0.1:0"
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

func get(t *testing.T, url string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
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
	return resp.StatusCode, string(data)
}

func TestHealthz(t *testing.T) {
	var mu sync.Mutex
	var failing error
	var log strings.Builder
	cfg := full()
	cfg.Healthy = func() error { mu.Lock(); defer mu.Unlock(); return failing }
	cfg.Log = funcr.New(func(_, args string) { mu.Lock(); defer mu.Unlock(); log.WriteString(args) }, funcr.Options{Verbosity: 2})
	base := start(t, cfg)
	stuck := errors.New("sync Loop took longer than expected")
	tests := []struct {
		path string
		err  error
		code int
		want string
	}{
		{"/healthz", nil, 200, "ok"},
		{"/healthz/syncloop", nil, 200, "ok"},
		{"/healthz", stuck, 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"/healthz/syncloop", stuck, 500, "internal server error: sync Loop took longer than expected\n"},
		{"/healthz/ping", stuck, 200, "ok"},
		{"/healthz/none", nil, 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			mu.Lock()
			failing = tt.err
			mu.Unlock()
			code, text := get(t, base+tt.path)
			if diff := cmp.Diff(tt.want, text); diff != "" || code != tt.code {
				t.Errorf("code %d, %s", code, diff)
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
		Summary: func(context.Context) (*statsapi.Summary, error) {
			return &statsapi.Summary{
				Node: statsapi.NodeStats{NodeName: "node-1", CPU: &statsapi.CPUStats{UsageNanoCores: &number}, Fs: &statsapi.FsStats{}},
				Pods: []statsapi.PodStats{{
					PodRef:     statsapi.PodReference{Name: "web"},
					Containers: []statsapi.ContainerStats{{Name: "app", Rootfs: &statsapi.FsStats{}}}, EphemeralStorage: &statsapi.FsStats{},
				}},
			}, nil
		},
		Metrics: gathered("main"), Probes: gathered("probes"),
		Configz: map[string]any{"syncFrequency": "1m0s"}, Healthy: func() error { return nil },
		Debugging: true, Profiling: true, Log: logr.Discard(),
	}
}

func TestPaths(t *testing.T) {
	base := start(t, full())
	for path, want := range map[string]string{
		"/pods":                          `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web","namespace":"ns"}`,
		"/stats/summary":                 `"ephemeral-storage"`,
		"/configz":                       `{"kubeletconfig":{"syncFrequency":"1m0s"}}`,
		"/metrics":                       "\nmain 0\n",
		"/metrics/probes":                "\nprobes 0\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=2": "goroutine 1 [",
	} {
		code, text := get(t, base+path)
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.300s", path, code, text)
		}
	}
}

func TestSwitchedOff(t *testing.T) {
	cfg := full()
	cfg.Debugging = false
	base := start(t, cfg)
	for path, want := range map[string]int{
		"/healthz": 200, "/pods": 200, "/stats/summary": 200, "/metrics": 200, "/configz": 404, "/debug/pprof/": 404,
	} {
		if got, _ := get(t, base+path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
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
	base := start(t, full())
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
