package fake

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rules applies a scenario's faults and latencies to every RPC, before its handler runs.
type rules struct {
	store     *store
	start     time.Time
	done      <-chan struct{} // closed when the server stops
	streaming bool
	faults    []*faultRule
	latencies []*latencyRule
}

// A faultRule is a fault with its patterns resolved and its calls counted.
type faultRule struct {
	Fault
	rpcs   map[string]bool
	answer rpcError // of Fault.Error

	mu    sync.Mutex
	calls int // that matched while the fault's time was
}

func newRules(s *Scenario, st *store, start time.Time, done <-chan struct{}) (*rules, error) {
	r := &rules{store: st, start: start, done: done, streaming: s.Streaming}
	for _, f := range s.Faults {
		rule := &faultRule{Fault: f}
		var err error
		if rule.rpcs, err = rpcsMatching(f.RPC); err != nil {
			return nil, err
		}
		if f.Error != "" {
			if rule.answer, err = parseRPCError(f.Error); err != nil {
				return nil, err
			}
		}
		r.faults = append(r.faults, rule)
	}
	for i, l := range s.Latency {
		rpcs, err := rpcsMatching(l.RPC)
		if err != nil {
			return nil, err
		}
		r.latencies = append(r.latencies, &latencyRule{Latency: l, rpcs: rpcs, number: i})
	}
	return r, nil
}

// unary is the gRPC interceptor of the calls with one answer.
func (r *rules) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := r.before(ctx, path.Base(info.FullMethod), req)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// stream is the gRPC interceptor of the streaming calls. A runtime without streaming lists does not know the methods at
// all: gRPC itself answers for it, whatever else hangs.
func (r *rules) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	service, method := path.Split(info.FullMethod)
	if !r.streaming && method != "GetContainerEvents" {
		return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, path.Base(service))
	}
	return handler(srv, &ruledStream{ServerStream: stream, ctx: stream.Context(), rules: r, method: method})
}

// A ruledStream applies the rules once the request has arrived, which is the first that says whom the call is about.
type ruledStream struct {
	grpc.ServerStream
	ctx    context.Context
	rules  *rules
	method string
}

func (s *ruledStream) Context() context.Context { return s.ctx }

func (s *ruledStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	ctx, err := s.rules.before(s.ctx, s.method, m)
	s.ctx = ctx
	return err
}

// before makes a call wait or fail as the scenario wants. The context it returns carries the call's latency on to
// perItem.
func (r *rules) before(ctx context.Context, method string, req any) (context.Context, error) {
	about := sync.OnceValue(func() target { return r.store.target(req) })
	for _, f := range r.faults {
		if !f.rpcs[method] || !f.matches(about) || !f.take(time.Since(r.start)) {
			continue
		}
		if err := r.suffer(ctx, f); err != nil {
			return ctx, err
		}
		break
	}
	for _, l := range r.latencies {
		if l.rpcs[method] {
			ctx = context.WithValue(ctx, latencyKey{}, pace{rule: l, done: r.done})
			return ctx, sleep(ctx, r.done, l.next(method, about))
		}
	}
	return ctx, nil
}

// suffer does what the fault does. It returns nil if the call goes on after it.
func (r *rules) suffer(ctx context.Context, f *faultRule) error {
	switch {
	case f.Hang && !f.Thaw:
		return hang(ctx, r.done)
	case f.Hang:
		left, ends := f.left(time.Since(r.start))
		if !ends {
			return hang(ctx, r.done)
		}
		return sleep(ctx, r.done, left)
	}
	if err := sleep(ctx, r.done, time.Duration(f.Delay)); err != nil {
		return err
	}
	if f.Error != "" {
		return status.Error(f.answer.code, f.answer.message)
	}
	return nil
}

// matches reports whether the call is about the fault's object.
func (f *faultRule) matches(about func() target) bool {
	return f.Object == (Object{}) || about().is(f.Object)
}

// take counts a matching call at that time since the start, and reports whether the fault strikes it.
func (f *faultRule) take(since time.Duration) bool {
	if !f.inForce(since) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls > f.After && (f.First == 0 || f.calls <= f.After+f.First)
}

// inForce reports whether the fault's time is now. It knows nothing of counts.
func (f *Fault) inForce(since time.Duration) bool {
	from, until := time.Duration(f.From), time.Duration(f.Until)
	if since < from || until != 0 && since >= until {
		return false
	}
	return f.Every == 0 || (since-from)%time.Duration(f.Every) < time.Duration(f.For)
}

// left returns how long the fault's present time window lasts from since, and whether it ends at all.
func (f *Fault) left(since time.Duration) (time.Duration, bool) {
	until := time.Duration(f.Until)
	if f.Every == 0 {
		return until - since, until != 0
	}
	end := since + time.Duration(f.For) - (since-time.Duration(f.From))%time.Duration(f.Every)
	if until != 0 {
		end = min(end, until)
	}
	return end - since, true
}

// hang waits until the caller gives up or the server stops.
func hang(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-done:
		return errStopping()
	}
}

// sleep waits for d, for the caller to give up, or for the server to stop. Only the first returns nil.
func sleep(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-done:
		return errStopping()
	}
}
