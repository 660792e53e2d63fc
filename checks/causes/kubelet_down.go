package causes

import (
	"cmp"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletDown is the code of this cause.
const KubeletDown = "KubeletDown"

var kubeletDown = cause(KubeletDown, recogniseKubeletDown, nil, "kubelet.unit")

// UnitDown reports whether a unit is not running and systemd will not start it again.
func UnitDown(u *host.Unit) bool {
	return u != nil && (u.Active == "failed" || u.Active == "inactive")
}

func recogniseKubeletDown(f *facts.Facts) *Finding {
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
	} else if f.Seen.Systemd.Value.Answered {
		Addf(&e.Missing, "the kubelet's unit: systemd has none of a name that kdiag knows")
	} else {
		missing(f.Seen.Systemd, &e, "the kubelet's unit")
	}
	if p := f.Seen.Health.Value.Ping; p != nil && p.Err != "" {
		Addf(&e.For, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
	} else if p != nil && p.Status == 200 {
		Addf(&e.Against, "%s answers: another kubelet, or something else, listens there", facts.Clean(p.URL))
	}
	addIf(f.Agent.NotSeen, &e.For, "no kubelet is among the processes of this host")
	if c := facts.Logged(f, signature.KubeletFatal); c != nil {
		Addf(&e.For, "its last error in the log: %s", facts.Quote(f, fatalText(c.Example)))
	}
	addGaps(f, &e, gapHost, gapJournal)
	subject := *facts.KubeletSubject(f)
	if u != nil && facts.Safe(u.Name) {
		subject.Name = u.Name
	}
	return newFinding(checks.Critical, step, summary, e, subject).advise(func(s *Steps, _ string) {
		if u == nil && f.Seen.Systemd.Value.Answered {
			s.Look("systemctl list-unit-files --no-pager | grep -iE 'kube|k3s|rke2|k0s'", "What starts it here?")
			return
		}
		unit := f.Target.KubeletUnit
		s.Look("systemctl status --no-pager "+unit, "Is it down at this moment, since when, and how did it end?")
		s.Look("journalctl --no-pager -n 100 -u "+unit, "Repair what the last records name before it is started again.")
		if f.Seen.SilentMount() {
			s.Look("kdiag explain FilesystemHung", "Free the mount first: a kubelet that starts may wait for it.")
			return
		}
		first := choose(u != nil && u.Load == "masked", "unmask ", "reset-failed ")
		s.Add(checks.TouchesKubelet, "systemctl "+first+unit+"; systemctl start "+unit,
			"Starts it. Containers are kept; what ended it will end it again unless it is repaired.")
	})
}

// unitSummary is a sentence for a unit that is down.
func unitSummary(f *facts.Facts, u *host.Unit) string {
	name, since := facts.Clean(u.Name), stateSince(f, u)
	switch {
	case u.Load == "masked":
		return name + " is masked: no kubelet runs, and none can be started"
	case u.Active == "failed":
		return textf("%s has failed%s (%s): no kubelet runs", name, since, cmp.Or(facts.Clean(u.Result), "no reason"))
	}
	return textf("%s is stopped%s: no kubelet runs, and nobody starts it", name, since)
}

// UnitLine is what systemd knows of a unit: kubelet.service is failed (failed, exit-code) since 02:51:10.
func UnitLine(f *facts.Facts, u *host.Unit) string {
	line := textf("%s is %s (%s", facts.Clean(u.Name), facts.Clean(u.Active), facts.Clean(u.Sub))
	if u.Result != "" && u.Result != "success" {
		line += ", " + facts.Clean(u.Result)
	}
	line += ")" + stateSince(f, u)
	if u.ExitStatus != 0 {
		line += textf(", exit status %d", u.ExitStatus)
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
