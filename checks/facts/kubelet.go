package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/journal/signature"
)

// LeaseGrace is how long the control plane waits for a sign of the kubelet before it calls the node Unknown: 40 s up to
// Kubernetes 1.31 and 50 s since (node-monitor-grace-period). Shorter trouble is a blip that nobody else sees.
const LeaseGrace = 40 * time.Second

// leastTries is how many failures make an outage: lease and status are each tried every ten seconds.
const leastTries = 3

// apiOutage returns the time for which the kubelet has not reached the API server, if it does not now and a blip cannot
// explain it. Where the lease is fresh, it is not the API server that fails but what it does not allow, such as to list a Secret.
func apiOutage(f *Facts) (Interval, bool) {
	s, now := Ongoing(f, APIFresh, signature.APIServerFailed, signature.Unauthorized)
	if !now || f.Agent.LeaseFresh || s.To.Sub(s.From) < LeaseGrace || s.Records < leastTries {
		return Interval{}, false
	}
	if ready := LastOf(f, signature.NodeReady); ready != nil && ready.After(s.To) {
		return Interval{}, false // a status that says Ready was posted after the last failure
	}
	return s, true
}

// leaseStale reports whether the node's lease is older than the control plane waits for it.
func leaseStale(f *Facts) bool {
	s := f.Seen.Server
	return s.OK && s.Value.LeaseRead && s.Value.LeaseAge > LeaseGrace
}

// apiQuiet reports whether the kubelet's log would tell of an API server that the kubelet does not reach, and does not. Leases and status that
// fail are logged as errors, whatever its verbosity. One that does not run logs nothing, and one that has just started has had no time to fail.
func apiQuiet(f *Facts) bool {
	if status, _ := LogUnread(f); status != "" || f.Log.KubeletElsewhere != "" || f.Agent.NotSeen || f.Agent.Stopped != nil {
		return false
	}
	young := func(p host.Process) bool { return !p.Started.IsZero() && AgeOf(f, p) < APIFresh }
	return !slices.ContainsFunc(ProcessesOf(f, host.RoleKubelet), young) && !Fresh(f, LastOf(f, signature.APIServerFailed, signature.Unauthorized), APIFresh)
}

// TimeOr is a time that may be missing.
func TimeOr(t *time.Time, otherwise time.Time) time.Time {
	if t == nil {
		return otherwise
	}
	return *t
}

const (
	ClientCertificate  = "client"
	ServingCertificate = "serving"
)

// leaseFresh reports whether the kubelet has renewed the node's lease a moment ago.
func leaseFresh(f *Facts) bool {
	s := f.Seen.Server
	return s.OK && s.Value.LeaseRead && s.Value.LeaseAge >= 0 && s.Value.LeaseAge < LeaseGrace
}

// kubeletUnitSeen returns the kubelet's unit as systemd describes it; nil when there is none, or systemd was not asked.
func kubeletUnitSeen(f *Facts) *host.Unit { return f.Seen.Systemd.Value.Kubelet }

// kubeletRuns reports whether a kubelet is among the processes.
func kubeletRuns(f *Facts) bool { return f.Kubelet != nil || len(ProcessesOf(f, host.RoleKubelet)) > 0 }

// noKubeletSeen reports whether the processes of the host were read and no kubelet is among them. A host that shows no process of
// a runtime either may be a container's view of itself.
func noKubeletSeen(f *Facts) bool {
	return f.HostMissing == "" && len(f.Processes) > 0 && !f.Agent.Runs
}

// isNode reports whether a kubelet was set up on this host: it has settings, or a certificate, or a health port, which is not asked
// where there are none of its files.
func isNode(f *Facts) bool {
	n := f.Seen
	return len(n.Settings.Value.Files) > 0 || n.Health.Value.Ping != nil || slices.ContainsFunc(n.Certificates.Value, func(c kubelet.Certificate) bool {
		return c.Err == "" && !c.NotAfter.IsZero()
	})
}

// healthRefused reports whether nothing listens on the kubelet's health port.
func healthRefused(f *Facts) bool {
	p := f.Seen.Health.Value.Ping
	return p != nil && p.Status == 0 && !p.Hung && strings.Contains(strings.ToLower(p.Err), "refused")
}

// kubeletGone reports whether a node has no kubelet, where no service manager tells of its unit: there is none, it does not answer, or it has
// no unit of a name that kdiag knows. A kubelet under another name may run where kdiag does not see it, so nobody may listen then.
func kubeletGone(f *Facts) bool {
	n := f.Seen
	if p := n.Health.Value.Ping; p != nil && !f.Agent.HealthRefused {
		return false
	}
	if n.Systemd.Value.Answered && (f.Agent.Unit != nil || !f.Agent.HealthRefused) {
		return false
	}
	return f.Agent.NotSeen && f.Agent.IsNode
}

// KubeletStartup is how long a kubelet may take before it opens its health port. It does so after it has read its settings and
// found the runtime, within seconds; five minutes is also what its own check allows a loop (SyncLoopHealthCheck).
const KubeletStartup = 5 * time.Minute

// runtimeWell reports whether the runtime answered all that a relist needs: then it is not what the kubelet waits for.
func runtimeWell(f *Facts) bool {
	if !f.Calls.Connected || !f.Calls.BothLists || f.Target.OtherEndpoint || f.Pattern.Stalls || len(f.Sweep.Hung) > 0 {
		return false
	}
	status := f.Measurement.Status
	if status == nil || !f.RPC[RPCStatus].Outcome.Alive() {
		return false
	}
	ready, ok := status.Condition(ConditionRuntimeReady)
	return ok && ready.Status
}

// plegAge returns how long ago the last good relist of the kubelet began, by its own metric.
func plegAge(f *Facts) (time.Duration, bool) {
	m := f.Seen.Health.Value.Metrics
	if m == nil || m.PLEGLastSeen.Unix() <= 0 || m.PLEGLastSeen.After(f.Now) {
		return 0, false
	}
	return f.Now.Sub(m.PLEGLastSeen), true
}

// stoppedKubelet returns the kubelet's process when a signal or a tracer stopped it.
func stoppedKubelet(f *Facts) *host.Process {
	n := f.Seen
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, ProcessesOf(f, host.RoleKubelet)) {
		if n.Tasks.OK && p.Role == host.RoleKubelet && IsStopped(&p) {
			return &p
		}
	}
	return nil
}

// loopStands reports whether the kubelet itself says that its loop stands still.
func loopStands(f *Facts) bool {
	a := f.Seen.Health.Value.SyncLoop
	return a != nil && !a.Denied && a.Status >= 500
}

// serverWaits reports whether the kubelet's server hangs while its ping answers: then it may wait for the API server, which it asks
// whether kdiag may come in, and no more is known of the loop.
func serverWaits(f *Facts) bool {
	h := f.Seen.Health.Value
	return h.SyncLoop != nil && h.SyncLoop.Hung && h.Ping != nil && h.Ping.Status == 200
}

// neverCameUp returns the kubelet's process when it has been running for long and nothing listens on its health port.
func neverCameUp(f *Facts) *host.Process {
	if !f.Agent.HealthRefused {
		return nil
	}
	for _, p := range ProcessesOf(f, host.RoleKubelet) {
		if AgeOf(f, p) >= KubeletStartup && !IsStopped(&p) {
			return &p
		}
	}
	return nil
}

// networkReady reports whether the runtime says that its network is ready.
func networkReady(f *Facts) bool {
	if !f.Calls.Connected || f.Measurement.Status == nil {
		return false
	}
	c, ok := f.Measurement.Status.Condition(ConditionNetworkReady)
	return ok && c.Status
}
