package plegbench

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// rpcOrder is the order in which RPCs are shown: calls that need only a server, then the relist's lists, then the
// statuses, then images. Others follow by name.
var rpcOrder = [...]string{
	"Version", "Status", "ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers",
	"PodSandboxStatus", "ContainerStatus", "ListImages", "ImageFsInfo",
}

// SummarizeRPCs summarises the calls of a measurement by RPC. Of the lists only those count that a kubelet would make,
// not the narrower ones that stand in for a refused list. Errors are calls that failed or hung; a NotFound, and a call
// that was cut short by the end of the command, is neither an error nor part of the quantiles.
func SummarizeRPCs(m *Measurement) []RPCSummary {
	if m == nil {
		return nil
	}
	tallies := map[string]tally{}
	add := func(c crictl.Call) {
		if c.Method != "" {
			t := tallies[c.Method]
			t.add(c)
			tallies[c.Method] = t
		}
	}
	for _, c := range slices.Concat(m.Probes, m.Liveness) {
		add(c)
	}
	for i, s := range m.Samples {
		if i > 0 || len(m.Probes) == 0 { // the first is among the probes
			add(s.Sandboxes)
			add(s.Containers)
		}
	}
	for i := range m.Sweep.Inspections {
		add(m.Sweep.Inspections[i].Call)
	}
	summaries := make([]RPCSummary, 0, len(tallies))
	for name, t := range tallies {
		summaries = append(summaries, t.summary(name))
	}
	slices.SortFunc(summaries, func(a, b RPCSummary) int {
		return cmp.Or(cmp.Compare(rpcRank(a.Name), rpcRank(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return summaries
}

func rpcRank(name string) int {
	if i := slices.Index(rpcOrder[:], name); i >= 0 {
		return i
	}
	return len(rpcOrder)
}

// A tally counts calls of one kind.
type tally struct {
	count  int
	hung   int
	failed int
	times  []time.Duration // of answered calls
}

func (t *tally) add(c crictl.Call) {
	t.count++
	switch {
	case answered(c):
		t.times = append(t.times, c.Elapsed)
	case c.Hung():
		t.hung++
	case failed(c):
		t.failed++
	}
}

func (t *tally) summary(name string) RPCSummary {
	d := newDistribution(t.times)
	return RPCSummary{
		Name:       name,
		Count:      t.count,
		P50Seconds: d.seconds(0.50),
		P90Seconds: d.seconds(0.90),
		P99Seconds: d.seconds(0.99),
		MaxSeconds: d.seconds(1),
		Errors:     t.hung + t.failed,
		Histogram:  d.histogram(t.hung),
	}
}
