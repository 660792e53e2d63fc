package fake

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ask makes one call with a deadline of a minute, and returns its code and how long it took by the bubble's clock,
// unless that is no time.
func ask(t *testing.T, call func(context.Context) error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	outcome := codeOf(call(ctx)).String()
	if took := time.Since(start); took > 0 {
		outcome += " " + took.String()
	}
	return outcome
}

func (c *client) version(ctx context.Context) error {
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

func TestFaultTimes(t *testing.T) {
	const s = Duration(time.Second)
	for _, test := range []struct {
		name  string
		fault Fault
		want  string // when Version is called after New, and the outcome of that
	}{
		{"hang", Fault{Hang: true}, "0s DeadlineExceeded 1m0s, 1h DeadlineExceeded 1m0s"},
		{"delay", Fault{Delay: 5 * s}, "0s OK 5s"},
		{"delay, then error", Fault{Delay: s, Error: "Unavailable"}, "0s Unavailable 1s"},
		{
			"from and until",
			Fault{Error: "Unavailable: not yet", From: 10 * s, Until: 20 * s},
			"9s OK, 10s Unavailable, 19s Unavailable, 20s OK",
		},
		{
			"every and for, counted from From",
			Fault{Error: "Unavailable", From: 5 * s, Every: 40 * s, For: 15 * s},
			"0s OK, 5s Unavailable, 19s Unavailable, 20s OK, 44s OK, 45s Unavailable",
		},
		{"after and first", Fault{Error: "Unavailable", After: 1, First: 1}, "0s OK, 0s Unavailable, 0s OK"},
		{
			"calls before From do not count",
			Fault{Error: "Unavailable", From: 10 * s, After: 1},
			"0s OK, 10s OK, 11s Unavailable",
		},
		{"thaw", Fault{Hang: true, Thaw: true, From: 10 * s, Every: 40 * s, For: 15 * s}, "12s OK 13s, 26s OK"},
		{"thaw at until", Fault{Hang: true, Thaw: true, Until: 7 * s}, "3s OK 4s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.fault.RPC = cmp.Or(test.fault.RPC, "Version")
				start := time.Now()
				c := serve(t, Scenario{Name: "faulty", Faults: []Fault{test.fault}})
				for call := range strings.SplitSeq(test.want, ", ") {
					at, want, _ := strings.Cut(call, " ")
					after, err := time.ParseDuration(at)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Until(start.Add(after)))
					if got := ask(t, c.version); got != want {
						t.Errorf("after %s: %s, want %s", at, got, want)
					}
				}
			})
		})
	}
}
