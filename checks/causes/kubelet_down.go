package causes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletDown is the code of this cause.
const KubeletDown = "KubeletDown"

var kubeletDown = Definition{
	Code:   KubeletDown,
	Claims: []string{"kubelet.unit"},
	Roots: []Root{
		{Code: RuntimeDown, When: kubeletFindsNoRuntime},
		{Code: KubeletCrashLooping, When: systemdGaveUp},
		{Code: CertificateExpired, When: endsByCredentials},
		{Code: DiskFull, When: kubeletDiskFull},
		{Code: InodesExhausted, When: kubeletInodesGone},
		{Code: FilesystemHung, When: mountHoldsStart},
		{Code: OOMKilled, When: oomHitKubelet},
		{Code: PIDsExhausted, When: kubeletCannotFork},
		{Code: FilesExhausted, When: kubeletOutOfFiles},
		{Code: InotifyExhausted, When: inotifyGone},
	},
	OnPurpose: kubeletStoppedInOrder,
	Recognise: RecogniseKubeletDown,
}

// UnitDown reports whether a unit is not running and systemd will not start it by itself.
func UnitDown(u *host.Unit) bool {
	return u != nil && (u.Active == "failed" || u.Active == "inactive")
}

func RecogniseKubeletDown(f *facts.Facts) *Finding {
	u := f.Agent.Unit
	unit := UnitDown(u) && !f.Agent.Runs && (u.Active == "failed" || u.Enabled == "enabled" || f.Agent.IsNode)
	if !unit && !f.Agent.Gone {
		return nil
	}
	var e checks.Evidence
	step, summary := checks.Strong, "no kubelet is among the processes of this host, which was set up as a node"
	if unit {
		step, summary = checks.Certain, unitSummary(f, u)
		Addf(&e.For, "systemd: %s", UnitLine(f, u))
		if u.Load == "masked" || strings.HasPrefix(u.Enabled, "masked") {
			Addf(&e.For, "it is masked: nothing can start it until it is unmasked")
		} else if u.Enabled == "disabled" {
			Addf(&e.For, "it is disabled: it does not start at boot")
		}
	}
	if p := f.Seen.Health.Value.Ping; p != nil && p.Err != "" {
		Addf(&e.For, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
	} else if p != nil && p.Status == 200 {
		Addf(&e.Against, "%s answers: another kubelet, or something else, listens there", facts.Clean(p.URL))
	}
	if f.Agent.NotSeen {
		Addf(&e.For, "no kubelet is among the processes of this host")
	}
	if c := facts.Logged(f, signature.KubeletFatal); c != nil {
		Addf(&e.For, "its last words in the log: %s", facts.Quote(f, lastWords(c.Example)))
	}
	missingHost(f, &e)
	missingJournal(f, &e)
	if n := f.Seen; !unit && n.Systemd.Value.Answered {
		Addf(&e.Missing, "the kubelet's unit: systemd has none of a name that kdiag knows")
	} else if !unit {
		missing(n.Systemd, &e, "the kubelet's unit")
	}
	c := newFinding(checks.Critical, step, summary, e)
	c.Subject = facts.KubeletSubject(f)
	if u != nil && facts.Safe(u.Name) {
		c.Subject.Name = u.Name
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenKubeletDown(f, u) }
	return c
}

// unitSummary says in a sentence that a unit is down.
func unitSummary(f *facts.Facts, u *host.Unit) string {
	name, since := facts.Clean(u.Name), stateSince(f, u)
	switch {
	case u.Load == "masked":
		return name + " is masked: no kubelet runs, and none can be started"
	case u.Result == "start-limit-hit":
		return fmt.Sprintf("systemd has given up starting %s%s: it ended too often", name, since)
	case u.Active == "failed":
		return fmt.Sprintf("%s has failed%s (%s): no kubelet runs", name, since, cmp.Or(facts.Clean(u.Result), "no reason given"))
	}
	return fmt.Sprintf("%s is stopped%s: no kubelet runs, and nobody starts it", name, since)
}

// UnitLine says what systemd knows of a unit: kubelet.service is failed (failed, exit-code) since 02:51:10, exit status 1.
func UnitLine(f *facts.Facts, u *host.Unit) string {
	line := fmt.Sprintf("%s is %s (%s", facts.Clean(u.Name), facts.Clean(u.Active), facts.Clean(u.Sub))
	if u.Result != "" && u.Result != "success" {
		line += ", " + facts.Clean(u.Result)
	}
	line += ")" + stateSince(f, u)
	if u.ExitStatus != 0 {
		line += fmt.Sprintf(", exit status %d", u.ExitStatus)
	}
	if u.Restarts > 0 {
		line += ", restarted " + units.Times(u.Restarts) + " by systemd"
	}
	return line
}

// stateSince dates the state of a unit; empty when systemd does not.
func stateSince(f *facts.Facts, u *host.Unit) string {
	switch age := f.Now.Sub(u.Since); {
	case u.Since.IsZero() || age < 0:
		return ""
	case age < 12*time.Hour:
		return " since " + facts.ClockText(f, u.Since)
	default:
		return " since " + u.Since.In(f.Now.Location()).Format(time.DateTime)
	}
}

func stepsWhenKubeletDown(f *facts.Facts, u *host.Unit) []checks.NextStep {
	var s Steps
	if u == nil && f.Seen.Systemd.Value.Answered {
		s.Add(checks.TouchesNothing, "systemctl list-unit-files --no-pager | grep -iE 'kube|k3s|rke2|k0s'", "What starts the kubelet of this node? Its unit has none of the usual names; or a container is its home (docker ps -a).")
		return s.Done()
	}
	unit := f.Target.KubeletUnit
	s.Add(checks.TouchesNothing, "systemctl status --no-pager "+unit, "Is it down at this moment, since when, and how did it end?")
	s.Add(checks.TouchesNothing, "journalctl --no-pager -n 100 -u "+unit, "Its last words: repair what they name before it is started again.")
	if f.Seen.SilentMount() {
		s.Add(checks.TouchesNothing, "kdiag explain FilesystemHung", "A mount does not answer: free it first. A kubelet that starts may wait for it without end.")
		return s.Done()
	}
	start := "systemctl reset-failed " + unit + "; systemctl start " + unit
	if u != nil && u.Load == "masked" {
		start = "systemctl unmask " + unit + "; systemctl start " + unit
	}
	s.Add(checks.TouchesKubelet, start, "Starts it. Containers that run are kept; what ended it will end it again unless it is repaired.")
	return s.Done()
}
