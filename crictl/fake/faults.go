package fake

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrEnded is the error of a call that waits under Rules that are no longer in force. A client of the embedded runtime
// gets it when the server stops.
var ErrEnded = status.Error(codes.Unavailable, "the embedded runtime is stopping")

// Rules choose the fault and the latency of each call. The embedded runtime and the proxy both use them. They are
// safe for use by several goroutines.
type Rules struct {
	start     time.Time
	done      <-chan struct{}
	faults    []*faultRule
	latencies []Latency
}

// A faultRule is a fault with its calls counted.
type faultRule struct {
	Fault
	mu    sync.Mutex
	calls int // that matched within the fault's time window
}

// NewRules checks faults and latencies and makes rules of them. The times of the faults count from start. When done is
// closed, calls that wait get ErrEnded. The error names the first field that is wrong.
func NewRules(faults []Fault, latencies []Latency, start time.Time, done <-chan struct{}) (*Rules, error) {
	if err := cmp.Or(validateLatency(latencies), validateFaults(faults)); err != nil {
		return nil, err
	}
	r := &Rules{start: start, done: done, latencies: latencies}
	for _, f := range faults {
		r.faults = append(r.faults, &faultRule{Fault: f})
	}
	return r, nil
}

// NeedNames reports whether any fault asks for more of an object than its id and kind.
func (r *Rules) NeedNames() bool {
	return slices.ContainsFunc(r.faults, func(f *faultRule) bool {
		return f.Object.Namespace != "" || f.Object.Pod != "" || f.Object.Container != ""
	})
}

// A Verdict is the fault and the latency of one call.
type Verdict struct {
	Number  int           // of the fault among those given to NewRules; -1 for none
	Fault   Fault         // zero for none
	PerItem time.Duration // latency of each item of a list answer

	latency time.Duration
	rules   *Rules
}

// Judge chooses the fault and the latency for a call of the RPC with that short name, and counts the call. about
// returns the object of the call; it is called only if a rule depends on it, and then perhaps more than once.
func (r *Rules) Judge(method string, about func() Target) Verdict {
	v := Verdict{Number: -1, rules: r}
	for i, f := range r.faults {
		if matches(f.RPC, method) && (f.Object == Object{} || about().is(f.Object)) && f.take(time.Since(r.start)) {
			v.Number, v.Fault = i, f.Fault
			break
		}
	}
	for _, l := range r.latencies {
		if matches(l.RPC, method) {
			v.latency = time.Duration(l.Base) + time.Duration(rand.Float64()*float64(l.Jitter))
			v.PerItem = time.Duration(l.PerItem)
			break
		}
	}
	return v
}

// Wait applies the fault and the latency before the call is handled: it hangs, waits, or returns the fault's error as
// a gRPC status. It returns nil if the call goes on, and ErrEnded if the rules end while it waits.
func (v *Verdict) Wait(ctx context.Context) error {
	wait := time.Duration(v.Fault.Delay)
	if v.Fault.Hang {
		wait = math.MaxInt64
		if v.Fault.Thaw {
			wait = v.Fault.left(time.Since(v.rules.start))
		}
	}
	if err := v.sleep(ctx, wait); err != nil {
		return err
	}
	if v.Fault.Error != "" {
		failed, _ := parseRPCError(v.Fault.Error) // NewRules has checked it
		return failed.Err()
	}
	return v.sleep(ctx, v.latency)
}

// WaitItems waits for the latency of n items of a list answer.
func (v *Verdict) WaitItems(ctx context.Context, n int) error {
	return v.sleep(ctx, v.PerItem*time.Duration(n))
}

// sleep waits for d, for the caller to give up, or for the rules to end. Only the first returns nil.
func (v *Verdict) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-v.rules.done:
		return ErrEnded
	}
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

// left returns how long the fault's present time window lasts from since.
func (f *Fault) left(since time.Duration) time.Duration {
	end := time.Duration(math.MaxInt64)
	if f.Until != 0 {
		end = time.Duration(f.Until)
	}
	if f.Every != 0 {
		end = min(end, since+time.Duration(f.For)-(since-time.Duration(f.From))%time.Duration(f.Every))
	}
	return end - since
}
