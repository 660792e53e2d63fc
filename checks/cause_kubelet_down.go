package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func kubeletDown() Definition {
	return Definition{
		Code:  codeKubeletDown,
		Title: "no kubelet runs",
		Means: "The kubelet's unit is stopped, has failed, or was given up by systemd after too many restarts (start-limit-hit); or, where systemd tells nothing, no kubelet is among the processes of a host that was set up as a node.\n\n" +
			"Containers go on running, and nobody watches them: no probe, no restart, no eviction, no new pod. The lease is not renewed, so that after 40 s (50 s since Kubernetes 1.32) the node is Unknown, with \"Kubelet stopped posting node " +
			"status\", and five minutes later its pods are evicted as far as the control plane can. It is not PLEG: nobody is there who could say that PLEG is not healthy.",
		Confirm: []string{
			"systemctl status kubelet: active or not, since when, and the exit code.",
			"curl -s --max-time 5 http://127.0.0.1:10248/healthz: connection refused.",
			"kubectl get node, from elsewhere: Ready is Unknown, not False.",
		},
		Fix: []string{
			"Read its last words first (journalctl -u kubelet -n 100): what ended it will end it again.",
			"Stopped by somebody: systemctl start kubelet.",
			"Given up by systemd (start-limit-hit): repair the cause, then systemctl reset-failed kubelet and systemctl start kubelet.",
			"While a network mount hangs, first bring the server back or take the mount away: a kubelet that starts may wait for it without end.",
		},
		Mistaken: "KubeletCrashLooping: there systemd still starts it again and again. KubeletStalled: there it runs. APIServerUnreachable: Unknown as well, and the kubelet is well. A machine on which no kubelet is installed is no node; kdiag says nothing of it.",
		Sources: []string{
			"systemd: man systemd.unit(5) (StartLimitBurst), man systemd.service(5) (Restart, Result)",
			"kubelet: cmd/kubelet/app/server.go (healthz on 10248 is a ping), kubernetes/kubernetes#126287 (50 s)",
			"kubernetes/kubernetes#122318, #122491 (a kubelet that does not come up while a mount hangs)",
		},
		RootOf:    []string{codeAPIServerUnreachable},
		recognise: recogniseKubeletDown,
	}
}

// kubeletUnitSeen returns the kubelet's unit as systemd describes it; nil when there is none, or systemd was not asked.
func (f *Facts) kubeletUnitSeen() *host.Unit { return f.seen().Systemd.Value.Kubelet }

// kubeletRuns reports whether a kubelet is among the processes.
func (f *Facts) kubeletRuns() bool { return f.Kubelet != nil || len(f.processes(host.RoleKubelet)) > 0 }

// noKubeletSeen reports whether the processes of the host were read and no kubelet is among them. A host that shows no process of
// a runtime either may be a container's view of itself.
func (f *Facts) noKubeletSeen() bool {
	return f.HostMissing == "" && len(f.Processes) > 0 && !f.kubeletRuns()
}

// isNode reports whether a kubelet was set up on this host: it has settings, or a certificate, or a health port, which is not asked
// where there are none of its files.
func (f *Facts) isNode() bool {
	n := f.seen()
	return len(n.Settings.Value.Files) > 0 || n.Health.Value.Ping != nil || slices.ContainsFunc(n.Certificates.Value, func(c kubelet.Certificate) bool {
		return c.Err == "" && !c.NotAfter.IsZero()
	})
}

// unitDown reports whether a unit is not running and systemd will not start it by itself.
func unitDown(u *host.Unit) bool {
	return u != nil && (u.Active == "failed" || u.Active == "inactive")
}

// healthRefused reports whether nothing listens on the kubelet's health port.
func (f *Facts) healthRefused() bool {
	p := f.seen().Health.Value.Ping
	return p != nil && p.Status == 0 && !p.Hung && strings.Contains(strings.ToLower(p.Err), "refused")
}

// kubeletGone reports whether a node has no kubelet, where no service manager tells of its unit: there is none, it does not answer, or it has
// no unit of a name that kdiag knows. A kubelet under another name may run where kdiag does not see it, so nobody may listen then.
func (f *Facts) kubeletGone() bool {
	n := f.seen()
	if p := n.Health.Value.Ping; p != nil && !f.healthRefused() {
		return false
	}
	if n.Systemd.Value.Answered && (f.kubeletUnitSeen() != nil || !f.healthRefused()) {
		return false
	}
	return f.noKubeletSeen() && f.isNode()
}

func recogniseKubeletDown(f *Facts) *Cause {
	u := f.kubeletUnitSeen()
	unit := unitDown(u) && !f.kubeletRuns() && (u.Active == "failed" || u.Enabled == "enabled" || f.isNode())
	if !unit && !f.kubeletGone() {
		return nil
	}
	var e Evidence
	step, summary := Strong, "no kubelet is among the processes of this host, which was set up as a node"
	if unit {
		step, summary = Certain, f.unitSummary(u)
		addf(&e.For, "systemd: %s", f.unitLine(u))
		if u.Load == "masked" || strings.HasPrefix(u.Enabled, "masked") {
			addf(&e.For, "it is masked: nothing can start it until it is unmasked")
		} else if u.Enabled == "disabled" {
			addf(&e.For, "it is disabled: it does not start at boot")
		}
	}
	if p := f.seen().Health.Value.Ping; p != nil && p.Err != "" {
		addf(&e.For, "%s: %s", clean(p.URL), clean(p.Err))
	} else if p != nil && p.Status == 200 {
		addf(&e.Against, "%s answers: another kubelet, or something else, listens there", clean(p.URL))
	}
	if f.noKubeletSeen() {
		addf(&e.For, "no kubelet is among the processes of this host")
	}
	if c := f.logged(signature.KubeletFatal); c != nil {
		addf(&e.For, "its last words in the log: %s", f.quote(lastWords(c.Example)))
	}
	f.missingHost(&e)
	f.missingJournal(&e)
	if n := f.seen(); !unit && n.Systemd.Value.Answered {
		addf(&e.Missing, "the kubelet's unit: systemd has none of a name that kdiag knows")
	} else if !unit {
		n.Systemd.missing(&e, "the kubelet's unit")
	}
	c := newCause(codeKubeletDown, Critical, step, summary, e)
	c.Subject = f.kubeletSubject()
	if u != nil && safe(u.Name) {
		c.Subject.Name = u.Name
	}
	c.NextSteps = f.stepsWhenKubeletDown(u)
	return c
}

// unitSummary says in a sentence that a unit is down.
func (f *Facts) unitSummary(u *host.Unit) string {
	name, since := clean(u.Name), f.stateSince(u)
	switch {
	case u.Load == "masked":
		return name + " is masked: no kubelet runs, and none can be started"
	case u.Result == "start-limit-hit":
		return fmt.Sprintf("systemd has given up starting %s%s: it ended too often", name, since)
	case u.Active == "failed":
		return fmt.Sprintf("%s has failed%s (%s): no kubelet runs", name, since, or(clean(u.Result), "no reason given"))
	}
	return fmt.Sprintf("%s is stopped%s: no kubelet runs, and nobody starts it", name, since)
}

// unitLine says what systemd knows of a unit: kubelet.service is failed (failed, exit-code) since 02:51:10, exit status 1.
func (f *Facts) unitLine(u *host.Unit) string {
	line := fmt.Sprintf("%s is %s (%s", clean(u.Name), clean(u.Active), clean(u.Sub))
	if u.Result != "" && u.Result != "success" {
		line += ", " + clean(u.Result)
	}
	line += ")" + f.stateSince(u)
	if u.ExitStatus != 0 {
		line += fmt.Sprintf(", exit status %d", u.ExitStatus)
	}
	if u.Restarts > 0 {
		line += ", restarted " + units.Times(u.Restarts) + " by systemd"
	}
	return line
}

// stateSince dates the state of a unit; empty when systemd does not.
func (f *Facts) stateSince(u *host.Unit) string {
	switch age := f.Now.Sub(u.Since); {
	case u.Since.IsZero() || age < 0:
		return ""
	case age < 12*time.Hour:
		return " since " + f.clock(u.Since)
	default:
		return " since " + u.Since.In(f.Now.Location()).Format(time.DateTime)
	}
}

func (f *Facts) stepsWhenKubeletDown(u *host.Unit) []NextStep {
	var s steps
	if u == nil && f.seen().Systemd.Value.Answered {
		s.add(TouchesNothing, "systemctl list-unit-files --no-pager | grep -iE 'kube|k3s|rke2|k0s'", "What starts the kubelet of this node? Its unit has none of the usual names; or a container is its home (docker ps -a).")
		return s.done()
	}
	unit := f.kubeletUnit()
	s.add(TouchesNothing, "systemctl status --no-pager "+unit, "Is it down at this moment, since when, and how did it end?")
	s.add(TouchesNothing, "journalctl --no-pager -n 100 -u "+unit, "Its last words: repair what they name before it is started again.")
	if f.seen().silentMount() {
		s.add(TouchesNothing, "kdiag explain FilesystemHung", "A mount does not answer: free it first. A kubelet that starts may wait for it without end.")
		return s.done()
	}
	start := "systemctl reset-failed " + unit + "; systemctl start " + unit
	if u != nil && u.Load == "masked" {
		start = "systemctl unmask " + unit + "; systemctl start " + unit
	}
	s.add(TouchesKubelet, start, "Starts it. Containers that run are kept; what ended it will end it again unless it is repaired.")
	return s.done()
}

// kubeletDownExplains reports whether a kubelet that does not run is why something else is so: nobody posts a status then. A server that kdiag
// does not reach either is away for reasons of its own.
func kubeletDownExplains(f *Facts, consequence string) bool {
	s := f.seen().Server
	return consequence == codeAPIServerUnreachable && (!s.OK || s.Value.Reachable)
}

// crashExplainsDown reports whether a loop of restarts ended in a kubelet that is down: systemd gives up after too many.
func (f *Facts) crashExplainsDown() bool {
	u := f.kubeletUnitSeen()
	return u != nil && u.Active == "failed"
}
