package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// start runs a server until the test ends, and returns its address.
func start(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Address = "127.0.0.1:0"
	s, err := New(cfg)
	testkit.Must(t, err)
	looptest.Run(t, s.Run)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.Addr().String()
}

// do sends a request, and returns the code and the text of the answer.
func do(t *testing.T, client *http.Client, method, url string, edit func(*http.Request)) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	testkit.Must(t, err)
	edit(req)
	resp, err := client.Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp.StatusCode, string(data)
}

// get asks a server without authentication under a host's name, if one is given.
func get(t *testing.T, url, host string) (code int, text string) {
	t.Helper()
	edit := func(r *http.Request) { r.Host = cmp.Or(host, r.Host) }
	return do(t, http.DefaultClient, http.MethodGet, "http://"+url, edit)
}

// A gathered is a gatherer with one counter in it.
func gathered(name string) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name}))
	return r
}

func full() Config {
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}}
	env := []v1.EnvVar{{Name: "TOKEN", Value: "secret"}}
	web.Spec.Containers = []v1.Container{{Name: "app", Env: env}}
	pod := statsapi.PodStats{PodRef: statsapi.PodReference{Name: "web"}, EphemeralStorage: &statsapi.FsStats{}}
	return Config{
		Pods: func() []*v1.Pod { return []*v1.Pod{web} },
		Summary: func(context.Context) (*statsapi.Summary, error) {
			return &statsapi.Summary{Pods: []statsapi.PodStats{pod}}, nil
		},
		Metrics: gathered("main"), Probes: gathered("probes"), Resource: gathered("resource"),
		Healthy:   func() error { return nil },
		Configz:   map[string]any{"syncFrequency": "1m0s"},
		Debugging: true, Profiling: true, Log: logr.Discard(),
	}
}

// TestPaths asks a server, and one without debugging whose syncLoop is sick.
func TestPaths(t *testing.T) {
	const reason = "sync Loop took longer than expected"
	var log looptest.Log
	limited := full()
	limited.Debugging, limited.Log = false, log.Logger(2)
	limited.Healthy = func() error { return errors.New(reason) }
	base, limitedBase := start(t, full()), start(t, limited)
	for path, want := range map[string]string{
		"/pods": `{"kind":"PodList","apiVersion":"v1","metadata":{},` +
			`"items":[{"metadata":{"name":"web","namespace":"ns"},` +
			`"spec":{"containers":[{"name":"app","env":[{"name":"TOKEN","value":"\u003cmasked\u003e"}]`,
		"/stats/summary":                 `"ephemeral-storage"`,
		"/configz":                       `{"kubeletconfig":{"syncFrequency":"1m0s"}}`,
		"/metrics":                       "\nmain 0\n",
		"/metrics/probes":                "\nprobes 0\n",
		"/metrics/resource":              "\nresource 0\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=2": "goroutine 1 [",
		"/healthz":                       "ok",
		"/healthz/syncloop":              "ok",
	} {
		code, text := get(t, base+path, "")
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.300s", path, code, text)
		}
		debugging := path == "/configz" || strings.HasPrefix(path, "/debug")
		code, _ = get(t, limitedBase+path, "")
		testkit.Equal(t, path+" is not there without debugging", debugging, code == http.StatusNotFound)
	}
	for path, want := range map[string]string{
		"/healthz":          "500 [+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n",
		"/healthz/syncloop": "500 internal server error: " + reason + "\n",
		"/healthz/ping":     "200 ok",
		"/healthz/none":     "404 404 page not found\n",
	} {
		code, text := get(t, limitedBase+path, "")
		testkit.Equal(t, path, want, fmt.Sprint(code, " ", text))
	}
	log.Has(t, "syncloop check failed: healthz\\n[-]syncloop failed: "+reason)
}

func TestLoopbackOnly(t *testing.T) {
	base := start(t, full())
	for address, want := range map[string]string{
		"0.0.0.0:10250": `address "0.0.0.0:10250" is not on loopback: without authentication only 127.0.0.1, ::1 and ` +
			"localhost are served",
		":0": "not on loopback", "[::]:0": "not on loopback", "example.com:80": "not on loopback",
		"127.0.0.1": "parsing", base: "listening",
	} {
		_, err := New(Config{Address: address})
		testkit.Contains(t, address, want, testkit.Text(err))
	}
	for host, want := range map[string]int{"localhost:1": 200, "[::1]": 200, "evil.example:80": 403, "10.0.0.1": 403} {
		code, _ := get(t, base+"/healthz", host)
		testkit.Equal(t, host, want, code)
	}
}
