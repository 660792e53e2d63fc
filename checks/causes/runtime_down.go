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
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeDown is the code of this cause.
const RuntimeDown = "RuntimeDown"

func recogniseRuntimeDown(f *facts.Facts) *Finding {
	if f.Measurement == nil {
		return nil
	}
	var e checks.Evidence
	var summary string
	var holders []checks.Subject
	connect, removed := f.Measurement.Connect, (*host.Process)(nil)
	switch {
	case connect.State == crictl.ConnectMissing:
		summary = "nothing listens: the socket " + f.Target.SocketPath + " does not exist"
	case connect.State == crictl.ConnectNotSocket:
		summary = f.Target.SocketPath + " is not a socket: nothing can listen there"
	case connect.State == crictl.ConnectRefused:
		summary = "nothing listens: " + f.Target.SocketPath + " is there, but connecting to it is refused"
	case f.Calls.Gone != nil:
		summary = f.Target.Name + " stopped listening during the check"
		Addf(&e.For, "%v", *f.Calls.Gone)
	default:
		return nil
	}
	addIf(connect.Err != "", &e.For, "connecting to %s: %s", f.Target.SocketPath, facts.Clean(connect.Err))
	addGaps(f, &e, gapHost)
	if f.HostMissing == "" && !f.Target.Simulated {
		daemons := slices.DeleteFunc(facts.ProcessesOf(f, host.RoleRuntime), func(p host.Process) bool {
			behind := func(o host.Process) bool { return o.PID == p.PID }
			return p.State == 'Z' || slices.ContainsFunc(f.Target.Docker.Daemons, behind)
		})
		listens := func(p host.Process) bool {
			return slices.ContainsFunc(p.Sockets, func(path string) bool { return facts.IsAsked(f, path) })
		}
		if i := slices.IndexFunc(daemons, listens); connect.State == crictl.ConnectNotSocket {
			Addf(&e.For, "a daemon that starts cannot bind there; one that runs cannot be reached")
		} else if i >= 0 && connect.State == crictl.ConnectMissing {
			removed = &daemons[i]
			Addf(&e.For, "%v, up for %s, listens on a socket of that path", *removed, facts.AgeOf(f, *removed))
			summary = textf("the socket's file %s was removed; %v still listens on it", f.Target.SocketPath, *removed)
		} else if len(daemons) > 0 {
			holders = startHolds(f, &e)
			summary += rivalOfStart(f, &e, daemons, holders)
		} else {
			summary += absentDaemon(f, &e)
		}
	}
	if removed == nil {
		summary += stateOfUnit(f, &e, len(holders) > 0)
	}
	says := ""
	if removed == nil && len(holders) == 0 {
		says = addLastWords(f, &e, facts.LastOf(f, signature.RuntimeStarted, signature.RuntimeStopped))
		summary += says
	}
	logEvidence(f, &e, signature.GoPanicked)
	endpointEvidence(f, &e)
	holds := stackEvidence(f, &e, "", waitingFor("flock"))
	ends := endsOf(holds)
	if len(ends) > 0 && len(holders) == 0 {
		summary += textf("; it waits for a database that %s (pid %s) has locked", ends[0].Name, ends[0].ID)
	}
	step := raised(checks.Certain, logOf(f, &e, signsOfDown...) || len(holds)+len(holders) > 0 || says != "")
	subject := facts.DaemonSubject(f)
	if subject.Kind != "Unit" {
		subject = facts.SocketSubject(f)
	}
	if removed != nil {
		subject = new(facts.ProcessSubject(f, *removed, facts.OwnerOf(*removed)))
	}
	locked := holders[:min(len(holders), len(f.Seen.Peers.Value.Locks))] // the others are the culprits of ShimStuck
	culprits := lackFirst(f.Target.RuntimeUnit, slices.Concat([]checks.Subject{*subject}, locked, ends))
	found := newFinding(checks.Critical, step, summary, e, culprits...)
	return found.affects(noStatus).advise(func(s *Steps, _ string) {
		adviseHolders(s, holders)
		none, safe := connect.State == crictl.ConnectNotSocket, facts.SafeEndpoint.MatchString(f.Runtime.Endpoint)
		s.lookIf(none && safe, "ls -ld "+f.Target.SocketPath+"; ls -A "+f.Target.SocketPath,
			"Look what is there: a pod that mounts the path while the runtime is down makes a folder of it")
		named := f.Runtime.EndpointSource == string(crictl.SourceFlag)
		s.lookIf(named && removed == nil && (connect.State == crictl.ConnectMissing || none), "kdiag pleg",
			"Check the path: without --runtime-endpoint kdiag asks the kubelet's own runtime")
		if none && safe && f.Target.Unit != "" {
			s.Add(checks.TouchesProcess, "rmdir "+f.Target.SocketPath, "Remove the folder if it is empty")
		}
		s.lookLacks(f.Target.RuntimeUnit)
		AddService(f, s)
		s.lookIf(safe && !none && removed == nil,
			"ls -l "+f.Target.SocketPath+"; ss -xlp | grep -F "+f.Target.SocketPath, "Find out who listens on it")
		s.lookIf(strings.Contains(says, "TOML"), "containerd config dump > /dev/null",
			"Check the configuration after each change")
		if removed == nil && len(holders) == 0 && says == "" {
			AddDisk(f, s, "Check for a full disk (the most common cause)")
		}
		addRestart(f, s)
	})
}

// absentDaemon adds that the daemon of the socket does not run, and which others do, and returns it for a summary.
func absentDaemon(f *facts.Facts, e *checks.Evidence) string {
	if all := f.Target.Docker.Daemons; len(all) > 0 {
		Addf(&e.For, "no cri-dockerd runs on this host; %v does, and has been for %s", all[0], facts.AgeOf(f, all[0]))
		return "; cri-dockerd does not run"
	}
	elsewhere := func(p host.Process) bool { return p.Role == host.RoleRuntime && len(p.Sockets) > 0 && p.State != 'Z' }
	if i := slices.IndexFunc(f.Others, elsewhere); i >= 0 {
		p := f.Others[i]
		Addf(&e.For, "%v, up for %s, listens on %s", p, facts.AgeOf(f, p), facts.Clean(units.List(p.Sockets)))
		return textf("; %v listens on %s", p, facts.Clean(p.Sockets[0]))
	}
	n := len(facts.ProcessesOf(f, host.RoleShim))
	Addf(&e.For, "no runtime daemon runs on this host")
	return ifElse(n == 0, "", "; "+units.Count(n, "shim")+units.Plural(n, " runs", " run")+" without a daemon")
}

// stateOfUnit adds the state of the runtime's unit, and returns its problem. A start that is held contradicts nothing.
func stateOfUnit(f *facts.Facts, e *checks.Evidence, held bool) string {
	u := f.Target.RuntimeUnit
	if u == nil {
		return ""
	}
	if u.Active == "active" && !held {
		Addf(&e.Against, "systemd: %s: it is still starting, or listens on another socket", UnitLine(f, u))
		return ""
	}
	Addf(&e.For, "systemd: %s", UnitLine(f, u))
	if !UnitDown(u) {
		return ""
	}
	// Success is that somebody stopped it.
	why := facts.Clean(cmp.Or(ifElse(u.Result == "success", "", u.Result), u.Sub))
	return textf("; %s is %s (%s)", facts.Clean(u.Name), facts.Clean(u.Active), why) + after(" and ", lacksText(u))
}

// rivalOfStart adds the daemons that run though nothing listens, and returns their problem:
// an old one that still holds the database, for which the new one waits, or others who hold its start.
func rivalOfStart(f *facts.Facts, e *checks.Evidence, daemons []host.Process, holders []checks.Subject) string {
	for _, a := range daemons {
		for _, b := range daemons[1:] {
			if root := facts.SharedRoot(f, a.PID, b.PID); root != "" && a.PID < b.PID {
				Addf(&e.For, "%v, up for %s, and %v, up for %s: their database serves one", a, facts.AgeOf(f, a), b,
					facts.AgeOf(f, b))
				return textf("; %v and %v share %s", a, b, root)
			}
		}
	}
	if len(holders) > 0 {
		h := holders[0]
		return textf("; the start of %v waits for %s (pid %s)", daemons[0], h.Name, h.ID) + ServedBy(&h) +
			andMore(len(holders)-1, "process")
	}
	const slowStart = time.Minute
	if d := daemons[0]; facts.AgeOf(f, d) >= slowStart && f.Target.RuntimeUnit == nil {
		Addf(&e.For, "%v has been running for %s and does not listen: it waits, such as for a lock on its database", d,
			facts.AgeOf(f, d))
		return textf("; %v runs and does not listen", d)
	}
	Addf(&e.Against, "%v is running: it is still starting, or listens on another socket", daemons[0])
	return ""
}

// endpointEvidence adds whether the endpoint is the one that the kubelet uses.
func endpointEvidence(f *facts.Facts, e *checks.Evidence) {
	switch {
	case f.Target.Simulated:
	case f.Runtime.EndpointSource == string(crictl.SourceKubelet):
		Addf(&e.For, "the endpoint is from %s", cmp.Or(facts.Clean(f.Runtime.EndpointReason), "the kubelet"))
	case f.Kubelet == nil:
		Addf(&e.Missing, "whether the kubelet uses this endpoint: no kubelet was seen on this host")
	case f.Target.OtherEndpoint:
		Addf(&e.Against, "the kubelet %s", facts.UsesOther(f))
	}
}

// loggedRuntimeDown is for a daemon that refuses calls or has ended.
func loggedRuntimeDown(in *Incident) *Finding {
	ended, again := in.runtimeEnd()
	if in.refused == 0 && in.count(signature.RuntimeStopped) == 0 && ended == nil {
		return nil
	}
	answered, killed := in.answeredAgain(), in.signalled(facts.RoleRuntime, "SIGKILL")
	step := ifElse(in.refused > 0, checks.Strong, checks.Fair)
	step = raised(ifElse(killed != "", checks.Certain, step), in.down && !answered)
	f := in.finding(step, "The runtime's daemon is not running.", signature.RuntimeStopped,
		signature.RuntimeStartFailed)
	if ended != nil {
		f.supports("the runtime's unit failed, first at " + ended[0].First().In(in.Zone).Format(time.TimeOnly))
	}
	if in.refused > 0 {
		f.Summary = "Nothing listens on the runtime's socket: the daemon is not running."
		f.supports(in.refusals())
	} else if ended != nil {
		f.limitLate(in, ended...)
	}
	f.supports(killed, ifElse(in.down && !answered, listedDown, ""),
		ifElse(again && in.Recovered, "it ended after the runtime was started again", ""))
	if answered {
		f.unlikely("something listens again, though not as a CRI runtime")
	}
	addIf(again && !in.Recovered, &f.Evidence.Against, "the runtime was started again")
	addIf(in.missed > in.refused, &f.Evidence.Against, "more calls missed their deadline: %s",
		units.Count(in.missed, "record"))
	return f
}

// ConnectProblem explains a socket that could not be asked; empty for one that could.
func ConnectProblem(c crictl.Connect) string {
	switch {
	case c.TTRPC:
		return "the socket is containerd's ttrpc socket, for its shims, and not its CRI socket"
	case c.State == crictl.ConnectBacklogged:
		return "accepts no connections: its listen queue is full"
	case c.State == crictl.ConnectSilent:
		return "accepts connections but never replies (waited " + units.Duration(c.Elapsed) + ")"
	case c.State == crictl.ConnectForeign:
		return "the process that listens is not a gRPC server"
	case c.State == crictl.ConnectOK:
		return ""
	case c.State == crictl.ConnectDenied:
		return "the socket cannot be opened: " + facts.Clean(cmp.Or(c.Err, "permission denied"))
	case c.State == crictl.ConnectNotSocket:
		return "the endpoint is not a socket: " + facts.Clean(cmp.Or(c.Err, "another kind of file"))
	case c.State == crictl.ConnectCanceled, c.State == "":
		return "the command ended before the socket answered"
	}
	return "the socket was found " + facts.Clean(string(c.State)) + ": " +
		facts.Clean(cmp.Or(c.Err, "no reason is known"))
}

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

// silentShim says how a shim that runs fails to answer.
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
