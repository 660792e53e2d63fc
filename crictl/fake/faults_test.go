package fake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// outcome is what became of one call: its gRPC code and how long it took.
type outcome struct {
	Code codes.Code
	Took time.Duration
}

// ask makes one call with a deadline of a minute and measures it on the bubble's clock.
func ask(t *testing.T, call func(context.Context) error) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	return outcome{Code: codeOf(err), Took: time.Since(start)}
}

func (c *client) version(ctx context.Context) error {
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

// idOf returns the id of the container of that name, whichever comes last.
func (c *client) idOf(t *testing.T, name string) string {
	t.Helper()
	id := ""
	for _, container := range c.containers(t, nil) {
		if container.GetMetadata().GetName() == name {
			id = container.GetId()
		}
	}
	return id
}

func TestFaultTimes(t *testing.T) {
	const s = Duration(time.Second)
	ok := outcome{Code: codes.OK}
	hung := outcome{Code: codes.DeadlineExceeded, Took: time.Minute}
	failed := outcome{Code: codes.Unavailable}
	tests := []struct {
		name  string
		fault Fault
		at    []time.Duration // when to ask Version, after New
		want  []outcome
	}{
		{"hang", Fault{Hang: true}, []time.Duration{0, time.Hour}, []outcome{hung, hung}},
		{"delay", Fault{Delay: 5 * s}, []time.Duration{0}, []outcome{{codes.OK, 5 * time.Second}}},
		{"delay beyond the deadline", Fault{Delay: 61 * s}, []time.Duration{0}, []outcome{hung}},
		{"error", Fault{Error: "Unavailable: not yet"}, []time.Duration{0}, []outcome{failed}},
		{
			"delay, then error",
			Fault{Delay: s, Error: "Unavailable"},
			[]time.Duration{0},
			[]outcome{{codes.Unavailable, time.Second}},
		},
		{"other RPC", Fault{RPC: "List*", Hang: true}, []time.Duration{0}, []outcome{ok}},
		{
			"from and until",
			Fault{Error: "Unavailable", From: 10 * s, Until: 20 * s},
			[]time.Duration{9 * time.Second, 10 * time.Second, 19 * time.Second, 20 * time.Second},
			[]outcome{ok, failed, failed, ok},
		},
		{
			"every and for, counted from From",
			Fault{Error: "Unavailable", From: 5 * s, Every: 40 * s, For: 15 * s},
			[]time.Duration{0, 5 * time.Second, 19 * time.Second, 20 * time.Second, 44 * time.Second, 45 * time.Second},
			[]outcome{ok, failed, failed, ok, ok, failed},
		},
		{"first", Fault{Error: "Unavailable", First: 1}, []time.Duration{0, 0, 0}, []outcome{failed, ok, ok}},
		{"after", Fault{Error: "Unavailable", After: 1}, []time.Duration{0, 0, 0}, []outcome{ok, failed, failed}},
		{
			"after and first",
			Fault{Error: "Unavailable", After: 1, First: 1},
			[]time.Duration{0, 0, 0},
			[]outcome{ok, failed, ok},
		},
		{
			"calls before From do not count",
			Fault{Error: "Unavailable", From: 10 * s, After: 1},
			[]time.Duration{0, 10 * time.Second, 11 * time.Second},
			[]outcome{ok, ok, failed},
		},
		{
			"thaw",
			Fault{Hang: true, Thaw: true, From: 10 * s, Every: 40 * s, For: 15 * s},
			[]time.Duration{12 * time.Second, 26 * time.Second},
			[]outcome{{codes.OK, 13 * time.Second}, ok},
		},
		{
			"thaw at until",
			Fault{Hang: true, Thaw: true, Until: 7 * s},
			[]time.Duration{3 * time.Second},
			[]outcome{{codes.OK, 4 * time.Second}},
		},
		{"thaw without an end", Fault{Hang: true, Thaw: true}, []time.Duration{0}, []outcome{hung}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.fault.RPC == "" {
					test.fault.RPC = "Version"
				}
				start := time.Now()
				c := serve(t, Scenario{Name: "faulty", Faults: []Fault{test.fault}})
				var got []outcome
				for _, at := range test.at {
					time.Sleep(time.Until(start.Add(at)))
					got = append(got, ask(t, c.version))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = Duration(time.Millisecond)
		s := small()
		s.Latency = []Latency{
			{RPC: "ListContainers", Base: 10 * ms, PerItem: 2 * ms},
			{RPC: "Version", Base: 100 * ms, Jitter: 50 * ms},
		}
		c := serve(t, s)
		list := func(ctx context.Context) error {
			_, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			return err
		}
		if got, want := ask(t, list), (outcome{Took: 20 * time.Millisecond}); got != want {
			t.Errorf("a list of 5: %v, want %v", got, want)
		}
		lowest, highest := time.Hour, time.Duration(0)
		for range 50 {
			took := ask(t, c.version).Took
			lowest, highest = min(lowest, took), max(highest, took)
		}
		if lowest < 100*time.Millisecond || lowest > 105*time.Millisecond || highest < 145*time.Millisecond ||
			highest > 150*time.Millisecond {
			t.Errorf("jitter from %v to %v is not spread over 100ms to 150ms", lowest, highest)
		}
	})
}

// TestStopReleasesHungCalls: a call without a deadline ends with the server.
func TestStopReleasesHungCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, Scenario{Name: "hung", Faults: []Fault{{RPC: "*", Hang: true}}})
		ended := make(chan codes.Code, 1)
		go func() { ended <- codeOf(c.version(context.Background())) }()
		synctest.Wait()
		select {
		case code := <-ended:
			t.Fatalf("the call ended by itself: %s", code)
		default:
		}
		c.server.Stop()
		if code := <-ended; code != codes.Unavailable {
			t.Errorf("code %s, want Unavailable", code)
		}
	})
}

// TestDropAndOversize tests the two faults that change the answer.
func TestDropAndOversize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small()
		s.Limits.Send = 64 << 20
		s.Faults = []Fault{
			{RPC: "StopContainer", Drop: true, First: 1},
			{RPC: "List*", Oversize: 20 << 20},
			{RPC: "Version", Delay: Duration(time.Second), Oversize: 1000},
		}
		c := serve(t, s)
		all := must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
		if got := proto.Size(all); got < 20<<20 || got > 20<<20+10 || len(all.GetContainers()) != 5 {
			t.Errorf("the list: %d bytes, %d containers", got, len(all.GetContainers()))
		}
		if got, want := ask(t, c.version), (outcome{Took: time.Second}); got != want {
			t.Errorf("delay and oversize: %v, want %v", got, want)
		}
		events := must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		if got := ask(t, func(ctx context.Context) error {
			_, err := c.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: all.GetContainers()[0].GetId()})
			return err
		}).Code; got != codes.Unavailable {
			t.Errorf("a call that is dropped: %s", got)
		}
		var err error
		for err == nil {
			_, err = events.Recv()
		}
		if codeOf(err) != codes.Unavailable {
			t.Errorf("another call on the connection: %v", err)
		}
	})
}
