package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// kubeletStartup is how long a kubelet may take before it opens its health port. It does so after it has read its settings and
// found the runtime, within seconds; five minutes is also what its own check allows a loop (SyncLoopHealthCheck).
const kubeletStartup = 5 * time.Minute

func kubeletStalled() Definition {
	return Definition{
		Code:  codeKubeletStalled,
		Title: "the kubelet runs, and its loop or its PLEG stands still",
		Means: "The kubelet's process is there and the runtime answers everything, yet the kubelet does nothing: its sync loop has not been entered for five minutes (/healthz/syncloop on port 10250 fails), or the last good relist is older " +
			"than the threshold (kubelet_pleg_last_seen_seconds), or the process is stopped by a signal, or it has never come up. It waits for a lock of its own, for a mount, for CPU.\n\n" +
			"The plain health port 10248 is a ping: it answers as long as the process runs, and sees neither PLEG nor loop nor runtime. Monitors that ask only there stay green through all of this. Where the unit sets WatchdogSec and the " +
			"kubelet is of 1.32 or later, systemd kills it about five minutes after the loop stopped, and with it the evidence in its memory.",
		Confirm: []string{
			"ps -o pid,stat,wchan:32,etime,comm -C kubelet: T is stopped.",
			"curl -sk --max-time 5 -H \"Authorization: Bearer $TOKEN\" https://127.0.0.1:10250/healthz/syncloop: a 500 that says \"sync Loop took longer than expected\" means that the loop stands still; one that says \"Authorization error\", that the kubelet cannot ask the API server who may come in.",
			"The kubelet's goroutines (/debug/pprof/goroutine?debug=2 on port 10250): what do the relist and the sync loop wait for?",
			"journalctl -u kubelet -n 20: its log has stopped in the middle.",
		},
		Fix: []string{
			"Stopped: kill -CONT PID, then find out who sent SIGSTOP.",
			"Keep its goroutines: a restart destroys them, and nothing else tells what it waited for.",
			"A mount hangs: bring the server back, or take the mount away, before anything is restarted. A kubelet that starts while it hangs may never come up.",
			"Restart the kubelet. Containers go on running.",
		},
		Mistaken: "InspectHang, ListHang, RuntimeHung: there the runtime does not answer, and the kubelet waits for it, as it must. KubeletCrashLooping: there it does not stay up. PLEGUnhealthy: the same seen through its log alone.",
		Sources: []string{
			"kubelet: pkg/kubelet/kubelet.go (SyncLoopHealthCheck: max of 2 x syncFrequency and 5 m), cmd/kubelet/app/server.go (10248), pkg/kubelet/metrics (pleg_last_seen_seconds)",
			"kubernetes/kubernetes#72482, #101056, #77728 (only a restart of the kubelet heals), #122318, #122491 (does not come up while a mount hangs)",
		},
		RootOf:    []string{codeAPIServerUnreachable, codeKubeletCrashLooping},
		recognise: recogniseKubeletStalled,
	}
}

// runtimeWell reports whether the runtime answered all that a relist needs: then it is not what the kubelet waits for.
func (f *Facts) runtimeWell() bool {
	if !f.connected() || !f.bothLists() || f.otherEndpoint() || f.stalls() || len(f.inspectionsThat(isHung)) > 0 {
		return false
	}
	status := f.Measurement.Status
	if status == nil || !f.rpc(rpcStatus).Outcome.alive() {
		return false
	}
	ready, ok := status.Condition(conditionRuntimeReady)
	return ok && ready.Status
}

// plegAge returns how long ago the last good relist of the kubelet began, by its own metric.
func (f *Facts) plegAge() (time.Duration, bool) {
	m := f.seen().Health.Value.Metrics
	if m == nil || m.PLEGLastSeen.Unix() <= 0 || m.PLEGLastSeen.After(f.Now) {
		return 0, false
	}
	return f.Now.Sub(m.PLEGLastSeen), true
}

// stoppedKubelet returns the kubelet's process when a signal or a tracer stopped it.
func (f *Facts) stoppedKubelet() *host.Process {
	n := f.seen()
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, f.processes(host.RoleKubelet)) {
		if n.Tasks.OK && p.Role == host.RoleKubelet && isStopped(&p) {
			return &p
		}
	}
	return nil
}

// loopStands reports whether the kubelet itself says that its loop stands still.
func (f *Facts) loopStands() bool {
	a := f.seen().Health.Value.SyncLoop
	return a != nil && !a.Denied && a.Status >= 500
}

// serverWaits reports whether the kubelet's server hangs while its ping answers: then it may wait for the API server, which it asks
// whether kdiag may come in, and no more is known of the loop.
func (f *Facts) serverWaits() bool {
	h := f.seen().Health.Value
	return h.SyncLoop != nil && h.SyncLoop.Hung && h.Ping != nil && h.Ping.Status == 200
}

func (f *Facts) serverWaitsLine() string {
	a := f.seen().Health.Value.SyncLoop
	return fmt.Sprintf("%s did not answer in %s, and the ping did: the kubelet may wait for the API server, which it asks whether kdiag may come in", clean(a.URL), units.Duration(a.Took))
}

// plegStands reports whether the last good relist is older than the threshold by the kubelet's metric. Where its log says that relists
// finish, only too late, it does not stand.
func (f *Facts) plegStands() (time.Duration, bool) {
	age, known := f.plegAge()
	if now := f.plegNow(); now != nil && len(now.Stalls) > 1 {
		return age, false
	}
	return age, known && age > f.threshold()
}

// neverCameUp returns the kubelet's process when it has been running for long and nothing listens on its health port.
func (f *Facts) neverCameUp() *host.Process {
	if !f.healthRefused() {
		return nil
	}
	for _, p := range f.processes(host.RoleKubelet) {
		if f.age(p) >= kubeletStartup && !isStopped(&p) {
			return &p
		}
	}
	return nil
}

func recogniseKubeletStalled(f *Facts) *Cause {
	var e Evidence
	var summary string
	step := Strong
	age, plegStands := f.plegStands()
	ping := f.seen().Health.Value.Ping
	switch p, late := f.stoppedKubelet(), f.neverCameUp(); {
	case p != nil:
		step = Certain
		summary = fmt.Sprintf("%s is %s: the kubelet does nothing until it is continued", processLabel(*p), p.StateWord())
		addf(&e.For, "%s is %s: a signal or a tracer stopped it", processLabel(*p), stateOf(*p))
	case late != nil:
		summary = fmt.Sprintf("%s has been running for %s and has never come up: nothing listens on its health port", processLabel(*late), units.Duration(f.age(*late)))
		addf(&e.For, "%s: %s", clean(ping.URL), clean(ping.Err))
		addf(&e.Missing, "whether its health port is another one, or was closed: the settings that kdiag read say %s", or(clean(f.seen().Settings.Value.HealthzAddress), "nothing of it"))
	case ping != nil && ping.Hung && f.kubeletRuns():
		summary = "the kubelet accepts connections on its health port and does not answer the ping"
		addf(&e.For, "%s did not answer in %s; it needs nothing but a process that runs", clean(ping.URL), units.Duration(ping.Took))
	case !f.runtimeWell():
		return nil // then it waits for the runtime, as it must
	case f.loopStands():
		step = Certain
		summary = "the kubelet's sync loop stands still, and the runtime answers everything"
	case plegStands:
		if age < f.threshold()+2*f.requestTimeout() {
			step = Fair // two calls that hung and have come back meanwhile look the same
		}
		summary = fmt.Sprintf("the kubelet's last good relist began %s ago, and the runtime answers everything", units.Duration(age))
	default:
		return nil
	}
	f.standstillEvidence(&e)
	c := newCause(codeKubeletStalled, Critical, step, summary, e)
	c.Subject = f.kubeletSubject()
	c.NextSteps = f.stepsWhenKubeletStalled()
	return c
}

// standstillEvidence adds what else speaks of a kubelet that stands still.
func (f *Facts) standstillEvidence(e *Evidence) {
	h := f.seen().Health
	if a := h.Value.SyncLoop; f.loopStands() {
		addf(&e.For, "%s says %d: the loop has not been entered for five minutes or more", clean(a.URL), a.Status)
	} else if a != nil && a.Status == 200 {
		addf(&e.Against, "%s says that the loop is at work", clean(a.URL))
	} else if f.serverWaits() {
		addf(&e.Missing, "whether the loop runs: %s", f.serverWaitsLine())
	} else if a != nil && a.Hung {
		addf(&e.For, "%s did not answer in %s", clean(a.URL), units.Duration(a.Took))
	} else if h.Value.Missing != "" {
		addf(&e.Missing, "port 10250 tells nothing: %s", clean(h.Value.Missing))
	}
	if p := h.Value.Ping; p != nil && p.Status == 200 {
		addf(&e.For, "%s answers: it is a ping, and sees nothing of this", clean(p.URL))
	}
	for _, t := range f.seen().Tasks.Value.Blocked {
		if t.Role == host.RoleKubelet {
			f.addTaskLine(e, t)
		}
	}
	if f.connected() && f.bothLists() {
		addf(&e.For, "kdiag's own lists were answered in %s", units.Duration(f.rpc(rpcSandboxes).last().Elapsed+f.rpc(rpcContainers).last().Elapsed))
	}
	f.hearPLEG(e)
	if all := f.incidents(); f.hearsKubelet() && len(all) > 0 {
		if last := all[len(all)-1]; !last.Recovered && !f.fresh(last.End, skipFresh) {
			addf(&e.For, "its log falls silent at %s, in the middle of an episode in which it spoke every five seconds", f.clock(*last.End))
		}
	}
	f.missingHost(e)
	f.missingJournal(e)
}

func (f *Facts) stepsWhenKubeletStalled() []NextStep {
	var s steps
	if p := f.stoppedKubelet(); p != nil && p.PID > 1 {
		s.add(TouchesNothing, fmt.Sprintf("grep -E 'State|TracerPid' /proc/%d/status", p.PID), "Is it still stopped, and does a debugger hold it?")
		s.add(TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), "The kubelet goes on; nothing is lost.")
		return s.done()
	}
	s.add(TouchesNothing, `kubectl get --raw "/api/v1/nodes/$(hostname)/proxy/debug/pprof/goroutine?debug=2"`, "Keep the evidence: what do relist and sync loop wait for? A restart destroys it.")
	s.add(TouchesNothing, "ps -eLo stat,pid,tid,wchan:32,etime,comm | grep '^D'", "Does a mount or a disk hold one of its threads? Then a restarted kubelet may not come up.")
	s.add(TouchesNothing, f.kubeletLog()+" | tail -n 50", "What did it do last?")
	if f.isConsequence(codeKubeletStalled) || f.seen().silentMount() {
		return s.done()
	}
	s.add(TouchesKubelet, "systemctl restart "+f.kubeletUnit(), "Containers go on running. Not while a mount hangs: a kubelet that starts may wait for it without end.")
	return s.done()
}

// kubeletStalledExplains reports whether a kubelet that stands still is why something else is so.
func kubeletStalledExplains(f *Facts, consequence string) bool {
	switch consequence {
	case codeKubeletCrashLooping:
		return f.watchdogEnds()
	case codeAPIServerUnreachable: // the lease has a loop of its own: only a process that does not run stops it
		return kubeletDownExplains(f, consequence) && (f.stoppedKubelet() != nil || f.neverCameUp() != nil)
	}
	return false
}
