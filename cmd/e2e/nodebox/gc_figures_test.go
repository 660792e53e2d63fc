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
)

// listEvery is how often the second client of a removal makes a relist: more often than a kubelet, for enough samples.
const listEvery = 200 * time.Millisecond

// removeRounds is how often each way to remove is measured.
const removeRounds = 3

// BenchmarkRemoveExited removes 2,000 exited containers, but for the newest of each pod, from a containerd on the disk:
// with kdiag gc-exited at its own pace, and by crictl rm, if CRICTL names one. Beside it a second client makes relists
// as a kubelet does; its percentiles are those before and during the removal. Run with -benchtime 1x.
func BenchmarkRemoveExited(b *testing.B) {
	c := Start(b, Options{Network: true})
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: time.Minute})
	must(b, err)
	defer client.Close()
	// Round by round: a disk has better and worse minutes, and all shall have both.
	for round := range removeRounds {
		b.Run(fmt.Sprintf("paced/%d", round+1), func(b *testing.B) {
			benchRemoval(b, c, client, func([]string) []string {
				return kdiag(c, "gc-exited", "--yes", "--rate", "100000")
			})
		})
		if path := os.Getenv("CRICTL"); path != "" {
			b.Run(fmt.Sprintf("crictl-rm/%d", round+1), func(b *testing.B) {
				benchRemoval(b, c, client, func(ids []string) []string {
					return slices.Concat([]string{
						path, "--timeout", "120s", "--runtime-endpoint", c.Endpoint(), "--image-endpoint", c.Endpoint(), "rm",
					}, ids)
				})
			})
		}
	}
}

// benchRemoval measures a command that removes containers.
func benchRemoval(b *testing.B, c *Containerd, client *crictl.Client, command func(ids []string) []string) {
	for b.Loop() {
		b.StopTimer()
		pods := makeExited(b, c, 20)
		var ids []string
		for _, pod := range pods {
			for _, c := range pod.Containers[:len(pod.Containers)-1] {
				ids = append(ids, c.ID)
			}
		}
		args := command(ids)
		quiet := relists(b, client, func() { time.Sleep(5 * time.Second) })
		var took time.Duration
		during := relists(b, client, func() {
			b.StartTimer()
			start := time.Now()
			_, err := run(b.Context(), args[0], args[1:]...)
			must(b, err)
			took = time.Since(start)
			b.StopTimer()
		})
		b.ReportMetric(float64(len(ids))/took.Seconds(), "removed/s")
		for name, took := range map[string][]time.Duration{"quiet": quiet, "during": during} {
			slices.Sort(took)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, p))
			}
		}
		if left := client.ListContainers(b.Context(), crictl.Filter{}, ""); len(left.Containers) != len(pods) {
			b.Fatalf("%d containers are left of %d pods", len(left.Containers), len(pods))
		}
		for _, pod := range pods { // the newest of each, and the sandboxes
			if call := client.RemovePodSandbox(b.Context(), pod.ID); !call.OK() {
				b.Fatalf("%+v", call)
			}
		}
		b.StartTimer()
	}
}

// relists makes relists while work goes on, and returns how long each took.
func relists(b *testing.B, client *crictl.Client, work func()) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for ctx.Err() == nil {
			start := time.Now()
			sandboxes := client.ListPodSandbox(ctx, crictl.Filter{}, crictl.ModeUnary)
			containers := client.ListContainers(ctx, crictl.Filter{}, crictl.ModeUnary)
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
