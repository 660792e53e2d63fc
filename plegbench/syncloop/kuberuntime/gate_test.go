package kuberuntime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate wants a place to be waited for, to be free again after a leave or a second, and a leave to count once.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate, 1)
		began := time.Now()
		entered := func() time.Duration { return time.Since(began) }

		leave := g.enter(t.Context())
		go func() {
			time.Sleep(100 * time.Millisecond)
			leave()
		}()
		stuck := g.enter(t.Context())
		if at := entered(); at != 100*time.Millisecond {
			t.Errorf("second entered after %v, want when the first left", at)
		}
		g.enter(t.Context())
		if at := entered(); at != 1100*time.Millisecond {
			t.Errorf("third entered after %v, want a second after the second", at)
		}
		stuck() // late: its place is the third's by now
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		g.enter(ctx)()
		if at := entered(); at != 1110*time.Millisecond {
			t.Errorf("fourth went on after %v, want at the end of its context", at)
		}
		time.Sleep(time.Second)
	})
}
