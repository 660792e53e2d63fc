package fake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
)

// ErrEnded is the error of a call that waits under Rules that are no longer in force.
var ErrEnded = errors.New("the rules have ended")

// Rules choose the fault and the latency of each call. The embedded runtime and the proxy both use them. They are
// safe for use by several goroutines.
type Rules struct {
	start     time.Time
	done      <-chan struct{}
	faults    []*faultRule
	latencies []*latencyRule
}

// A faultRule is a fault with its error read and its calls counted.
type faultRule struct {
	Fault
	number int      // among the faults
	answer rpcError // of Fault.Error

	mu    sync.Mutex
	calls int // that matched within the fault's time window
}

// NewRules checks faults and latencies and makes rules of them. The times of the faults count from start. When done is
// closed, calls that wait get ErrEnded. The error names the first field that is wrong.
func NewRules(faults []Fault, latencies []Latency, start time.Time, done <-chan struct{}) (*Rules, error) {
	if err := errors.Join(validateLatency(latencies), validateFaults(faults)); err != nil {
		return nil, err
	}
	r := &Rules{start: start, done: done}
	for i, f := range faults {
		rule := &faultRule{Fault: f, number: i}
		if f.Error != "" {
			var err error
			if rule.answer, err = parseRPCError(f.Error); err != nil {
				return nil, fmt.Errorf("faults[%d].error: %w", i, err)
			}
		}
		r.faults = append(r.faults, rule)
	}
	for i, l := range latencies {
		r.latencies = append(r.latencies, &latencyRule{Latency: l, number: i})
	}
	return r, nil
}

// NeedNames reports whether any fault asks for more of an object than its id and kind.
func (r *Rules) NeedNames() bool {
	for _, f := range r.faults {
		if f.Object.Namespace != "" || f.Object.Pod != "" || f.Object.Container != "" {
			return true
		}
	}
	return false
}

// A Verdict is the fault and the latency of one call. The zero Verdict has neither.
type Verdict struct {
	rules   *Rules
	fault   *faultRule // nil for none
	latency time.Duration
	perItem time.Duration
}

// Judge chooses the fault and the latency for a call of the RPC with that short name, and counts the call. about
// returns the object of the call; it is called only if a rule depends on it, and then perhaps more than once.
func (r *Rules) Judge(method string, about func() Target) Verdict {
	v := Verdict{rules: r}
	for _, f := range r.faults {
		if matches(f.RPC, method) && f.matches(about) && f.take(time.Since(r.start)) {
			v.fault = f
			break
		}
	}
	for _, l := range r.latencies {
		if matches(l.RPC, method) {
			v.latency, v.perItem = l.next(method, about), time.Duration(l.Latency.PerItem)
			break
		}
	}
	return v
}

// Fault returns the index of the fault among those given to NewRules, and whether there is one.
func (v Verdict) Fault() (number int, ok bool) {
	if v.fault == nil {
		return 0, false
	}
	return v.fault.number, true
}

// Drop reports whether to cut the call's connection instead of answering.
func (v Verdict) Drop() bool { return v.fault != nil && v.fault.Drop }

// Oversize is the size in bytes to which answers are to be padded; 0 for none.
func (v Verdict) Oversize() int {
	if v.fault == nil {
		return 0
	}
	return v.fault.Oversize
}

// Wait applies the fault and the latency before the call is handled: it hangs, waits, or returns the fault's error as
// a gRPC status. It returns nil if the call goes on, and ErrEnded if the rules end while it waits.
func (v Verdict) Wait(ctx context.Context) error {
	if v.fault != nil {
		if err := v.rules.injectFault(ctx, v.fault); err != nil {
			return err
		}
	}
	if v.rules == nil {
		return nil
	}
	return sleep(ctx, v.rules.done, v.latency)
}

// Paced reports whether PerItem has anything to wait for.
func (v Verdict) Paced() bool { return v.perItem != 0 }

// PerItem waits for the latency of n items of a list answer.
func (v Verdict) PerItem(ctx context.Context, n int) error {
	if !v.Paced() || n == 0 {
		return nil
	}
	wait := time.Duration(math.MaxInt64)
	if v.perItem <= wait/time.Duration(n) {
		wait = v.perItem * time.Duration(n)
	}
	return sleep(ctx, v.rules.done, wait)
}

// injectFault does what the fault does before the call is handled. It returns nil if the call goes on after it.
func (r *Rules) injectFault(ctx context.Context, f *faultRule) error {
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
func (f *faultRule) matches(about func() Target) bool {
	return f.Object == (Object{}) || about().is(f.Object)
}

// take counts a matching call at that time since the start, and reports whether the fault applies to it.
func (f *faultRule) take(since time.Duration) bool {
	if !f.inForce(since) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls > f.After && (f.First == 0 || f.calls <= f.After+f.First)
}

// inForce reports whether the fault's time window is open. It does not look at counts.
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

// hang waits until the caller gives up or the rules end.
func hang(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-done:
		return ErrEnded
	}
}

// sleep waits for d, for the caller to give up, or for the rules to end. Only the first returns nil.
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
		return ErrEnded
	}
}

// A latencyRule is a latency with its calls counted.
type latencyRule struct {
	Latency
	number int // among the latencies
	calls  atomic.Uint64
}

// goldenRatio spreads successive multiples evenly over [0, 1) however many there are.
const goldenRatio = 0.6180339887498949

// next returns how long a call of that method waits before it is handled. The jitter of a call about one sandbox or
// container depends on the object, so that the order of concurrent calls does not matter; that of other calls depends
// on their number.
func (l *latencyRule) next(method string, about func() Target) time.Duration {
	wait := time.Duration(l.Base)
	if l.Jitter == 0 {
		return wait
	}
	if id := about().ID; id != "" {
		return wait + time.Duration(number(uint64(l.Jitter)+1, method, id, strconv.Itoa(l.number)))
	}
	_, share := math.Modf(float64(l.calls.Add(1)) * goldenRatio)
	return wait + time.Duration(share*float64(l.Jitter))
}
