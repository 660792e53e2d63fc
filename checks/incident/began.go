package incident

import (
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

// tolerance is how much earlier than the last look without it a cause may have begun: that look takes a moment, and the
// last good relist of the kubelet begins up to a second before what stops the next (relistPeriod in
// pkg/kubelet/kubelet.go).
const tolerance = 3 * time.Second

// callsOf are the RPCs that a cause is about; nil stands for all.
var callsOf = map[string][]string{
	causes.CNIHung:          {facts.RPCStatus},
	causes.ImageServiceHung: {facts.RPCImages, facts.RPCImageFs, "StreamImages"},
	causes.InspectHang:      {"PodSandboxStatus", "ContainerStatus"},
	causes.ListHang:         {facts.RPCSandboxes, facts.RPCContainers, "StreamPodSandboxes", "StreamContainers"},
	causes.RuntimeHung:      nil,
}

// Began dates the causes that were found in the facts: by the oldest call without an answer that a cause is about, and
// where it stops relists by the last good one. What lies before notBefore counts only where there is nothing else, or
// where the look of then could not see the cause.
func Began(in *facts.Input) Dating {
	all := sync.OnceValue(func() *facts.Facts { return facts.New(in) })
	return func(c *checks.Cause, notBefore time.Time) time.Time {
		var dates []time.Time
		methods, some := callsOf[c.Code]
		for call := range facts.EveryCall(all()) {
			if some && call.Hung() && (methods == nil || slices.Contains(methods, call.Method)) {
				dates = append(dates, call.Start)
			}
		}
		switch c.Code {
		case causes.PLEGUnhealthy, causes.KubeletStalled, causes.InspectHang:
			// PLEG is late for minutes before it is unhealthy, and an object is asked about once in this time.
			notBefore = notBefore.Add(-5 * time.Minute)
			fallthrough
		case causes.RuntimeDown, causes.RuntimeHung, causes.ListHang, causes.ListTooLarge:
			dates = append(dates, lastRelist(all(), c.Code == causes.PLEGUnhealthy)...)
		}
		slices.SortFunc(dates, time.Time.Compare)
		i := slices.IndexFunc(dates, func(at time.Time) bool { return !at.Before(notBefore.Add(-tolerance)) })
		return append(dates, time.Time{})[max(i, 0)]
	}
}

// lastRelist returns when the last good relist of the kubelet began, by its log or else by its metric, as far as it is
// known; or that before the latest incident, which may be over.
func lastRelist(f *facts.Facts, over bool) []time.Time {
	switch all := f.Log.Incidents; {
	case f.Target.OtherEndpoint || f.Target.Simulated:
	case len(all) > 0 && all[len(all)-1].Anchor != nil && (over || f.Log.PLEGNow != nil):
		return []time.Time{*all[len(all)-1].Anchor}
	case f.Agent.PLEGKnown:
		return []time.Time{f.Now.Add(-f.Agent.PLEGAge)}
	}
	return nil
}
