package causes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// Tiers of causes: what stands lower can be the root of what stands higher, hardly the other way round.
const (
	hostTier = iota
	objectTier
	runtimeTier
	kubeletTier
	SymptomTier
)

// An LogFinding is a cause of an incident in the making.
type LogFinding struct {
	journal.Cause
	Tier int
}

func newLogFinding(code string, tier int, confidence float64, summary string) *LogFinding {
	return &LogFinding{Tier: tier, Cause: journal.Cause{
		Code: code, Confidence: confidence, Summary: summary,
		Evidence: journal.Evidence{For: []string{}, Against: []string{}, Missing: []string{}},
	}}
}

// addFor adds evidence for the cause; empty texts are left out.
func (f *LogFinding) addFor(texts ...string) *LogFinding {
	f.Evidence.For = AddTexts(f.Evidence.For, texts)
	return f
}

func (f *LogFinding) addAgainst(texts ...string) *LogFinding {
	f.Evidence.Against = AddTexts(f.Evidence.Against, texts)
	return f
}

func (f *LogFinding) AddMissing(texts ...string) *LogFinding {
	f.Evidence.Missing = AddTexts(f.Evidence.Missing, texts)
	return f
}

// raise adds evidence for the cause, and how much surer it makes.
func (f *LogFinding) raise(by float64, texts ...string) {
	f.Confidence += by
	f.addFor(texts...)
}

// lower adds evidence against the cause, and how much less sure it makes.
func (f *LogFinding) lower(by float64, text string) {
	f.Confidence -= by
	f.addAgainst(text)
}

// limit adds evidence against the cause that leaves it no more than a confidence.
func (f *LogFinding) limit(most float64, text string) {
	f.Confidence = min(f.Confidence, most)
	f.addAgainst(text)
}

func AddTexts(list, texts []string) []string {
	for _, t := range texts {
		if t != "" && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// An Incident is an episode of a log with what the recognisers ask of its surroundings.
type Incident struct {
	*journal.Episode
	*journal.Surroundings
	byCode map[string]*incidentRecords

	// How the runtime's calls fail, counted in records. One failing call writes up to three.
	failing                  int64 // all
	lists, listsLate         int64 // of relists; late ones missed their deadline
	statusLate, allLate      int64
	inspectLate, objectsLate int64 // of single pods and containers: inspected; stopped, removed, entered
	refused, unsupported     int64 // on a socket where nothing listens; that does not speak CRI v1
	down                     bool  // the kubelet calls the runtime down: its status has failed for 30 s
	peak                     int   // hung calls that the worst age counts; 0: it counts none
}

// incidentRecords is how records of one code occur around an incident.
type incidentRecords struct {
	count       int64
	first, last time.Time // zero where the log has no times
	bursts      []*journal.Burst
}

func NewIncident(e *journal.Episode) *Incident {
	in := &Incident{Episode: e, Surroundings: e.Surroundings, byCode: map[string]*incidentRecords{}}
	if in.Surroundings == nil {
		in.Surroundings = &journal.Surroundings{Zone: time.UTC}
	}
	for _, b := range in.Bursts {
		if in.byCode[b.Code] == nil {
			in.byCode[b.Code] = &incidentRecords{}
		}
		in.byCode[b.Code].add(b)
	}
	lists := []string{signature.RelistFailed, signature.ListFailed}
	in.failing = in.count(journal.RuntimeCalls()...)
	in.lists, in.listsLate = in.count(lists...), in.late(lists...)
	in.statusLate, in.allLate = in.late(signature.SanityCheckFailed), in.late(journal.RuntimeCalls()...)
	in.inspectLate = in.late(signature.InspectFailed)
	in.objectsLate = in.late(signature.StopFailed, signature.RemoveFailed, signature.ExecFailed)
	in.refused = max(in.calls(journal.Call.Refused, journal.RuntimeCalls()...), in.count(signature.RuntimeUnreachable))
	in.unsupported = in.count(signature.CRIUnsupported)
	in.down = slices.Contains(e.Reasons, reasonRuntimeDown) || in.count(signature.RuntimeIsDown) > 0
	in.peak = in.hungCalls()
	return in
}

// reasonRuntimeDown is how a record lists a runtime without a good status beside PLEG.
const reasonRuntimeDown = "container runtime is down"

func (v *incidentRecords) add(b *journal.Burst) {
	if v.count == 0 {
		v.first, v.last = b.First(), b.Last()
	}
	v.count += b.Count
	if b.First().Before(v.first) {
		v.first = b.First()
	}
	if b.Last().After(v.last) {
		v.last = b.Last()
	}
	v.bursts = append(v.bursts, b)
}

// records returns the records of a code; nil if there are none.
func (in *Incident) records(code string) *incidentRecords { return in.byCode[code] }

// ofRole returns the records of a code that name a unit of a role; nil if there are none.
func (in *Incident) ofRole(code string, want journal.Role) *incidentRecords {
	v := &incidentRecords{}
	for _, b := range in.each(code) {
		if b.Call().Role == want {
			v.add(b)
		}
	}
	if v.count == 0 {
		return nil
	}
	return v
}

// each returns the bursts of some codes, code by code.
func (in *Incident) each(codes ...string) []*journal.Burst {
	var out []*journal.Burst
	for _, code := range codes {
		if v := in.byCode[code]; v != nil {
			out = append(out, v.bursts...)
		}
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

// late returns how many records of the codes are of calls that missed their deadline.
func (in *Incident) late(codes ...string) int64 {
	return in.calls(func(c journal.Call) bool { return c.Code == "DeadlineExceeded" }, codes...)
}

// anyTask reports whether records of the codes name a process that fits.
func (in *Incident) anyTask(fits func(string) bool, codes ...string) bool {
	return slices.ContainsFunc(in.each(codes...), func(b *journal.Burst) bool {
		return b.Object().Kind == "Process" && fits(b.Object().Name)
	})
}

// age is the worst age that a record of the incident states.
func (in *Incident) age() time.Duration {
	return time.Duration(in.MaxLastSeenSeconds * float64(time.Second))
}

const (
	// callDeadline is the kubelet's default deadline of most calls to the runtime (runtimeRequestTimeout in
	// pkg/kubelet/apis/config/v1beta1/defaults.go).
	callDeadline = 2 * time.Minute
	// maxHungCalls is up to how many hung calls an age can count: beyond, being near a multiple of the deadline is
	// chance.
	maxHungCalls = 6
)

// hungCalls returns how many hung calls the worst age counts. Only a stall that ended has a worst age; where a log is
// cut, its last record has just an age.
func (in *Incident) hungCalls() int {
	// An age counts calls from 30 s beyond the threshold on: every stall passes the threshold itself, which is near a
	// multiple of the deadline when it is 10 min.
	threshold := cmp.Or(time.Duration(in.ThresholdSeconds*float64(time.Second)), 3*time.Minute)
	ended := in.Recovered || len(in.Stalls) > 1 &&
		in.Stalls[len(in.Stalls)-1].MaxLastSeenSeconds < in.MaxLastSeenSeconds
	n := int(math.Round(in.age().Seconds() / callDeadline.Seconds()))
	if !ended || in.age() < threshold+30*time.Second || n < 2 || n > maxHungCalls {
		return 0
	}
	// The last line comes up to 5 s before the call ends, or the relist ends a little after it.
	if d := in.age() - time.Duration(n)*callDeadline; d < -6*time.Second || d > 8*time.Second {
		return 0
	}
	return n
}

// deadlinesIn returns how many deadlines of a call a relist took, 0 if that does not account for its length: the other
// inspections take some seconds too.
func deadlinesIn(relist time.Duration) int {
	n := (relist + time.Second) / callDeadline
	if n < 1 || n > maxHungCalls || relist-n*callDeadline > 5*time.Second {
		return 0
	}
	return int(n)
}

// relistsHung reports whether hung calls account for the length of each relist. Two that agree by chance are one in
// 400.
func (in *Incident) relistsHung() bool {
	return len(in.Relists) >= 2 && !slices.ContainsFunc(in.Relists,
		func(d time.Duration) bool { return deadlinesIn(d) == 0 })
}

// relistsScattered reports whether relists take long, each for another time, so that no deadline accounts for them.
func (in *Incident) relistsScattered() bool {
	odd := 0
	for _, d := range in.Relists {
		if deadlinesIn(d) == 0 {
			odd++
		}
	}
	return len(in.Relists) >= 2 && !in.relistsHung() && 2*odd > len(in.Relists)
}

// relistsText describes the lengths of the relists.
func (in *Incident) relistsText() string {
	list := slices.Sorted(slices.Values(in.Relists))
	seconds := func(d time.Duration) string { return fmt.Sprintf("%g s", math.Round(d.Seconds()*10)/10) }
	span := seconds(list[0])
	if most := list[len(list)-1]; most-list[0] >= time.Second {
		span += " to " + seconds(most)
	}
	text := fmt.Sprintf("%d relists in a row took %s, by the time from anchor to anchor", len(list), span)
	if !in.relistsHung() {
		return text
	}
	var counts []string
	for _, d := range list {
		counts = AddTexts(counts, []string{fmt.Sprint(deadlinesIn(d))})
	}
	return text + ": " + strings.Join(counts, " or ") + " calls that waited for their 2 min deadline"
}

// begin returns when the incident began: at the anchor, else at the first unhealthy record.
func (in *Incident) begin() *time.Time {
	if in.Anchor != nil {
		return in.Anchor
	}
	return in.Start
}

const (
	// beginSlack is how long after the anchor what holds up the next relist may have begun: relists are 1 s apart
	// (relistPeriod in pkg/kubelet/kubelet.go), and one on a full node takes some seconds.
	beginSlack = 30 * time.Second
	// lateConfidence is the most that a cause is worth which began after the incident: less than "the logs do not say
	// why".
	lateConfidence = 0.35
)

// writtenAfter is how long before its record something can have begun.
func writtenAfter(b *journal.Burst) time.Duration {
	stated := time.Duration(b.Seconds * float64(time.Second))
	switch b.Code {
	case signature.HungTask:
		// The kernel looks every N s and reports what has not moved for N s, so it began N to 2N s before
		// (kernel/hung_task.c); later reports of one task state a larger N.
		return 2 * max(stated, time.Minute)
	case signature.SoftLockup:
		return max(stated, 20*time.Second)
	case signature.OOMKill, signature.UnitOOMKilled, signature.UnitFailed, signature.UnitStopped,
		signature.RuntimeStopped:
		return 0 // happens when it is written
	case signature.NFSNotResponding, signature.BlockIOError:
		// written once all repetitions have failed: timeo=600, retrans=2 of nfs(5); 30 s a try for disks
		return 3 * time.Minute
	}
	return 2 * time.Minute // a lasting state, of which somebody writes when it next gets in the way
}

// lowerIfLate takes from a cause that began only after the incident what makes it a root.
func (in *Incident) lowerIfLate(f *LogFinding, codes ...string) {
	var earliest time.Time
	for _, b := range in.each(codes...) {
		if t := b.First(); !t.IsZero() {
			if t = t.Add(-writtenAfter(b)); earliest.IsZero() || t.Before(earliest) {
				earliest = t
			}
		}
	}
	begin := in.begin()
	if begin == nil || earliest.IsZero() || !earliest.After(begin.Add(beginSlack)) {
		return
	}
	f.limit(lateConfidence, fmt.Sprintf("it began %s or more after the last good relist, so it is no root",
		roughly(earliest.Sub(*begin))))
}

// found words how often and when records of a code occur, such as "relist failed: 3 records, 00:51:11 to 00:55:11 UTC".
func (in *Incident) found(codes ...string) []string {
	var out []string
	for _, code := range codes {
		if v := in.byCode[code]; v != nil {
			out = append(out, in.describe(code, v))
		}
	}
	return out
}

// describe is found for some of the records of a code.
func (in *Incident) describe(code string, v *incidentRecords) string {
	var extra []string
	if names := objectNames(v); names != "" {
		extra = append(extra, names)
	}
	if c := v.bursts[0].Call(); c.Code != "" {
		extra = append(extra, strings.TrimSpace(c.RPC+" "+c.Code))
	}
	longest := 0.0
	for _, b := range v.bursts {
		longest = max(longest, b.Seconds)
	}
	if longest >= 1 {
		extra = append(extra, "up to "+roughly(time.Duration(longest*float64(time.Second))))
	}
	text := cmp.Or(v.bursts[0].Title, code) + ": " + recordCount(v.count) + in.when(v.first, v.last)
	if len(extra) > 0 {
		text += " (" + strings.Join(extra, "; ") + ")"
	}
	return text
}

// objectNames names the objects of some records, at most three.
func objectNames(v *incidentRecords) string {
	var out []string
	had := map[journal.Object]bool{{}: true}
	for _, b := range v.bursts {
		o := b.Object()
		if had[o] || b.Call().Innocent() {
			continue
		}
		had[o] = true
		if len(out) == 3 {
			out = append(out, "and others")
			break
		}
		out = append(out, journal.Clean(o.Label(), 80))
	}
	return strings.Join(out, ", ")
}

// recordCount counts log records, which are more than the calls or events that they are about.
func recordCount(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

// when words when something was seen, in the zone of the log.
func (in *Incident) when(first, last time.Time) string {
	if first.IsZero() {
		return ""
	}
	a, b := first.In(in.Zone), last.In(in.Zone)
	zone := "UTC"
	if _, offset := a.Zone(); offset != 0 {
		zone = a.Format("-07:00")
	}
	if b.Sub(a) < time.Second {
		return ", " + a.Format(time.TimeOnly) + " " + zone
	}
	return fmt.Sprintf(", %s to %s %s", a.Format(time.TimeOnly), b.Format(time.TimeOnly), zone)
}

// roughly rounds a duration as a person would.
func roughly(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	case d >= 90*time.Second:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// LowerForStandstill takes from causes what a kubelet that stood still explains: nobody asked the runtime, and calls
// that were under way missed their deadline by that alone.
func (in *Incident) LowerForStandstill(all []*LogFinding) {
	for _, f := range all {
		switch f.Code {
		case "RuntimeHung", "ListHang", "InspectHang", "RuntimeSlow", "RelistOverloaded", "ShimStuck":
			f.limit(0.3, "the kubelet itself stood still for "+roughly(in.Standstill.Late)+" or more, which explains the age, and calls that missed their deadline meanwhile")
		}
	}
}

// Unexplained is the finding where nothing deeper was found.
func (in *Incident) Unexplained() *LogFinding {
	summary := "The kubelet says that PLEG is not healthy, and the logs do not say why."
	if in.Kind == journal.Failing {
		summary = "Relists fail, and the logs do not say why."
	}
	text := recordCount(int64(in.Lines))
	if in.failing == 0 {
		text += ", no failing call among them"
	}
	return newLogFinding("PLEGUnhealthy", SymptomTier, 0.4, summary).addFor(text).
		AddMissing("records of failing calls, of the runtime or of the kernel that would explain it; that there " +
			"are none proves nothing: many details are only logged at -v=4")
}

// Unseen words what could not be looked at: lanes of which nothing was read, and holes.
func (in *Incident) Unseen() []string {
	var out []string
	if !in.Lanes[string(signature.Runtime)] {
		out = append(out, "no record of the container runtime itself was found in what was read")
	}
	if !in.Lanes[string(signature.Kernel)] {
		out = append(out, "no kernel record of interest was found in what was read")
	}
	if v := in.byCode[signature.LogsSuppressed]; v != nil {
		out = append(out, "journald dropped records around the episode"+in.when(v.first, v.last))
	}
	return out
}

// maxCulprits bounds the objects named in an incident.
const maxCulprits = 10

// Culprits lists the objects that failing calls around an incident name: those that inspections name first, because
// these hold up PLEG itself, then by how often.
func (in *Incident) Culprits() []journal.Culprit {
	type entry struct {
		journal.Culprit
		at time.Time
	}
	byObject := map[journal.Object]*entry{}
	for _, b := range in.Bursts {
		o := b.Object()
		if o == (journal.Object{}) || !blames(b.Code) || b.Call().Innocent() {
			continue
		}
		e := byObject[o]
		if e == nil {
			e = &entry{at: b.First(), Culprit: journal.Culprit{
				Kind: o.Kind, ID: journal.Clean(o.ID, 200), Name: journal.Clean(o.Name, 200),
				Namespace: journal.Clean(o.Namespace, 100),
				Pod:       journal.Clean(o.Pod, 260), PodUID: journal.Clean(o.PodUID, 64), Example: b.Code,
			}}
			byObject[o] = e
		}
		e.Records += int(b.Count)
		if b.Code == signature.InspectFailed {
			e.Example = b.Code
		}
	}
	var all []*entry
	for _, e := range byObject {
		all = append(all, e)
	}
	inspected := func(e *entry) int {
		if e.Example == signature.InspectFailed {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(inspected(a), inspected(b)), cmp.Compare(b.Records, a.Records), a.at.Compare(b.at),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod, b.Pod))
	})
	var out []journal.Culprit
	for _, e := range all[:min(len(all), maxCulprits)] {
		out = append(out, e.Culprit)
	}
	return out
}

// blames reports whether failing records of a signature speak against the object that they name.
func blames(code string) bool {
	switch code {
	case signature.InspectFailed, signature.StopFailed, signature.RemoveFailed, signature.CreateFailed,
		signature.UpdateFailed, signature.ExecFailed,
		signature.PodSyncFailed, signature.RuntimeCallFailed, signature.NameReserved, signature.ShimUnresponsive,
		signature.ExitEventFailed, signature.KillFailed, signature.RuntimeStalled, signature.ProcessBlocked,
		signature.HungTask,
		signature.SoftLockup, signature.OOMKill, signature.NFSNotResponding, signature.FilesystemError,
		signature.BlockIOError,
		signature.NetdeviceLeak, signature.MountFailed:
		return true
	}
	return false
}
