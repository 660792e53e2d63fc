package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// How long ago the node's lease was renewed, by the control plane's patience (node-monitor-grace-period): it calls the
// node Unknown after 40 s up to Kubernetes 1.31, and after 50 s since. Shorter trouble does not show outside the node.
const (
	LeaseLate  = 40 * time.Second
	LeaseGrace = 50 * time.Second
)

// leastTries is the number of failures that make an outage: lease and status are each tried every ten seconds.
const leastTries = 3

// A kubelet opens its health port after it has read its settings and found the runtime, within seconds. From
// lateStartup on something holds it up; KubeletStartup is also what its own check allows a loop (SyncLoopHealthCheck).
const (
	lateStartup    = time.Minute
	KubeletStartup = 5 * time.Minute
)

// RivalAge is the age from which two kubelets beside each other are no restart.
const RivalAge = 30 * time.Second

// The roles of the kubelet's certificates.
const (
	ClientCertificate  = "client"
	ServingCertificate = "serving"
)

// deriveKubelet works out the state of the kubelet.
func deriveKubelet(f *Facts) {
	a, n := &f.KubeletState, f.Seen
	h, running := n.Health.Value, ProcessesOf(f, host.RoleKubelet)
	a.Runs = f.Kubelet != nil || len(running) > 0
	// A host that shows no process of a runtime either may be a container's view of itself.
	a.NotSeen = f.HostMissing == "" && len(f.Processes) > 0 && !a.Runs
	a.HealthRefused = h.Ping != nil && h.Ping.Status == 0 && !h.Ping.Hung && Says(h.Ping.Err, "refused")
	// It has settings, or a certificate, or a health port, which is not asked where there are none of its files.
	a.IsNode = len(n.Settings.Value.Files) > 0 || h.Ping != nil ||
		slices.ContainsFunc(n.Certificates.Value, func(c kubelet.Certificate) bool {
			return c.Err == "" && !c.NotAfter.IsZero()
		})
	// A kubelet under a name that kdiag does not know may run where it does not see it, so the port must be closed.
	// One that holds the server's port too may be such a kubelet.
	taken := h.Ping != nil && h.Ping.Status == 0 && len(h.Holders) == 1 && h.Ping.Err == h.Holders[0].String()
	closed := a.HealthRefused || taken
	a.Gone = a.NotSeen && a.IsNode && (h.Ping == nil || closed) &&
		(!n.Systemd.Value.Answered || a.Unit == nil && closed)
	lease := n.Server.Value.LeaseAge
	a.LeaseFresh = n.Server.OK && n.Server.Value.LeaseRead && lease >= 0 && lease < LeaseLate
	a.LeaseStale = n.Server.OK && n.Server.Value.LeaseRead && lease > LeaseGrace
	a.LoopStands = h.SyncLoop.Failed()
	// The server may wait for the API server, which it asks whether kdiag may come in.
	a.ServerWaits = h.SyncLoop != nil && h.SyncLoop.Hung && h.Ping != nil && h.Ping.Status == 200
	if f.Calls.Connected && f.Measurement.Status != nil {
		c, ok := f.Measurement.Status.Condition(ConditionNetworkReady)
		a.NetworkReady = ok && c.Status
	}
	a.Minor = minorOf(KubeletVersion(f.Seen))
	if m := h.Metrics; m != nil && m.PLEGLastSeen.Unix() > 0 && !m.PLEGLastSeen.After(f.Now) {
		a.PLEGAge, a.PLEGKnown = f.Now.Sub(m.PLEGLastSeen), true
	}
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, running) {
		if n.Tasks.OK && p.Role == host.RoleKubelet && IsStopped(&p) && a.Stopped == nil {
			a.Stopped = &p
		}
	}
	a.Rivals = rivals(f)
	for _, p := range running {
		if a.HealthRefused && AgeOf(f, p) >= lateStartup && !IsStopped(&p) && a.NeverCameUp == nil {
			a.NeverCameUp = &p
		}
	}
}

// rivals returns the kubelets that call one runtime, each of which ends the pods of the others, the oldest first. One
// that is starting may be what takes another one's place, and one that is stopped ends nothing.
func rivals(f *Facts) []host.Process {
	if f.Kubelet == nil || len(f.Rivals) == 0 || f.Target.OtherEndpoint {
		return nil
	}
	list := filter(ProcessesOf(f, host.RoleKubelet), func(p host.Process) bool {
		one := p.PID == f.Kubelet.PID || slices.Contains(f.Rivals, p.PID)
		return one && !IsStopped(&p) && p.State != 'Z' && AgeOf(f, p) >= RivalAge
	})
	if len(list) < 2 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b host.Process) int { return a.Started.Compare(b.Started) })
	return list
}

// DeadSince counts the sandboxes that were made since a moment, and are not ready.
func DeadSince(f *Facts, since time.Time) int {
	return count(sandboxesOf(f), func(s crictl.PodSandbox) bool {
		return s.State != crictl.SandboxReady && s.Created().After(since)
	})
}

// KubeletVersion is the kubelet's version as it reports it, such as v1.36.2; empty when it is not known.
func KubeletVersion(n *Node) string {
	if node := n.Server.Value.Node; n.Server.OK && node != nil {
		return node.Status.NodeInfo.KubeletVersion
	}
	if m := n.Health.Value.Metrics; m != nil {
		return m.Version
	}
	return ""
}

// minorOf returns the minor version of such as v1.36.2, 0 if it is none.
func minorOf(version string) int {
	minor := 0
	_, _ = fmt.Sscanf(version, "v1.%d", &minor)
	return minor
}

// Summarize does the arithmetic over the measurement. From 1.37 on EventedPLEG changes neither the period nor the
// threshold of relists (kubernetes/kubernetes#139262): in a kubelet of which that version was seen it counts as off.
func (in *Input) Summarize() {
	if k := in.Kubelet; k != nil && k.EventedPLEG && in.Node != nil && minorOf(KubeletVersion(in.Node)) >= 37 {
		off := *k // the target keeps its own for the next look
		off.EventedPLEG = false
		in.Kubelet = &off
	}
	in.Summary = plegbench.Summarize(in.Measurement, in.Kubelet)
}

// apiOutage returns the time for which the kubelet has not reached the API server, if it does not now and a blip
// cannot explain it. Where the lease is fresh, it is not the API server that fails but what it does not allow, such
// as to list a Secret.
func apiOutage(f *Facts) *Interval {
	s := Ongoing(f, APIFresh, signature.APIServerFailed, signature.Unauthorized)
	if s == nil || f.KubeletState.LeaseFresh || s.To.Sub(s.From) < LeaseLate || s.Records < leastTries ||
		ReadySince(f, s.To) { // which means that a status was posted
		return nil
	}
	return s
}

// apiQuiet reports whether the kubelet's log would show that the API server is not reached, and does not. Leases and
// status that fail are logged as errors, whatever its verbosity. A kubelet that does not run logs nothing, and one that
// has just started has had no time to fail.
func apiQuiet(f *Facts) bool {
	if status, _ := LogUnread(f); status != "" || f.Log.KubeletElsewhere != "" || f.KubeletState.NotSeen ||
		f.KubeletState.Stopped != nil {
		return false
	}
	young := func(p host.Process) bool { return !p.Started.IsZero() && AgeOf(f, p) < time.Minute }
	return !slices.ContainsFunc(ProcessesOf(f, host.RoleKubelet), young) &&
		!Fresh(f, LastOf(f, signature.APIServerFailed, signature.Unauthorized), APIFresh)
}
