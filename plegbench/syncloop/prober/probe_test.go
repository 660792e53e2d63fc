package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// once runs a probe of a container app at 127.0.0.1 one time.
func once(t *testing.T, h v1.ProbeHandler, change func(*worker)) (outcome, string, error) {
	t.Helper()
	p := newPod(func(c *v1.Container) { c.LivenessProbe = &v1.Probe{ProbeHandler: h, TimeoutSeconds: 20} })
	m := New(Config{Liveness: NewResults()})
	w := newWorker(m, key{p.UID, "app", liveness}, p, &p.Spec.Containers[0])
	if change != nil {
		change(w)
	}
	return w.once(t.Context(), &v1.PodStatus{PodIP: "127.0.0.1"})
}

func portAt(t *testing.T, addr string) intstr.IntOrString {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(addr, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return intstr.Parse(port)
}

// refusingPort is a port of 127.0.0.1 that nobody listens at, nor will: it is held until the end of the test.
func refusingPort(t *testing.T) intstr.IntOrString {
	t.Helper()
	held, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(held) })
	if err := unix.Bind(held, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(held)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt32(int32(name.(*unix.SockaddrInet4).Port))
}

func handler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/code":
		code, err := strconv.Atoi(r.URL.Query().Get("is"))
		if err != nil {
			code = http.StatusTeapot
		}
		w.WriteHeader(code)
	case "/home":
		http.Redirect(w, r, "/code?is=200", http.StatusFound)
	case "/away":
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/long":
		fmt.Fprint(w, strings.Repeat("x", 3*mostOutput))
	case "/100%":
		fmt.Fprint(w, "odd")
	case "/headers":
		fmt.Fprintf(w, "%s|%s|%s|%s", r.Host, r.UserAgent(), r.Header["Accept"], r.Header["Accept-Encoding"])
	}
}

func TestHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(handler))
	defer srv.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(handler))
	secure.TLS.MinVersion = tls.VersionTLS12
	defer secure.Close()
	port := portAt(t, srv.URL)
	for _, tt := range []struct {
		name string
		get  v1.HTTPGetAction
		want outcome
		text string
	}{
		{name: "200", get: v1.HTTPGetAction{Path: "/code?is=200"}, want: success},
		{name: "201", get: v1.HTTPGetAction{Path: "/code?is=201"}, want: success},
		{name: "304", get: v1.HTTPGetAction{Path: "/code?is=304"}, want: warning, text: "Probe terminated redirects, Response body: "},
		{name: "400", get: v1.HTTPGetAction{Path: "/code?is=400"}, want: failure, text: "HTTP probe failed with statuscode: 400"},
		{name: "503", get: v1.HTTPGetAction{Path: "/code?is=503"}, want: failure, text: "HTTP probe failed with statuscode: 503"},
		{name: "redirect to itself", get: v1.HTTPGetAction{Path: "/home"}, want: success},
		{
			name: "redirect away", get: v1.HTTPGetAction{Path: "/away"}, want: warning,
			text: "Probe terminated redirects, Response body: <a href=\"http://192.0.2.1/\">Found</a>.\n\n",
		},
		{name: "long", get: v1.HTTPGetAction{Path: "/long"}, want: success, text: strings.Repeat("x", mostOutput)},
		{name: "headers", get: v1.HTTPGetAction{Path: "/headers"}, want: success, text: "127.0.0.1:" + port.String() + "|kube-probe/1.36|[*/*]|[]"},
		{name: "own headers", get: v1.HTTPGetAction{Path: "headers", HTTPHeaders: []v1.HTTPHeader{
			{Name: "Host", Value: "shop"}, {Name: "User-Agent", Value: "me"}, {Name: "Accept", Value: ""},
		}}, want: success, text: "shop|me|[]|[]"},
		{name: "TLS", get: v1.HTTPGetAction{Path: "/code?is=200", Scheme: v1.URISchemeHTTPS, Port: portAt(t, secure.URL)}, want: success},
		{name: "port as a string", get: v1.HTTPGetAction{Path: "/code?is=200", Port: intstr.FromString(port.String())}, want: success},
		{name: "port by name", get: v1.HTTPGetAction{Path: "/code?is=200", Port: intstr.FromString("web")}, want: success},
		{name: "path that is none", get: v1.HTTPGetAction{Path: "/100%"}, want: success, text: "odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.get.Port == (intstr.IntOrString{}) {
				tt.get.Port = port
			}
			got, text, err := once(t, v1.ProbeHandler{HTTPGet: &tt.get}, func(w *worker) {
				w.container.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(port.IntValue())}}
			})
			if err != nil || got != tt.want || text != tt.text {
				t.Errorf("got %s, %q, %v", got, text, err)
			}
		})
	}
}

func TestHTTPTrouble(t *testing.T) {
	slow := make(chan struct{})
	var rounds atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-slow
			return
		}
		rounds.Add(1)
		handler(w, r)
	}))
	defer srv.Close()
	defer close(slow)
	defer func() {
		if got := rounds.Load(); got != 10 {
			t.Errorf("followed a loop %d times", got)
		}
	}()
	for _, tt := range []struct {
		name, path string
		port       intstr.IntOrString
		timeout    int32
		want       outcome
		text       string // within it, or within the error
	}{
		{name: "nobody there", port: refusingPort(t), want: failure, text: "connection refused"},
		{name: "too slow", path: "/slow", port: portAt(t, srv.URL), timeout: 1, want: failure, text: "Client.Timeout exceeded"},
		{name: "round and round", path: "/loop", port: portAt(t, srv.URL), want: failure, text: "stopped after 10 redirects"},
		{name: "unknown port", port: intstr.FromString("x"), want: unknown, text: "invalid port number: x"},
		{name: "port out of range", port: intstr.FromInt32(70000), want: unknown, text: "invalid port number: 70000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, text, err := once(t, v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: tt.path, Port: tt.port}}, func(w *worker) {
				if tt.timeout > 0 {
					w.spec.TimeoutSeconds = tt.timeout
				}
			})
			if err != nil {
				text = err.Error()
			}
			if got != tt.want || (err != nil) != (tt.want == unknown) || !strings.Contains(text, tt.text) {
				t.Errorf("got %s, %q, %v", got, text, err)
			}
		})
	}
}

// The kubelet's node may have a proxy in its environment; probes go past it.
func TestHTTPWithoutProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	srv := httptest.NewServer(http.HandlerFunc(handler))
	defer srv.Close()
	if got, text, err := once(t, v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/code?is=200", Port: portAt(t, srv.URL)}}, nil); err != nil || got != success {
		t.Errorf("got %s, %q, %v", got, text, err)
	}
}

func TestTCP(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portAt(t, l.Addr().String())
	probe := func(host string, port intstr.IntOrString) (outcome, string, error) {
		return once(t, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: port}}, nil)
	}
	for _, host := range []string{"", "localhost"} {
		if got, text, err := probe(host, port); err != nil || got != success {
			t.Errorf("host %q: %s, %q, %v", host, got, text, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, text, err := probe("", refusingPort(t)); err != nil || got != failure || !strings.Contains(text, "connection refused") {
		t.Errorf("got %s, %q, %v", got, text, err)
	}
	if got, _, err := probe("", intstr.FromString("x")); err == nil || got != unknown {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestGRPC(t *testing.T) {
	var asked string
	var answer error
	h := v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 50051, Service: new("orders")}}
	ask := func(w *worker) {
		w.m.GRPC = func(_ context.Context, addr, service string, timeout time.Duration) error {
			asked = fmt.Sprint(addr, " ", service, " ", timeout)
			return answer
		}
	}
	if got, text, err := once(t, h, ask); err != nil || got != success || text != "service healthy" || asked != "127.0.0.1:50051 orders 20s" {
		t.Errorf("got %s, %q, %v; asked %s", got, text, err, asked)
	}
	answer = errors.New("service unhealthy")
	if got, text, err := once(t, h, ask); err != nil || got != failure || text != "service unhealthy" {
		t.Errorf("got %s, %q, %v", got, text, err)
	}
}

func TestExec(t *testing.T) {
	for _, tt := range []struct {
		name   string
		output string
		err    error
		want   outcome
		text   string
	}{
		{name: "good", output: "fine", want: success, text: "fine"},
		{name: "bad", output: "ill", err: exit(3), want: failure, text: "ill"},
		{name: "wrapped", output: "ill", err: fmt.Errorf("running: %w", exit(3)), want: failure, text: "ill"},
		{name: "much", output: strings.Repeat("x", 2*mostOutput), want: success, text: strings.Repeat("x", mostOutput)},
		{name: "too slow", err: lateError(t), want: failure, text: `command timed out: "echo hi" timed out after 20s`},
		{name: "broken", err: errBroken, want: unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, text, err := once(t, v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"echo", "$(WORD)"}}}, func(w *worker) {
				w.container.Env = []v1.EnvVar{{Name: "WORD", Value: "hi"}}
				w.id = container.ID{Type: "containerd", ID: "a"}
				w.m.Exec = func(_ context.Context, id container.ID, command []string, timeout time.Duration) ([]byte, error) {
					if got := fmt.Sprint(id, command, timeout); got != "containerd://a [echo hi] 20s" {
						t.Errorf("ran %s", got)
					}
					return []byte(tt.output), tt.err
				}
			})
			if got != tt.want || text != tt.text || (err != nil) != (tt.want == unknown) {
				t.Errorf("got %s, %q, %v", got, text, err)
			}
		})
	}
}

// A probe that the syncLoop's end cuts short is nobody's failure.
func TestEndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, live("a", true))
		s.Exec = func(ctx context.Context, _ container.ID, _ []string, _ time.Duration) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s.AddPod(newPod(func(c *v1.Container) { c.LivenessProbe = execProbe(nil) }))
		s.pass(period)
		s.cancel()
		synctest.Wait()
		if got := s.events(); got != nil {
			t.Errorf("events %v", got)
		}
	})
}

func TestWarning(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(handler))
	defer srv.Close()
	p := newPod(func(c *v1.Container) {
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/away", Port: portAt(t, srv.URL)}}}
	})
	s := newStage(t, nil)
	w := newWorker(s.Manager, key{p.UID, "app", readiness}, p, &p.Spec.Containers[0])
	got, err := w.try(t.Context(), &v1.PodStatus{PodIP: "127.0.0.1"})
	if events := s.events(); err != nil || got != Success || len(events) != 1 || !strings.HasPrefix(events[0], "Warning ProbeWarning Readiness probe warning: Probe terminated") {
		t.Errorf("got %s, %v, %v", got, err, events)
	}
}

// lateError is the CRI client's error for a call that took too long.
func lateError(t *testing.T) error {
	t.Helper()
	service, err := remote.Dial("unix:///nobody", remote.Options{
		Timeout: time.Millisecond,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.ExecSync(t.Context(), "a", []string{"true"}, time.Millisecond)
	if closeErr := service.Close(); err == nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return err
}
