// Package fault is a proxy on a unix socket in front of a real CRI runtime. It injects faults into calls as data
// describes.
//
// A call without a fault passes unchanged: every RPC of both services, streams and unknown newer ones; the bytes of
// each message, metadata, status codes with their details, deadlines and cancellation. A runtime that is down shows
// as Unavailable. The faults are the embedded runtime's (fake.Fault, fake.Latency), applied by the same rules:
// calls hang, are delayed, fail, lose their connection or get an answer that is too large, by RPC, by object and over
// time.
//
// The runtime is asked for the names of the objects where a fault selects by name; some 10,000 are remembered.
// The addresses of streaming servers (exec, attach, port-forward) in answers are not rewritten, so those connections
// go around the proxy. The caller's user agent is replaced.
package fault

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// Config is the configuration of a Proxy.
type Config struct {
	Backend string          // the runtime's socket: a path or unix:// and a path
	Listen  string          // the proxy's own, likewise
	Dialer  crictl.Dialer   // of a runtime in this process; nil: none
	Socket  fake.ListenFunc // makes the proxy's socket; nil: the kernel
	Faults  []fake.Fault
	Latency []fake.Latency
	Log     func(Injection) // called for each fault that is injected; nil for none. It must not block
}

// A Proxy is one socket in front of another. Its methods may be called by several goroutines.
type Proxy struct {
	log        func(Injection)  // nil for none
	conn       *grpc.ClientConn // to the runtime
	server     *grpc.Server
	objects    objectCache
	stats      stats
	rules      atomic.Pointer[ruleSet]
	conditions atomic.Pointer[[]fake.Condition]

	mu      sync.Mutex
	path    string
	listen  fake.ListenFunc
	socket  *fake.Socket
	lis     net.Listener // the socket with its connections
	ended   bool
	down    bool
	serving sync.WaitGroup
}

// A ruleSet is in force until SetFaults replaces it.
type ruleSet struct {
	*fake.Rules
	done chan struct{}
}

// New makes a proxy and its socket, mode 0600, and serves there until Run ends, which must follow. A stale socket file
// is replaced if nobody listens on it; any other file is left alone and an error. The times of faults count from now.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{log: cfg.Log, path: strings.TrimPrefix(cfg.Listen, "unix://"), listen: cfg.Socket}
	if err := p.SetFaults(cfg.Faults, cfg.Latency); err != nil {
		return nil, err
	}
	var err error
	p.conn, err = crictl.NewConn(cfg.Backend, cfg.Dialer,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	p.objects.runtime = runtimeapi.NewRuntimeServiceClient(p.conn)
	p.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(p.handle), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
	)
	if err := p.serve(); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	return p, nil
}

// Run waits until ctx ends; then all calls end, and the socket is removed. It is to be called once.
func (p *Proxy) Run(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.ended = true
	p.socket.Unlink()
	p.mu.Unlock()
	p.server.Stop()
	p.serving.Wait()
	return p.conn.Close()
}

// serve makes the socket and serves there until it is closed.
func (p *Proxy) serve() error {
	socket, err := p.listen.Bind(context.Background(), p.path)
	if err != nil {
		return err
	}
	lis := fake.Track(socket)
	p.socket, p.lis = socket, lis
	p.serving.Go(func() { _ = p.server.Serve(lis) })
	return nil
}

// SetFaults replaces all faults and latencies. Their times count from now; calls that wait under the old ones are
// judged by the new. The error names the first field that is wrong, and then nothing has changed.
func (p *Proxy) SetFaults(faults []fake.Fault, latency []fake.Latency) error {
	done := make(chan struct{})
	rules, err := fake.NewRules(faults, latency, time.Now(), done)
	if err != nil {
		return err
	}
	if old := p.rules.Swap(&ruleSet{Rules: rules, done: done}); old != nil {
		close(old.done)
	}
	return nil
}

// SetConditions lays conditions over those that the runtime's Status answers, by type, until it is called with none.
func (p *Proxy) SetConditions(conditions []fake.Condition) {
	p.conditions.Store(&conditions)
}

// SetDown simulates a daemon that has died: the socket's file stays, nothing listens, and all connections are cut
// with their calls. SetDown(false) makes the socket again; it is an error if another has taken its place.
func (p *Proxy) SetDown(down bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down == down || p.ended {
		return nil
	}
	p.down = down
	if !down {
		return p.serve()
	}
	return p.lis.Close()
}
