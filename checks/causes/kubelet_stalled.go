package causes

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletStalled is the code of this cause.
const KubeletStalled = "KubeletStalled"

// ServerWaitsLine describes a server of the kubelet that hangs while its ping answers.
func ServerWaitsLine(f *facts.Facts) string {
	a := f.Seen.Health.Value.SyncLoop
	return textf("%s: no reply in %s, though the ping answers: the API server may be slow", facts.Clean(a.URL), a.Took)
}

func recogniseKubeletStalled(f *facts.Facts) *Finding {
	var e checks.Evidence
	var summary string
	step, severity, age := checks.Strong, checks.Critical, f.KubeletState.PLEGAge
	// Where the kubelet's log shows that relists finish, only too late, PLEG does not stand.
	moves := f.Log.PLEGNow != nil && len(f.Log.PLEGNow.Stalls) > 1
	ping := f.Seen.Health.Value.Ping
	out := outputOf(f, host.RoleKubelet)
	switch p, late := f.KubeletState.Stopped, f.KubeletState.NeverCameUp; {
	case p != nil:
		step = checks.Certain
		summary = textf("%v is %s: the kubelet does nothing until it is resumed", *p, p.StateWord())
	case out != nil:
		summary = outputLine(out)
		if out.Reader != nil && facts.IsStopped(out.Reader) {
			step = checks.Certain
		}
	case late != nil:
		summary = textf("%v has not come up in %s: nothing listens on its health port", *late, facts.AgeOf(f, *late))
		Addf(&e.For, "%s: %s", facts.Clean(ping.URL), facts.Clean(ping.Err))
		Addf(&e.Missing, "whether its port is another one: %s", facts.Clean(f.Seen.Settings.Value.HealthzAddress))
		if facts.AgeOf(f, *late) < facts.KubeletStartup {
			step, severity = checks.Fair, checks.Warning
		}
	case ping != nil && ping.Hung && f.KubeletState.Runs:
		summary = ifElse(ping.NotAccepted, "the kubelet does not accept connections on its health port",
			"the kubelet accepts connections on its health port but never replies")
		Addf(&e.For, "%s: no reply in %s", facts.Clean(ping.URL), ping.Took)
	case !f.Pattern.Well:
		return nil // then it waits for the runtime, as it must
	case f.KubeletState.LoopStands:
		step = checks.Certain
		summary = "the kubelet's sync loop stands still, and the runtime answers everything"
	case f.KubeletState.PLEGKnown && age > f.Calls.Threshold && !moves:
		if age < f.Calls.Threshold+2*f.Calls.KubeletTimeout {
			step = checks.Fair // two calls that hung and have ended meanwhile look the same
		}
		summary = textf("the kubelet's last good relist began %s ago, and the runtime answers everything", age)
	default:
		return nil
	}
	standstillEvidence(f, &e)
	step = raised(step, kubeletEvidence(f, &e, KubeletStalled))
	subjects := []checks.Subject{*facts.KubeletSubject(f)}
	if out != nil && out.Reader != nil {
		subjects = append(subjects, facts.ProcessSubject(f, *out.Reader, host.Owner{}))
	}
	return newFinding(severity, step, summary, e, subjects...).advise(func(s *Steps, root string) {
		if p := f.KubeletState.Stopped; p != nil && p.PID > 1 {
			s.Look(textf("grep -E 'State|TracerPid' /proc/%d/status", p.PID),
				"Check whether a debugger holds it; find out who stopped it.")
			s.resume(*p)
			return
		}
		if out != nil {
			adviseOutput(s, out)
		}
		s.lookRelist()
		s.lookBlocked()
		s.Look(KubeletLog(f)+" | tail -n 50", "Read what it did last.")
		if root == "" && !f.Seen.SilentMount() {
			s.restartKubelet(f, "Running containers go on.")
		}
	})
}

// standstillEvidence adds the other signs of a kubelet that stands still.
func standstillEvidence(f *facts.Facts, e *checks.Evidence) {
	h := f.Seen.Health.Value
	switch a := h.SyncLoop; {
	case f.KubeletState.LoopStands:
		Addf(&e.For, "%s answers HTTP %d: the sync loop has not run for 5m or more", facts.Clean(a.URL), a.Status)
	case a != nil && a.Status == 200:
		Addf(&e.Against, "%s answers 200: the sync loop runs", facts.Clean(a.URL))
	case f.KubeletState.ServerWaits:
		Addf(&e.Missing, "whether the loop runs: %s", ServerWaitsLine(f))
	case a != nil && a.Hung:
		Addf(&e.For, "%s: no reply in %s", facts.Clean(a.URL), a.Took)
	case h.Missing != "":
		Addf(&e.Missing, "port 10250 was not asked: %s", facts.Clean(h.Missing))
	}
	addTasks(f, e, func(t host.BlockedTask) bool { return t.Role == host.RoleKubelet })
	logOfPLEG(f, e)
	addGaps(f, e, gapHost, gapJournal)
}

// loggedKubeletStalled: the runtime is not on record as failing, and the kubelet's own loops stand.
func loggedKubeletStalled(in *Incident) *Finding {
	full := in.found(signature.PLEGChannelFull, signature.EventedPLEGFull)
	stopped, standstill := in.signalled(facts.RoleKubelet, "SIGSTOP"), in.LoopStall
	silent := standstill == nil && in.failing == 0 && !in.down && in.age() > 10*time.Minute
	f := in.finding(checks.Weak,
		"The kubelet's own loops stand still, while no call to the runtime is on record as failing.",
		signature.PLEGChannelFull, signature.EventedPLEGFull, signature.WatchdogWithheld, signature.WatchdogTimeout)
	switch {
	case stopped != "":
		f.Step = checks.Certain
		f.supports(stopped)
	case standstill != nil, silent && len(full) > 0:
		f.Step = checks.Strong
	case len(full) > 0:
		f.Step = checks.Fair
	case len(f.Evidence.For) == 0 && !silent, in.failing > 0:
		return nil
	}
	switch {
	case standstill != nil:
		f.Summary = textf("The kubelet itself stood still for %s or more: its first record is late by that.",
			standstill.Late)
		f.supports(textf("the first record states an age of %s; a loop that runs reports from %s on", standstill.Age,
			standstill.Due))
		f.lacks("what else on the node wrote meanwhile: a machine that stands still as a whole looks the same")
	case silent:
		f.supports(textf("the age grows to %s, and no call is on record as failing: a hung one would be", in.age()))
		f.lacks("whether the log holds all of the kubelet's lines")
	case in.failing > 0 && stopped == "":
		return f.unlikely("calls fail: " + units.Count(in.failing, "record"))
	case in.failing > 0:
		Addf(&f.Evidence.Against, "calls fail: %s", units.Count(in.failing, "record"))
	}
	return f
}
