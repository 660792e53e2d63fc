package causes

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// KubeletDown is the code of this cause.
const KubeletDown = "KubeletDown"

// UnitDown reports whether a unit is not running and systemd will not start it again.
func UnitDown(u *host.Unit) bool {
	return u != nil && (u.Active == "failed" || u.Active == "inactive")
}

func recogniseKubeletDown(f *facts.Facts) *Finding {
	k, u := f.KubeletState, f.KubeletState.Unit
	unit := UnitDown(u) && !k.Runs && (u.Active == "failed" || u.Enabled == "enabled" || k.IsNode)
	if len(k.Rivals) > 0 {
		return recogniseRivals(f)
	}
	if !unit && !k.Gone {
		return recogniseKubeletImpaired(f)
	}
	var e checks.Evidence
	step, summary := checks.Strong, "no kubelet runs on this host, which was set up as a node"
	if unit {
		step, summary = checks.Certain, UnitLine(f, u)+": no kubelet runs"+ifElse(u.Load == "masked",
			", and none can start: it is masked", "")
	} else if f.Seen.Systemd.Value.Answered {
		Addf(&e.Missing, "the kubelet's unit: systemd has none of a name that kdiag knows")
	} else {
		missing(f.Seen.Systemd, &e, "the kubelet's unit")
	}
	if p := f.Seen.Health.Value.Ping; p != nil && p.Err != "" {
		Addf(&e.For, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
	} else if p != nil && p.Status == 200 {
		Addf(&e.Against, "%s answers: another kubelet may listen there", facts.Clean(p.URL))
	}
	addIf(f.KubeletState.NotSeen, &e.For, "no kubelet process runs on this host")
	if c := facts.Logged(f, signature.KubeletFatal); c != nil {
		Addf(&e.For, "its last error in the log: %s", Quote(fatalText(c.Newest())))
	}
	addGaps(f, &e, gapHost, gapJournal)
	subject := *facts.KubeletSubject(f)
	if u != nil && facts.Safe(u.Name) {
		subject.Name = u.Name
	}
	subjects := lackFirst(u, []checks.Subject{subject})
	for _, h := range f.Seen.Health.Value.Holders {
		subjects = append(subjects, checks.Subject{Kind: "Process", ID: strconv.Itoa(h.PID), Name: h.Name})
	}
	return newFinding(checks.Critical, step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		for _, h := range f.Seen.Health.Value.Holders {
			s.lookHolder(h, "Find out who started it: a kubelet cannot listen at "+facts.Clean(h.Address)+" before it ends.")
		}
		if u == nil && f.Seen.Systemd.Value.Answered {
			s.Look("systemctl list-unit-files --no-pager | grep -iE 'kube|k3s|rke2|k0s'", "Find its unit.")
			return
		}
		unit := f.Target.KubeletUnit
		s.lookLacks(u)
		s.Look("systemctl status --no-pager "+unit, "Check that it is down, since when, and how it ended.")
		s.Look("journalctl --no-pager -n 100 -u "+unit, "Read its last error, and repair that first.")
		if f.Seen.SilentMount() {
			s.Look("kdiag explain FilesystemHung", "Free the mount first: a starting kubelet may hang on it.")
			return
		}
		first := ifElse(u != nil && u.Load == "masked", "unmask ", "reset-failed ")
		s.Add(checks.TouchesKubelet, "systemctl "+first+unit+"; systemctl start "+unit,
			"Starts it; containers go on. It fails again unless the error is repaired.")
	})
}

// recogniseRivals is for kubelets that call one runtime: a kubelet ends each pod there that it does not know.
func recogniseRivals(f *facts.Facts) *Finding {
	var e checks.Evidence
	var names, pids []string
	var subjects []checks.Subject
	all := f.KubeletState.Rivals
	second := all[1]
	for _, p := range all {
		unit := ifElse(p.Unit == "", "", ", "+facts.Clean(p.Unit))
		names = append(names, textf("%s (pid %d%s)", facts.Clean(p.Name), p.PID, unit))
		Addf(&e.For, "%s has been running since %s", names[len(names)-1], facts.MomentText(f, p.Started))
		pids = append(pids, strconv.Itoa(p.PID))
		subjects = append(subjects, facts.ProcessSubject(f, p, host.Owner{}))
	}
	slices.Reverse(subjects) // the first is the one that has come last
	Addf(&e.For, "they call the runtime at one socket, %s", f.Target.SocketPath)
	step := checks.Strong
	if dead := facts.DeadSince(f, second.Started); dead > 0 {
		step = checks.Certain
		Addf(&e.For, "%s made since %s and dead already", units.Count(dead, "sandbox"),
			facts.MomentText(f, second.Started))
	}
	summary := textf("%d kubelets call one runtime, and each ends the pods of the other: %s", len(all), units.List(names))
	x := newFinding(checks.Critical, step, summary, e, subjects...)
	return x.affects(besides(f, "pods end soon after they start")...).advise(func(s *Steps, _ string) {
		s.Look("ps -o pid,ppid,lstart,unit,args -p "+strings.Join(pids, ","),
			"See who started each, and with which settings.")
		for _, p := range slices.Backward(all) {
			if unit := strings.TrimSuffix(p.Unit, ".service"); unit != p.Unit && facts.Safe(unit) &&
				unit != f.Target.KubeletUnit {
				s.Add(checks.TouchesKubelet, "systemctl disable --now "+unit, "End the one that is not this node's.")
				return
			}
		}
		s.Add(checks.TouchesKubelet, textf("kill -TERM %d", all[len(all)-1].PID),
			"End the one that is not this node's: this one has come last.")
	})
}

// recogniseKubeletImpaired is for a kubelet that runs and would not start again, or has lost its health port.
func recogniseKubeletImpaired(f *facts.Facts) *Finding {
	var e checks.Evidence
	k, holders := f.Seen.Settings.Value, f.Seen.Health.Value.Holders
	held := slices.IndexFunc(holders, func(h kubelet.Holder) bool { return h.Address == k.HealthzAddress })
	ping := f.Seen.Health.Value.Ping
	switch {
	case ping != nil && ping.LoopbackDown && f.KubeletState.Runs:
		Addf(&e.For, "%s: %s", facts.Clean(ping.URL), facts.Clean(ping.Err))
		return newFinding(checks.Warning, checks.Certain, "the network interface lo is down: nothing on this node reaches "+
			"127.0.0.1, nor the kubelet's health port", e, checks.Subject{Kind: "Interface", Name: "lo"}).
			advise(func(s *Steps, _ string) {
				s.Look("ip link show lo", "Check that it is down.")
				s.Add(checks.TouchesNode, "ip link set lo up", "Set it up; harmless.")
			})
	case k.KubeconfigGone:
		summary := textf("the kubelet runs, but its kubeconfig %s is missing: it cannot start again",
			facts.Clean(k.Kubeconfig))
		Addf(&e.For, "%s does not exist, and there is not a kubeconfig to bootstrap from", facts.Clean(k.Kubeconfig))
		return newFinding(checks.Warning, checks.Certain, summary, e, *facts.KubeletSubject(f)).
			advise(func(s *Steps, _ string) {
				s.Look("ls -l "+ifElse(facts.SafePath.MatchString(k.Kubeconfig), k.Kubeconfig, "/etc/kubernetes"),
					"Check that the file is missing, and find out who removed it.")
				s.Look("ls -l /var/lib/kubelet/pki", "Check the client certificate, for a new kubeconfig.")
			})
	case held >= 0 && f.Kubelet != nil:
		stranger := holders[held]
		summary := facts.Clean(stranger.String()) + ": the kubelet's health cannot be asked"
		e.Against = []string{"the kubelet itself runs, and does not need the port"}
		who := checks.Subject{Kind: "Process", ID: strconv.Itoa(stranger.PID), Name: stranger.Name}
		return newFinding(checks.Warning, checks.Certain, summary, e, who).advise(func(s *Steps, _ string) {
			s.lookHolder(stranger, "Find out who started it.")
			s.restartKubelet(f, "Only when the port is free: then the kubelet listens there again.")
		})
	}
	return nil
}

// lookHolder appends a look at the process that has a port of the kubelet.
func (s *Steps) lookHolder(h kubelet.Holder, why string) {
	s.lookIf(h.PID > 1, textf("ps -o pid,ppid,user,lstart,comm -p %d", h.PID), why)
}

// UnitLine describes a unit's state in systemd: kubelet.service is failed (failed, exit-code) since 02:51:10.
func UnitLine(f *facts.Facts, u *host.Unit) string {
	line := textf("%s is %s (%s", facts.Clean(u.Name), facts.Clean(u.Active), facts.Clean(u.Sub))
	line += ifElse(u.Result == "success", "", after(", ", facts.Clean(u.Result))) + ")"
	if !u.Since.IsZero() && !f.Now.Before(u.Since) {
		line += " since " + facts.MomentText(f, u.Since)
	}
	if u.ExitStatus != 0 {
		line += textf(", exit status %d", u.ExitStatus)
	}
	if u.Restarts > 0 {
		line += ", restarted " + units.Times(u.Restarts) + " by systemd"
	}
	line += after(" and ", lacksText(u))
	return line
}

// lacks returns the unit that keeps another from starting: at the end of what requires what. nil for none.
func lacks(u *host.Unit) (last *host.Unit) {
	for u != nil && u.Lacks != nil {
		last, u = u.Lacks, u.Lacks
	}
	return last
}

// lacksText says what keeps a unit from starting; empty where nothing does.
func lacksText(u *host.Unit) string {
	l := lacks(u)
	if l == nil {
		return ""
	}
	state := ifElse(l.Active == "failed", "has failed ("+cmp.Or(l.Result, l.Sub), "is "+l.Active+" ("+l.Sub) + ")"
	names := facts.Clean(u.Lacks.Name)
	for d := u.Lacks.Lacks; d != nil; d = d.Lacks {
		names += ", and that " + facts.Clean(d.Name)
	}
	return textf("requires %s, which %s", names, facts.Clean(state))
}

// lackFirst puts the unit that keeps another from starting before the other culprits.
func lackFirst(u *host.Unit, culprits []checks.Subject) []checks.Subject {
	if l := lacks(u); l != nil {
		return slices.Insert(culprits, 0, checks.Subject{Kind: "Unit", Name: facts.Clean(l.Name)})
	}
	return culprits
}

// lookLacks appends looks at the unit that keeps another from starting.
func (s *Steps) lookLacks(u *host.Unit) {
	if l := lacks(u); l != nil && !strings.Contains(l.Name, "'") {
		s.Look("systemctl status --no-pager '"+l.Name+"'; journalctl --no-pager -n 20 -u '"+l.Name+"'",
			"Read why "+facts.Clean(l.Name)+" did not start, and repair that: "+facts.Clean(u.Name)+" requires it.")
	}
}
