// Package server models the kubelet's HTTP server, on loopback and therefore without its authentication: health, pods,
// metrics, stats, configuration and profiles. Left out: logs, exec, attach, port forward, checkpoints and /metrics/cadvisor.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Config is what a Server is made of. A func that is nil takes its path away.
type Config struct {
	Address string  // host and port; empty: 127.0.0.1:0. Only loopback is served.
	Checks  []Check // of /healthz, after ping and log, such as syncloop
	// Pods are the desired ones, from memory.
	Pods func() []*v1.Pod
	// RunningPods asks the runtime, and hangs with it.
	RunningPods func(ctx context.Context) ([]*container.Pod, error)
	Summary     func(ctx context.Context) (*statsapi.Summary, error)
	// Metrics, Probes and Resource are served at /metrics, /metrics/probes and /metrics/resource.
	Metrics, Probes, Resource prometheus.Gatherer
	Configz                   any                      // the KubeletConfiguration
	SetVerbosity              func(level string) error // of the log, by PUT /debug/flags/v
	NoDebugging               bool                     // enableDebuggingHandlers: false takes /runningpods/, /configz and /debug away
	NoProfiling               bool                     // enableProfilingHandler: false takes /debug/pprof and /debug/flags away
	Requests                  *prometheus.CounterVec   // path, method, code; nil: not counted
	Log                       logr.Logger
}

// A Check is one part of /healthz.
type Check struct {
	Name  string
	Check func() error
}

const (
	endWithin     = time.Second // from the end of Run's context to that of Run
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 90 * time.Second
	// writeTimeout leaves room for a profile, and for a runtime that does not answer within its two minutes.
	writeTimeout = 5 * time.Minute
)

// A Server serves one syncLoop.
type Server struct {
	cfg       Config
	listener  net.Listener
	endWithin time.Duration
}

// New listens; Run serves and ends that. An address that is not on loopback is an error, since nobody is asked who they are.
func New(cfg Config) (*Server, error) {
	address := cmp.Or(cfg.Address, "127.0.0.1:0")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("parsing the server's address: %w", err)
	}
	if !loopback(host) {
		return nil, fmt.Errorf("address %q is not on loopback: the server has no authentication and serves 127.0.0.1, ::1 and localhost only", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return &Server{cfg: cfg, listener: listener, endWithin: endWithin}, nil
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, whose error it returns: requests are given a second to end, and their contexts are ended.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: s.counted(s.routes()), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	s.cfg.Log.Info("Starting to listen", "address", s.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.endWithin)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		err = server.Close() // cuts off who has not ended; its own error is of closing sockets
		s.cfg.Log.V(4).Info("Cut off requests at the end", "err", err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return ctx.Err()
}

// counted counts requests by the pattern that served them, so that a caller cannot make up metrics.
func (s *Server) counted(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sameHost(r.Host) {
			http.Error(w, "this server is for its own machine", http.StatusForbidden)
			return
		}
		answer := &answer{ResponseWriter: w, code: http.StatusOK}
		mux.ServeHTTP(answer, r)
		if s.cfg.Requests != nil {
			_, path, _ := strings.Cut(r.Pattern, " ")
			s.cfg.Requests.WithLabelValues(cmp.Or(path, "other"), method(r.Method), fmt.Sprint(answer.code)).Inc()
		}
	})
}

// sameHost keeps a web page out that has its name resolve to this machine.
func sameHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return loopback(host)
}

func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodHead:
		return m
	}
	return "other"
}

// An answer remembers its code.
type answer struct {
	http.ResponseWriter
	code int
}

// WriteHeader notes the code.
func (a *answer) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap lets a profile flush and move its deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func writeJSON(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the reader may be gone
}
