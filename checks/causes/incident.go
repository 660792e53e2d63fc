package causes

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// beginSlack is how long after the anchor what holds up the next relist may have begun: relists are 1 s apart
// (relistPeriod in pkg/kubelet/kubelet.go), and one on a full node takes some seconds.
const beginSlack = 30 * time.Second

// finding returns a finding with the records of some signatures as evidence.
func (in *Incident) finding(step float64, summary string, codes ...string) *Finding {
	return &Finding{Step: step, Summary: summary, Evidence: checks.Evidence{For: in.found(codes...)}}
}

// recorded returns a finding where there are records of one of the codes, else nil.
func (in *Incident) recorded(step float64, summary string, codes ...string) *Finding {
	if in.count(codes...) == 0 {
		return nil
	}
	return in.finding(step, summary, codes...)
}

// early is like recorded, for causes that explain an incident only if they began before it.
func (in *Incident) early(step float64, summary string, codes ...string) *Finding {
	return in.recorded(step, summary, codes...).limitLate(in, in.each(codes...)...)
}

// harmless is like recorded, for states that do not make PLEG unhealthy.
func (in *Incident) harmless(summary string, codes ...string) *Finding {
	return in.recorded(checks.Weak, summary, codes...).unlikely("no relist waits for it")
}

// supports adds evidence for the cause. Empty texts, and those that are there already, are left out.
func (c *Finding) supports(texts ...string) *Finding {
	for _, t := range texts {
		if t != "" && !slices.Contains(c.Evidence.For, t) {
			c.Evidence.For = append(c.Evidence.For, t)
		}
	}
	return c
}

// unlikely adds evidence against the cause that leaves it less likely than one that the log does not show.
func (c *Finding) unlikely(text string) *Finding {
	if c != nil {
		c.Step = min(c.Step, checks.Weak)
		c.Evidence.Against = append(c.Evidence.Against, text)
	}
	return c
}

// limitLate makes a cause unlikely if all of some records began only after the incident: then it is not the root.
func (c *Finding) limitLate(in *Incident, bursts ...*journal.Burst) *Finding {
	var earliest time.Time
	for _, b := range bursts {
		if t := b.First(); !t.IsZero() {
			if t = t.Add(-writtenAfter(b)); earliest.IsZero() || t.Before(earliest) {
				earliest = t
			}
		}
	}
	if begin := in.begin(); begin != nil && !earliest.IsZero() && earliest.After(begin.Add(beginSlack)) {
		const late = "it began %s or more after the last good relist, so it is not the root"
		return c.unlikely(textf(late, earliest.Sub(*begin)))
	}
	return c
}

// lacks adds evidence that is missing.
func (c *Finding) lacks(text string) *Finding {
	c.Evidence.Missing = append(c.Evidence.Missing, text)
	return c
}

// An Incident is an episode of a log, with the counts that the recognisers need.
type Incident struct {
	*journal.Episode
	*journal.Context
	byCode map[string][]*journal.Burst

	// How the runtime's calls fail, counted in records. One failing call writes up to three.
	failing             int64 // all
	missed              int64 // all that missed their deadline
	lists, listsMissed  int64 // of relists
	statusMissed        int64
	refused             int64 // on a socket where nothing listens
	down                bool  // the kubelet calls the runtime down: its status has failed for 30 s
	peak                int   // hung calls that the worst age counts; 0: it counts none
	moving              bool  // relists end, each too late
	allHung, allScatter bool  // hung calls account for the length of each relist; of few of them
}

// NewIncident counts the records around an episode.
func NewIncident(e *journal.Episode) *Incident {
	in := &Incident{Episode: e, Context: e.Context, byCode: map[string][]*journal.Burst{}}
	for _, b := range in.Bursts {
		in.byCode[b.Code] = append(in.byCode[b.Code], b)
	}
	lists, all := []string{signature.RelistFailed, signature.ListFailed}, journal.RuntimeCalls()
	in.failing, in.missed = in.calls(isFailed, all...), in.calls(isLate, all...)
	in.lists, in.listsMissed = in.calls(isFailed, lists...), in.calls(isLate, lists...)
	in.statusMissed = in.calls(isLate, signature.SanityCheckFailed)
	in.refused = max(in.calls(journal.Call.Refused, all...), in.count(signature.RuntimeUnreachable))
	in.down = slices.Contains(e.Reasons, reasonRuntimeDown) || in.count(signature.RuntimeIsDown) > 0
	in.peak, in.moving = in.hungCalls(), len(in.Stalls) > 1
	odd := 0
	for _, d := range in.Relists {
		if deadlinesIn(d) == 0 {
			odd++
		}
	}
	in.allHung = len(in.Relists) > 1 && odd == 0 // two that agree by chance are one in 400
	in.allScatter = len(in.Relists) > 1 && 2*odd > len(in.Relists)
	return in
}

// reasonRuntimeDown is the reason that a record has for a runtime without a good status.
const reasonRuntimeDown = "container runtime is down"

func isLate(c journal.Call) bool { return c.Code == "DeadlineExceeded" }

// isFailed excludes calls that the kubelet cancelled, as it does when it stops.
func isFailed(c journal.Call) bool { return c.Code != "Canceled" }

// last returns when the last of some records was written, zero for none and where the log has no times.
func last(bursts []*journal.Burst) time.Time {
	var at time.Time
	for _, b := range bursts {
		if b.Last().After(at) {
			at = b.Last()
		}
	}
	return at
}

// each returns the bursts of some codes, code by code.
func (in *Incident) each(codes ...string) []*journal.Burst {
	var out []*journal.Burst
	for _, code := range codes {
		out = append(out, in.byCode[code]...)
	}
	return out
}

// calls returns how many records of the codes are failures of a kind.
func (in *Incident) calls(is func(journal.Call) bool, codes ...string) int64 {
	n := int64(0)
	for _, b := range in.each(codes...) {
		if is(b.Call()) {
			n += b.Count
		}
	}
	return n
}

// count returns how many records bear one of the codes.
func (in *Incident) count(codes ...string) int64 {
	return in.calls(func(journal.Call) bool { return true }, codes...)
}

// age is the worst age that a record of the incident states.
func (in *Incident) age() time.Duration { return units.ToDuration(in.MaxLastSeenSeconds) }

const (
	// callDeadline is the kubelet's default deadline of most calls to the runtime (runtimeRequestTimeout in
	// pkg/kubelet/apis/config/v1beta1/defaults.go).
	callDeadline = 2 * time.Minute
	// maxHungCalls is the most hung calls that an age can count: beyond, an age is near a multiple of the deadline
	// by chance.
	maxHungCalls = 6
)

// hungCalls returns how many hung calls the worst age counts. Only a stall that ended has a worst age; where a log is
// cut, its last record has just an age.
func (in *Incident) hungCalls() int {
	// An age counts calls from 30 s beyond the threshold on: every stall passes the threshold itself, which is near a
	// multiple of the deadline when it is 10 min.
	threshold := cmp.Or(units.ToDuration(in.ThresholdSeconds), 3*time.Minute)
	ended := in.Recovered || len(in.Stalls) > 1 &&
		in.Stalls[len(in.Stalls)-1].MaxLastSeenSeconds < in.MaxLastSeenSeconds
	n := int(math.Round(in.age().Seconds() / callDeadline.Seconds()))
	// The last line comes up to 5 s before the call ends, or the relist ends a little after it.
	d := in.age() - time.Duration(n)*callDeadline
	if !ended || in.age() < threshold+30*time.Second || n > maxHungCalls || d < -6*time.Second || d > 8*time.Second {
		return 0
	}
	return n
}

// deadlinesIn returns how many deadlines of a call a relist took, 0 if that does not account for its length: the other
// inspections take some seconds too.
func deadlinesIn(relist time.Duration) int {
	n := (relist + time.Second) / callDeadline
	if n > maxHungCalls || relist-n*callDeadline > 5*time.Second {
		return 0
	}
	return int(n)
}

// relistsText describes the lengths of the relists.
func (in *Incident) relistsText() string {
	if len(in.Relists) == 0 {
		return ""
	}
	text := textf("%d relists in a row took %s to %s, by the time from anchor to anchor", len(in.Relists),
		slices.Min(in.Relists), slices.Max(in.Relists))
	return text + ifElse(in.allHung, ": calls that waited for their 2 min deadline", "")
}

// begin returns when the incident began: at the anchor, else at the first unhealthy record.
func (in *Incident) begin() *time.Time { return cmp.Or(in.Anchor, in.Start) }

// writtenAfter is the longest time between a fault and its record.
func writtenAfter(b *journal.Burst) time.Duration {
	switch b.Code {
	case signature.HungTask:
		// The kernel looks every N s and reports what has not moved for N s, so it began N to 2N s before
		// (kernel/hung_task.c); later reports of one task state a larger N.
		return 2 * max(units.ToDuration(b.Seconds), time.Minute)
	case signature.SoftLockup:
		return max(units.ToDuration(b.Seconds), 20*time.Second)
	case signature.OOMKill, signature.UnitOOMKilled, signature.UnitFailed:
		return 0 // happens when it is written
	case signature.NFSNotResponding, signature.BlockIOError:
		// written once all repetitions have failed: timeo=600, retrans=2 of nfs(5); 30 s a try for disks
		return 3 * time.Minute
	}
	return 2 * time.Minute // a lasting state, of which somebody writes when it next gets in the way
}

// found words how often and when records of the codes occur, such as "relist failed: 3 records, 00:51:11 to 00:55:11
// UTC (DeadlineExceeded)".
func (in *Incident) found(codes ...string) []string {
	out := []string{}
	for _, code := range codes {
		if all := in.byCode[code]; len(all) > 0 {
			text := cmp.Or(all[0].Title, code) + ": " + units.Count(in.count(code), "record") + in.when(code)
			if c := all[0].Call(); c.Code != "" {
				text += " (" + strings.TrimSpace(c.RPC+" "+c.Code) + ")"
			}
			out = append(out, text)
		}
	}
	return out
}

// when writes when the records of a code were written, in the zone of the log; nothing where there are none.
func (in *Incident) when(code string) string {
	all := in.byCode[code]
	if last(all).IsZero() {
		return ""
	}
	first := slices.MinFunc(all, func(a, b *journal.Burst) int { return a.First().Compare(b.First()) }).First()
	a, b := first.In(in.Zone), last(all).In(in.Zone)
	zone := "UTC"
	if _, offset := a.Zone(); offset != 0 {
		zone = a.Format("-07:00")
	}
	if b.Sub(a) < time.Second {
		return ", " + a.Format(time.TimeOnly) + " " + zone
	}
	return textf(", %s to %s %s", a.Format(time.TimeOnly), b.Format(time.TimeOnly), zone)
}

// FromLog returns what the log alone shows of all causes around an incident, or that it does not explain the incident.
func (in *Incident) FromLog() []Finding {
	var all []Finding
	explained := false
	for _, d := range All() {
		if d.FromLog == nil {
			continue
		}
		f := d.FromLog(in)
		if f == nil {
			continue
		}
		if in.LoopStall != nil && d.LateCalls {
			f.unlikely("the kubelet itself stood still, which explains the age, and calls that missed their " +
				"deadline meanwhile")
		}
		f.Code = d.Code
		explained = explained || checks.Confidence(f.Step, f.Evidence) >= checks.Weak
		all = append(all, *f)
	}
	if !explained {
		all = append(all, *in.unexplained())
	}
	return all
}

func (in *Incident) unexplained() *Finding {
	what := ifElse(in.Kind == journal.Failing, "Relists fail", "PLEG is not healthy")
	what = ifElse(in.NotReady != "", "The node is NotReady", what)
	f := in.finding(raised(checks.Weak, true), what+", and the logs do not show why.")
	f.Code = PLEGUnhealthy
	text := units.Count(in.Lines, "record") + ifElse(in.failing == 0, ", no failing call among them", "")
	return f.supports(text).lacks("records of failing calls, of the runtime or of the kernel that would explain it; " +
		"that there are none proves nothing: many details are only logged at -v=4")
}

// maxCulprits bounds the objects named in an incident.
const maxCulprits = 10

// Culprits lists the objects that failing calls around an incident name: those that inspections name first, because
// these hold up PLEG itself, then by how often.
func (in *Incident) Culprits() []journal.Culprit {
	at := map[journal.Object]int{}
	var all []journal.Culprit
	for _, b := range in.Bursts { // by time
		o := b.Object()
		if o == (journal.Object{}) || !blames(b.Code) || b.Call().Innocent() {
			continue
		}
		i, ok := at[o]
		if !ok {
			i = len(all)
			at[o] = i
			all = append(all, journal.Culprit{
				Kind: o.Kind, ID: journal.Clean(o.ID, 200), Name: journal.Clean(o.Name, 200),
				Namespace: journal.Clean(o.Namespace, 100), Pod: journal.Clean(o.Pod, 260),
				PodUID: journal.Clean(o.PodUID, 64), Example: b.Code,
			})
		}
		all[i].Records += int(b.Count)
		if b.Code == signature.InspectFailed {
			all[i].Example = b.Code
		}
	}
	rank := func(c journal.Culprit) int { return ifElse(c.Example == signature.InspectFailed, 0, 1) }
	slices.SortStableFunc(all, func(a, b journal.Culprit) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Records, a.Records))
	})
	return all[:min(len(all), maxCulprits)]
}

// blames reports whether failing records of a signature speak against the object that they name.
func blames(code string) bool {
	switch code {
	case signature.InspectFailed, signature.StopFailed, signature.RemoveFailed, signature.CreateFailed,
		signature.UpdateFailed, signature.ExecFailed, signature.PodSyncFailed, signature.RuntimeCallFailed,
		signature.NameReserved, signature.ShimUnresponsive, signature.ExitEventFailed, signature.KillFailed,
		signature.RuntimeStalled, signature.ProcessBlocked, signature.HungTask, signature.SoftLockup,
		signature.OOMKill, signature.NFSNotResponding, signature.FilesystemError, signature.BlockIOError,
		signature.NetdeviceLeak, signature.MountFailed:
		return true
	}
	return false
}

// essentialVictim returns the first part of runtime or kubelet that was killed for memory. What dies by the limit of a
// pod, or of a cgroup that the log does not name, is of that pod, whatever its name is: docker in docker, kind, builds.
func (in *Incident) essentialVictim() *journal.Burst {
	essential := []journal.Role{journal.RoleRuntime, journal.RoleShim, journal.RoleKubelet}
	inPod, placed := map[journal.Object]bool{}, map[journal.Object]bool{}
	for _, b := range in.each(signature.OOMInvoked, signature.OOMKill) {
		inPod[b.Object()] = inPod[b.Object()] || b.Call().InPod()
		placed[b.Object()] = placed[b.Object()] || b.Call().Cgroup != ""
	}
	for _, b := range in.each(signature.OOMKill, signature.UnitOOMKilled) {
		o, role := b.Object(), b.Call().Role
		if o.Kind != "Unit" {
			role = journal.TaskRole(o.Name)
		}
		if slices.Contains(essential, role) && (b.Call().Constraint != "memcg" || placed[o] && !inPod[o]) {
			return b
		}
	}
	return nil
}

// failedDisk recognises a disk that fails, by records of some codes. Loop devices alone do not count.
func (in *Incident) failedDisk(summary string, codes ...string) *Finding {
	f := in.early(checks.Strong, summary, codes...)
	disk := func(b *journal.Burst) bool { return !strings.HasPrefix(b.Object().ID, "loop") }
	if !slices.ContainsFunc(in.each(codes...), disk) {
		return f.unlikely("only loop devices fail, which do not hold the runtime's data")
	}
	return f
}

// exhausted recognises a resource that ran out, by words that any program uses: it is unlikely to be the cause where no
// record is of the runtime or its files, of the node as a whole, or of the kubelet.
func (in *Incident) exhausted(summary, code string) *Finding {
	own, kubelet := false, int64(0)
	for _, b := range in.each(code) {
		switch c := b.Call(); c.Role {
		case journal.RoleKubelet:
			kubelet += b.Count
		case journal.RoleRuntime, journal.RoleShim, journal.RoleOCI:
			own = true
		default:
			own = own || c.Everywhere || b.Object().Kind == "Filesystem" && ofRuntime(b.Object().ID)
		}
	}
	f := in.early(checks.Strong, summary, code)
	if !own && kubelet < 2 {
		return f.unlikely("the log does not show that the runtime or the kubelet is affected")
	}
	return f
}

// ofRuntime reports whether a path is where runtimes and kubelets keep their files.
func ofRuntime(path string) bool {
	return slices.ContainsFunc([]string{
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher",
		"/var/snap/microk8s", "/run", "/var/run", "/var/log/pods", "/var/log/containers",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// runtimeEnd returns the records of systemd that the runtime's unit ended by itself, and whether the runtime was
// started after its end.
func (in *Incident) runtimeEnd() (ended []*journal.Burst, again bool) {
	for _, b := range in.each(signature.UnitFailed, signature.UnitOOMKilled) {
		if b.Call().Role == journal.RoleRuntime {
			ended = append(ended, b)
		}
	}
	end := last(slices.Concat(ended, in.each(signature.RuntimeStopped)))
	return ended, slices.ContainsFunc(in.each(signature.UnitStarted, signature.RuntimeStarted),
		func(b *journal.Burst) bool {
			return b.Last().After(end) && (b.Code == signature.RuntimeStarted || b.Call().Role == journal.RoleRuntime)
		})
}

// signalled words that systemd sent a signal to the daemon of a role; empty if it did not.
func (in *Incident) signalled(role journal.Role, signal string) string {
	for _, b := range in.each(signature.UnitSignalled) {
		if c := b.Call(); c.Role == role && c.Text == signal {
			return textf("systemd sent %s to %s at %s", signal, b.Object().Label(),
				b.First().In(in.Zone).Format(time.TimeOnly))
		}
	}
	return ""
}

// statusAlone reports whether only the runtime's status hangs: the node is NotReady for it, and no list fails.
func (in *Incident) statusAlone() bool {
	return in.NotReady == signature.RuntimeIsDown && in.statusMissed > 0 && in.lists == 0
}

// answeredAgain reports whether the last record of a socket that does not speak CRI v1 comes after the last refused
// call.
func (in *Incident) answeredAgain() bool {
	return in.count(signature.CRIUnsupported) > 0 && (in.count(signature.RuntimeUnreachable) == 0 ||
		last(in.each(signature.CRIUnsupported)).After(last(in.each(signature.RuntimeUnreachable))))
}

// refusals writes how often calls were refused: one call writes two or three records.
func (in *Incident) refusals() string {
	return "refused calls: " + units.Count(in.refused, "record") + in.when(signature.RuntimeUnreachable)
}

// listedDown is that the kubelet calls the runtime down.
const listedDown = "the kubelet logs \"" + reasonRuntimeDown + "\""

// lateLists counts the lists that missed their deadline one after the other, by the time between their records: the
// records of one call lie within a second, those of the next one a deadline later.
func (in *Incident) lateLists() int {
	var at []time.Time
	for _, b := range in.each(signature.RelistFailed, signature.ListFailed) {
		if isLate(b.Call()) {
			at = append(at, b.First(), b.Last())
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return len(slices.CompactFunc(at, func(a, b time.Time) bool { return b.Sub(a).Abs() <= time.Minute }))
}

// movingText is that relists end, but each too late.
func (in *Incident) movingText() string {
	return textf("the anchor moves: %d different relists were late one after the other", len(in.Stalls))
}
