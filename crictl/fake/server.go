package fake

import (
	"cmp"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultMessageLimit is containerd's default limit for gRPC messages in both directions, in bytes (its defaults.go).
const defaultMessageLimit = 16 << 20

// A Server is the embedded runtime of one scenario.
type Server struct {
	scenario Scenario
	grpc     *grpc.Server
	store    *store
	rules    *Rules
	done     chan struct{} // closed by Stop
	stop     sync.Once
	// Watch, if set before Serve, is called when a unary call begins, with its RPC and the id of its object; the function
	// that it returns is called when the call has ended.
	Watch func(rpc, id string) (ended func())
	// Listen, if set before the function Listen, makes the socket.
	Listen ListenFunc
}

// A service answers runtime.v1.RuntimeService and runtime.v1.ImageService; its methods are spread over the files of
// this package by subject.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	*Server
}

// New makes the runtime that a scenario describes. The ages of its pods and the times of its faults count from this
// call. The error names the first mistake in the scenario.
func New(s Scenario) (*Server, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	start := time.Now()
	srv := &Server{scenario: s, done: make(chan struct{})}
	var err error
	if srv.store, err = build(&s, start); err == nil {
		srv.rules, err = NewRules(s.Faults, s.Latency, start, srv.done)
	}
	if err != nil {
		return nil, fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	srv.grpc = grpc.NewServer(
		grpc.MaxSendMsgSize(cmp.Or(s.Limits.Send, defaultMessageLimit)),
		grpc.MaxRecvMsgSize(cmp.Or(s.Limits.Receive, defaultMessageLimit)),
		grpc.UnaryInterceptor(srv.unary),
		grpc.StreamInterceptor(srv.stream),
	)
	runtimeapi.RegisterRuntimeServiceServer(srv.grpc, &service{Server: srv})
	runtimeapi.RegisterImageServiceServer(srv.grpc, &service{Server: srv})
	return srv, nil
}

// Serve answers RPCs on lis until Stop, and closes lis. It ignores the scenario's SocketMode, which is for Listen. It
// returns nil after Stop.
func (s *Server) Serve(lis net.Listener) error {
	if err := s.grpc.Serve(Track(lis)); err != nil {
		select {
		case <-s.done:
			return nil
		default:
			return fmt.Errorf("serving CRI on %s: %w", lis.Addr(), err)
		}
	}
	return nil
}

// Stop closes the listeners and all connections, and releases calls that hang. It may be called more than once.
func (s *Server) Stop() {
	s.stop.Do(func() { close(s.done) })
	s.grpc.Stop()
}
