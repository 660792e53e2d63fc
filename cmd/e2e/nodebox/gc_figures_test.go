//go:build e2e

package nodebox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

// listEvery is how often the second client of a removal makes a relist: more often than a kubelet, for enough samples.
const listEvery = 200 * time.Millisecond

// removeRounds is how often each way to remove is measured.
const removeRounds = 3

// BenchmarkRemoveExited removes 2,000 exited containers from a containerd on the disk: at kdiag's own pace, and by crictl
// rm, if CRICTL names one. Beside it a second client makes relists as a kubelet does; its percentiles are those before
// and during the removal. Run with -benchtime 1x.
func BenchmarkRemoveExited(b *testing.B) {
	c := benchContainerd(b, Options{Network: true})
	// Round by round: a disk has better and worse minutes, and all shall have both.
	for round := range removeRounds {
		b.Run(fmt.Sprintf("paced/%d", round+1), func(b *testing.B) {
			benchRemoval(b, c, func(client *crictl.Client, plan gc.Plan) {
				result, err := gc.Run(b.Context(), client, plan, gc.Options{Rate: 1e5})
				if err != nil || result.Removed != len(plan.Remove) {
					b.Fatalf("%+v %v", result, err)
				}
				b.ReportMetric(float64(result.Most), "most-at-a-time")
			})
		})
		path := os.Getenv("CRICTL")
		if path == "" {
			continue
		}
		b.Run(fmt.Sprintf("crictl-rm/%d", round+1), func(b *testing.B) {
			benchRemoval(b, c, func(_ *crictl.Client, plan gc.Plan) {
				args := []string{
					"--timeout", "120s", "--runtime-endpoint", c.Endpoint(), "--image-endpoint", c.Endpoint(), "rm",
				}
				for i := range plan.Remove {
					args = append(args, plan.Remove[i].ID)
				}
				_, err := run(b.Context(), path, args...)
				must(b, err)
			})
		})
	}
}

func benchRemoval(b *testing.B, c *Containerd, remove func(client *crictl.Client, plan gc.Plan)) {
	for b.Loop() {
		b.StopTimer()
		client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
		must(b, err)
		pods := makeExited(b, c, 20)
		plan := removalPlan(b, client)
		quiet := relists(b, c, func() { time.Sleep(5 * time.Second) })
		var took time.Duration
		during := relists(b, c, func() {
			b.StartTimer()
			start := time.Now()
			remove(client, plan)
			took = time.Since(start)
			b.StopTimer()
		})
		b.ReportMetric(float64(len(plan.Remove))/took.Seconds(), "removed/s")
		for name, took := range map[string][]time.Duration{"quiet": quiet, "during": during} {
			slices.Sort(took)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, p))
			}
		}
		for _, pod := range pods { // the newest of each, and the sandboxes
			if call := client.RemovePodSandbox(b.Context(), pod.ID); !call.OK() {
				b.Fatalf("%+v", call)
			}
		}
		_ = client.Close() // nothing was written
		b.StartTimer()
	}
}

// removalPlan plans as kdiag gc-exited does.
func removalPlan(b *testing.B, client *crictl.Client) gc.Plan {
	b.Helper()
	node := gc.Node{
		Sandboxes:  client.ListPodSandbox(b.Context(), crictl.Filter{}, "").Sandboxes,
		Containers: client.ListContainers(b.Context(), crictl.Filter{}, "").Containers,
	}
	return gc.Make(node, gc.Rules{}, time.Now(), func(of []gc.Candidate) map[string]gc.End {
		ends, _ := gc.ReadEnds(b.Context(), client, of, nil)
		return ends
	})
}

// relists makes relists while work goes on, and returns how long each took.
func relists(b *testing.B, c *Containerd, work func()) []time.Duration {
	b.Helper()
	second, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	must(b, err)
	defer second.Close()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for ctx.Err() == nil {
			start := time.Now()
			sandboxes := second.ListPodSandbox(ctx, crictl.Filter{}, crictl.ModeUnary)
			containers := second.ListContainers(ctx, crictl.Filter{}, crictl.ModeUnary)
			if sandboxes.Complete && containers.Complete {
				took = append(took, time.Since(start))
			}
			time.Sleep(listEvery)
		}
		done <- took
	}()
	work()
	cancel()
	return <-done
}
