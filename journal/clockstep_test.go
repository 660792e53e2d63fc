package journal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A hang of 60 s whose wall clock is set in the middle lasts 60 s, whichever way the clock went.
func TestClockStepDoesNotStretch(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, 15 * time.Minute, -time.Hour} {
		var b strings.Builder
		clock := time.Date(0, 11, 20, 12, 0, 0, 0, time.UTC)
		for n := range 13 {
			if n == 6 {
				clock = clock.Add(step)
			}
			age := 190*time.Second + time.Duration(n)*5*time.Second
			fmt.Fprintf(&b, "E%s 1234 kubelet.go:2661] \"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg was last seen active %s ago; threshold is 3m0s\"\n",
				clock.Format("0102 15:04:05.000000"), age)
			clock = clock.Add(5 * time.Second)
		}
		r, err := Read(context.Background(), Options{
			Inputs: []Input{{Kind: Stream, Reader: strings.NewReader(b.String())}}, Now: now, Local: time.UTC,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Episodes) != 1 || r.Episodes[0].Seconds != 60 || r.Episodes[0].End.Before(*r.Episodes[0].Start) {
			t.Errorf("step %v: %+v, want one episode of 60 s", step, r.Episodes)
		}
	}
}
