package causes

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// startHolds adds what holds the start of a runtime's daemon, and returns who: others that have locked its database,
// and shims that do not answer, each of which containerd asks before it listens (loadShims in core/runtime/v2).
func startHolds(f *facts.Facts, e *checks.Evidence) (holders []checks.Subject) {
	for _, l := range f.Seen.Peers.Value.Locks {
		p := host.Process{PID: l.PID, Name: l.Name, State: l.State}
		Addf(&e.For, "%v has locked the database %s, which a start waits for", p, facts.Clean(l.Path))
		s := checks.Subject{Kind: "Process", ID: strconv.Itoa(l.PID), Name: l.Name}
		s.Processes = []checks.Process{facts.ProcessOf(f, p)}
		holders = append(holders, s)
	}
	for _, p := range deafShims(f) {
		Addf(&e.For, "%s %s; a start asks every shim, and waits", processOwned(f, p.PID, p.Name, facts.OwnerOf(p)),
			ifElse(facts.IsStopped(&p), "is stopped", silentShim))
		holders = append(holders, facts.ProcessSubject(f, p, facts.OwnerOf(p)))
	}
	return holders
}

// adviseHolders adds a look at those who hold a start.
func adviseHolders(s *Steps, holders []checks.Subject) {
	for _, h := range top(holders) {
		pid, _ := strconv.Atoi(h.ID)
		s.lookIf(pid > 1, textf("ps -o pid,ppid,stat,lstart,comm -p %d", pid),
			"See who holds the start; end it, or let it go on")
	}
}

// addLastWords adds the last reason in the runtime's log why it ended or serves no CRI, and returns it, as it follows a
// summary; empty where there is none. since is the moment from which on none counts, nil for none.
func addLastWords(f *facts.Facts, e *checks.Evidence, since *time.Time) string {
	for _, why := range killedLines(f, host.RoleRuntime) {
		Addf(&e.For, "when the watchdog ended it, %s", why)
	}
	c := facts.Logged(f, signature.RuntimeStartFailed)
	if p := facts.Logged(f, signature.GoPanicked); p != nil && !panicked(f, facts.RoleKubelet) &&
		(c == nil || c.Last != nil && p.Last != nil && p.Last.After(*c.Last)) {
		c = p
	}
	if c == nil || !f.Log.SameRuntime || since != nil && c.Last != nil && c.Last.Before(*since) {
		return ""
	}
	words := facts.ErrorWords(c.Newest())
	Addf(&e.For, "the runtime's log, last at %s%s: %s", facts.ClockText(f, *cmp.Or(c.Last, &f.Now)), Often(c.Count),
		Quote(c.Newest()))
	if strings.Contains(words, "invalid database") || strings.Contains(c.Newest(), "metadata.v1.bolt") {
		return "; its database io.containerd.metadata.v1.bolt/meta.db does not load: " + Quote(words)
	}
	return "; it says: " + Quote(words)
}

// panicked reports whether a daemon of a role has ended with a panic, as far as the log says who wrote it.
func panicked(f *facts.Facts, role facts.Role) bool {
	return len(facts.UnitsOf(f, signature.GoPanicked, role)) > 0
}

// silentShim is what is wrong with a shim that runs and does not answer.
const silentShim = "accepts connections and does not answer on them (1s, ttrpc)"

// deafShims are the shims that answer nobody.
func deafShims(f *facts.Facts) []host.Process {
	return slices.Concat(f.Shims.Stopped, f.Shims.Silent, f.Shims.Blocked)
}

// shimHoldsStart holds when nothing listens, a daemon has been started, and a shim that it asks does not answer.
func shimHoldsStart(f *facts.Facts) bool {
	return f.Measurement != nil && len(f.Seen.Peers.Value.Starting) > 0 && len(deafShims(f)) > 0 &&
		(f.Measurement.Connect.State == crictl.ConnectMissing || f.Measurement.Connect.State == crictl.ConnectRefused)
}
