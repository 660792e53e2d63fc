package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// once runs a probe of a container app at 127.0.0.1 one time. The result is success, failure, or an error.
func once(t *testing.T, h v1.ProbeHandler, change func(*worker)) (outcome, text string) {
	t.Helper()
	p := newPod(func(c *v1.Container) { c.LivenessProbe = &v1.Probe{ProbeHandler: h, TimeoutSeconds: 20} })
	m := New(Config{Liveness: NewResults()})
	w := newWorker(m, key{p.UID, "app", liveness}, p, &p.Spec.Containers[0])
	if change != nil {
		change(w)
	}
	ok, text, err := w.once(t.Context(), &v1.PodStatus{PodIP: "127.0.0.1"})
	switch {
	case err != nil:
		return "error", err.Error()
	case ok:
		return "success", text
	}
	return "failure", text
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

func handler(slow chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/code":
			code, err := strconv.Atoi(r.URL.Query().Get("is"))
			if err != nil {
				code = http.StatusTeapot
			}
			w.WriteHeader(code)
		case "/home":
			http.Redirect(w, r, "/code?is=200", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/slow":
			<-slow
		case "/headers": // a teapot unless they are right
			if r.Host+"|"+r.UserAgent()+"|"+r.Header.Get("X-Own") != r.URL.Query().Get("are") || r.Header.Get("Accept") != "*/*" {
				w.WriteHeader(http.StatusTeapot)
			}
		}
	}
}

func TestHTTP(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1") // probes go past it
	slow := make(chan struct{})
	srv, secure := httptest.NewServer(handler(slow)), httptest.NewTLSServer(handler(slow))
	defer srv.Close()
	defer secure.Close()
	defer close(slow)
	port := portAt(t, srv.URL)
	for _, tt := range []struct {
		name, path string
		port       intstr.IntOrString // the server's if it is zero
		change     func(*worker)
		outcome    string
		text       string // within it
	}{
		{name: "200", path: "/code?is=200", outcome: "success"},
		{name: "304", path: "/code?is=304", outcome: "success"},
		{name: "400", path: "/code?is=400", outcome: "failure", text: "HTTP probe failed with statuscode: 400"},
		{name: "503", path: "/code?is=503", outcome: "failure", text: "HTTP probe failed with statuscode: 503"},
		{name: "redirect", path: "/home", outcome: "success"},
		{name: "round and round", path: "/loop", outcome: "failure", text: "stopped after 10 redirects"},
		{name: "headers", path: "/headers?are=127.0.0.1:" + port.String() + "|kube-probe/1.36|", outcome: "success"},
		{name: "own headers", path: "/headers?are=shop|me|x", outcome: "success", change: func(w *worker) {
			w.spec.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "Host", Value: "shop"}, {Name: "User-Agent", Value: "me"}, {Name: "X-Own", Value: "x"}}
		}},
		{name: "TLS", path: "/code?is=200", port: portAt(t, secure.URL), outcome: "success", change: func(w *worker) {
			w.spec.HTTPGet.Scheme = v1.URISchemeHTTPS
		}},
		{name: "port as a string", path: "/code?is=200", port: intstr.FromString(port.String()), outcome: "success"},
		{name: "port by name", path: "/code?is=200", port: intstr.FromString("web"), outcome: "success"},
		{name: "nobody there", port: refusingPort(t), outcome: "failure", text: "connection refused"},
		{name: "too slow", path: "/slow", change: func(w *worker) { w.spec.TimeoutSeconds = 1 }, outcome: "failure", text: "Client.Timeout exceeded"},
		{name: "path that is none", path: "/100%", outcome: "error", text: "invalid URL escape"},
		{name: "unknown port", port: intstr.FromString("x"), outcome: "error", text: "invalid port number: x"},
		{name: "port out of range", port: intstr.FromInt32(70000), outcome: "error", text: "invalid port number: 70000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.port == (intstr.IntOrString{}) {
				tt.port = port
			}
			outcome, text := once(t, v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: tt.path, Port: tt.port}}, func(w *worker) {
				w.container.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(port.IntValue())}}
				if tt.change != nil {
					tt.change(w)
				}
			})
			if outcome != tt.outcome || !strings.Contains(text, tt.text) {
				t.Errorf("got %s, %q", outcome, text)
			}
		})
	}
}

func TestTCP(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := portAt(t, l.Addr().String())
	for _, tt := range []struct {
		host          string
		port          intstr.IntOrString
		outcome, text string
	}{
		{"", port, "success", ""},
		{"localhost", port, "success", ""},
		{"", refusingPort(t), "failure", "connection refused"},
		{"", intstr.FromString("x"), "error", "invalid port number"},
	} {
		outcome, text := once(t, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: tt.host, Port: tt.port}}, nil)
		if outcome != tt.outcome || !strings.Contains(text, tt.text) {
			t.Errorf("%q %v: %s, %q", tt.host, &tt.port, outcome, text)
		}
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
	if got, text := once(t, h, ask); got != "success" || asked != "127.0.0.1:50051 orders 20s" {
		t.Errorf("got %s, %q; asked %s", got, text, asked)
	}
	answer = errors.New("service unhealthy")
	if got, text := once(t, h, ask); got != "failure" || text != "service unhealthy" {
		t.Errorf("got %s, %q", got, text)
	}
}

func TestExec(t *testing.T) {
	for _, tt := range []struct {
		name   string
		output string
		err    error
		want   string
		text   string
	}{
		{name: "good", output: "fine", want: "success"},
		{name: "bad", output: "ill", err: exit(3), want: "failure", text: "ill"},
		{name: "wrapped", output: "ill", err: fmt.Errorf("running: %w", exit(3)), want: "failure", text: "ill"},
		{name: "much", output: strings.Repeat("x", 2*mostOutput), err: exit(3), want: "failure", text: strings.Repeat("x", mostOutput)},
		{name: "too slow", err: lateError(t), want: "failure", text: `command timed out: "echo hi" timed out after 20s`},
		{name: "broken", err: errBroken, want: "error", text: errBroken.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, text := once(t, v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"echo", "hi"}}}, func(w *worker) {
				w.id = container.ID{Type: "containerd", ID: "a"}
				w.m.Exec = func(_ context.Context, id container.ID, command []string, timeout time.Duration) ([]byte, error) {
					if got := fmt.Sprint(id, command, timeout); got != "containerd://a [echo hi] 20s" {
						t.Errorf("ran %s", got)
					}
					return []byte(tt.output), tt.err
				}
			})
			if got != tt.want || text != tt.text {
				t.Errorf("got %s, %q", got, text)
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

func FuzzHTTPRequest(f *testing.F) {
	for _, path := range []string{"", "/", "healthz?x=1", "http://elsewhere/x", "//elsewhere/x", "/a%zz", "A:00", "\x00"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		req, err := request(t.Context(), &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(80)}, &v1.Container{}, "192.0.2.1")
		// A path that looks like a whole URL may lose the host, which is a failure; it cannot choose another.
		if err == nil && req.URL.Host != "" && req.URL.Host != "192.0.2.1:80" {
			t.Errorf("%q goes to %s", path, req.URL.Host)
		}
	})
}
