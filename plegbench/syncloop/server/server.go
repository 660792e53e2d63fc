// Package server is the kubelet's HTTP server: health, pods, metrics, the summary of usage, the configuration and
// profiles. It is for everybody on loopback, or has TLS and the kubelet's authentication. Left out are logs, exec,
// attach, port forward, checkpoints, running pods, and cAdvisor's metrics.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Config configures a Server. All fields but Auth are required.
type Config struct {
	Address         string       // host and port
	Auth            *Auth        // nil: only loopback is served, without TLS
	Healthy         func() error // of the syncLoop, for /healthz
	Pods            func() []*v1.Pod
	Summary         func(ctx context.Context) (*statsapi.Summary, error)
	Metrics, Probes prometheus.Gatherer // of /metrics and /metrics/probes
	Resource        prometheus.Gatherer // of /metrics/resource
	Configz         any                 // the KubeletConfiguration, without secrets
	Debugging       bool                // enableDebuggingHandlers: serve /configz and /debug too
	Profiling       bool                // enableProfilingHandler: serve /debug/pprof too
	Log             logr.Logger
}

const (
	headerTimeout = 10 * time.Second
	// writeTimeout leaves room for a profile, and for a runtime that does not answer within its two minutes.
	writeTimeout = 5 * time.Minute
)

// A Server serves one syncLoop.
type Server struct {
	cfg      Config
	listener net.Listener
}

// New listens; Run serves and stops listening. Without Auth an address that is not on loopback is an error.
func New(cfg Config) (*Server, error) {
	host, _, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("parsing the server's address: %w", err)
	}
	if cfg.Auth == nil && !loopback(host) {
		return nil, fmt.Errorf("address %q is not on loopback: without authentication only 127.0.0.1, ::1 and "+
			"localhost are served", cfg.Address)
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return &Server{cfg, listener}, nil
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, whose error it returns. Requests under way are cut off then.
func (s *Server) Run(ctx context.Context) error {
	handler := sameHost(s.routes())
	if s.cfg.Auth != nil {
		handler = s.filter(s.routes())
	}
	server := &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout,
		ErrorLog: log.New(logWriter(s.cfg.Log), "", 0),
	}
	s.cfg.Log.Info("Starting to listen", "address", s.Addr().String())
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	serve := server.Serve
	if s.cfg.Auth != nil {
		server.TLSConfig = s.cfg.Auth.tlsConfig()
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return ctx.Err()
}

// A logWriter logs what net/http has to say, such as that a client speaks no TLS.
type logWriter logr.Logger

func (l logWriter) Write(line []byte) (int, error) {
	logr.Logger(l).Info(strings.TrimSpace(string(line)))
	return len(line), nil
}

// sameHost refuses requests to other host names than loopback's: a web page may have its name resolve to this machine.
func sameHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !loopback(host) {
			http.Error(w, "this server serves only its own machine", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.healthz(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /metrics/resource", promhttp.HandlerFor(s.cfg.Resource, promhttp.HandlerOpts{}))
	mux.Handle("GET /metrics/probes", promhttp.HandlerFor(s.cfg.Probes, promhttp.HandlerOpts{}))
	get := func(path string, document func(ctx context.Context) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			doc, err := document(r.Context())
			var data []byte
			if err == nil {
				data, err = json.Marshal(doc)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(data) // the client may be gone
		})
	}
	get("/pods", func(context.Context) (any, error) {
		list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
		for _, p := range s.cfg.Pods() {
			list.Items = append(list.Items, *masked(p))
		}
		return list, nil
	})
	get("/stats/summary", func(ctx context.Context) (any, error) { return s.cfg.Summary(ctx) })
	if !s.cfg.Debugging {
		return mux
	}
	get("/configz", func(context.Context) (any, error) { return map[string]any{"kubeletconfig": s.cfg.Configz}, nil })
	if s.cfg.Profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// masked returns a pod without the values of environment variables, which may be secrets: not every server
// authenticates its clients.
func masked(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for i := range c.Env {
				if c.Env[i].Value != "" {
					c.Env[i].Value = "<masked>"
				}
			}
		}
	}
	return p
}

// healthz serves the checks of a kubelet together and each by its name (k8s.io/apiserver/pkg/server/healthz upstream).
// The first two never fail. Together they do not show why the last one failed.
func (s *Server) healthz(mux *http.ServeMux) {
	serve := func(path string, check func() error, failed func(error) string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, failed(err), http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprint(w, "ok")
		})
	}
	serve("/healthz/ping", func() error { return nil }, nil)
	serve("/healthz/log", func() error { return nil }, nil)
	serve("/healthz/syncloop", s.cfg.Healthy, func(err error) string {
		return fmt.Sprintf("internal server error: %v", err)
	})
	serve("/healthz", s.cfg.Healthy, func(err error) string {
		s.cfg.Log.V(2).Info(fmt.Sprintf("syncloop check failed: healthz\n[-]syncloop failed: %v\n", err))
		return "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed"
	})
}
