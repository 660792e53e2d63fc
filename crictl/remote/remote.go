// Package remote is the CRI client of a kubelet: the calls with the kubelet's own deadlines, message limit, checks of
// the answers, metrics and log lines. kdiag's probes use package crictl instead, whose calls are measured and bounded
// for a person who waits.
package remote

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
)

// The kubelet's constants (k8s.io/cri-client and pkg/kubelet/apis/config/v1beta1 upstream).
const (
	// DefaultTimeout is runtimeRequestTimeout.
	DefaultTimeout = 2 * time.Minute
	// messageLimit is the largest answer that a kubelet takes, in bytes.
	messageLimit = 16 << 20

	// The pause between attempts to connect grows to reconnectMax, from a thirtieth of it.
	reconnectMax   = 3 * time.Second
	reconnectSteps = 30
	connectAtLeast = 5 * time.Second
	// quietFor is how long an error of a status call is not logged again for the same object and text.
	quietFor = time.Minute
	// mostQuiet bounds how many are remembered.
	mostQuiet = 1000
)

// Options tune a Service. The zero value behaves as a kubelet with its defaults.
type Options struct {
	Timeout   time.Duration // runtimeRequestTimeout; 0 means DefaultTimeout
	Reconnect time.Duration // longest pause between attempts to connect; 0 means a kubelet's 3 s
	Log       logr.Logger
	// Observe is called when a call has ended, with the kubelet's name for the operation, such as list_podsandbox.
	Observe func(operation string, took time.Duration, err error)
	// Trace is called before each call, and the function that it returns after it. Both may be nil.
	Trace func(req any) (ended func(resp any, err error))
	// Dialer replaces the connection to the unix socket, for a runtime in this process. It is given the socket's path.
	Dialer crictl.Dialer
}

// A Service calls one runtime. It is safe for use by several goroutines.
type Service struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	timeout time.Duration
	log     logr.Logger
	observe func(operation string, took time.Duration, err error)
	trace   func(req any) (ended func(resp any, err error))

	mu     sync.Mutex
	logged map[string]loggedError // by object
}

// A loggedError is an error of a status call that was logged.
type loggedError struct {
	text string
	at   time.Time
}

// Dial prepares a Service for the socket at endpoint. It makes no connection: that comes with the first call, and again
// when it breaks.
func Dial(endpoint string, opts Options) (*Service, error) {
	s := &Service{
		timeout: cmp.Or(opts.Timeout, DefaultTimeout), log: opts.Log, observe: opts.Observe, trace: opts.Trace,
		logged: map[string]loggedError{},
	}
	if s.observe == nil {
		s.observe = func(string, time.Duration, error) {}
	}
	longest := cmp.Or(opts.Reconnect, reconnectMax)
	retry := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: longest / reconnectSteps, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longest,
		},
		MinConnectTimeout: connectAtLeast,
	}
	var err error
	s.conn, err = crictl.NewConn(endpoint, opts.Dialer, grpc.WithConnectParams(retry),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageLimit)))
	if err != nil {
		return nil, err
	}
	s.runtime, s.images = runtimeapi.NewRuntimeServiceClient(s.conn), runtimeapi.NewImageServiceClient(s.conn)
	return s, nil
}

// Close ends the connection.
func (s *Service) Close() error { return s.conn.Close() }

// forever stands for a call without a deadline.
const forever time.Duration = -1

// An rpc is a method of the generated clients.
type rpc[Q, R any] func(ctx context.Context, req *Q, opts ...grpc.CallOption) (*R, error)

// call makes a call within its deadline, checks the answer, and observes the whole under the kubelet's name of the
// operation. A nil check accepts every answer.
func call[Q, R any](
	ctx context.Context, s *Service, operation string, timeout time.Duration, do rpc[Q, R], req *Q,
	check func(*R) error,
) (resp *R, err error) {
	if timeout != forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if s.trace != nil {
		if ended := s.trace(req); ended != nil {
			defer func() { ended(resp, err) }()
		}
	}
	start := time.Now()
	defer func() { s.observe(operation, time.Since(start), err) }()
	if resp, err = do(ctx, req); err == nil && check != nil {
		err = check(resp)
	}
	return resp, err
}

// failed logs a call's error as the kubelet does: "<RPC> from runtime service failed".
func (s *Service) failed(err error, what string, kv ...any) error {
	if err != nil {
		s.log.WithCallDepth(1).Error(err, what+" failed", kv...)
	}
	return err
}

// failedQuietly logs an error unless the same one was logged for the same object within the last minute, so that a
// hanging object does not flood the log.
func (s *Service) failedQuietly(err error, id, what string, kv ...any) error {
	if err != nil && s.shouldLog(what+id, err.Error()) {
		s.log.WithCallDepth(1).Error(err, what+" failed", kv...)
	}
	return err
}

func (s *Service) shouldLog(key, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if old, ok := s.logged[key]; ok && old.text == text && now.Sub(old.at) < quietFor {
		return false
	}
	if len(s.logged) >= mostQuiet {
		clear(s.logged)
	}
	s.logged[key] = loggedError{text: text, at: now}
	return true
}

// IsNotFound reports whether the runtime does not know the object, which is not a failure of a removal.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsDeadlineExceeded reports whether a call missed its deadline, or a command that the runtime ran missed its own.
func IsDeadlineExceeded(err error) bool { return status.Code(err) == codes.DeadlineExceeded }
