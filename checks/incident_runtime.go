package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// incidentInspectHang is for status calls of single pods or containers that do not come back.
func incidentInspectHang(in *Incident) *incidentFinding {
	if in.inspectLate == 0 && (in.peak == 0 && !in.relistsHung() || in.down || in.lists > 0) {
		return nil
	}
	f := newIncidentFinding("InspectHang", objectTier, 0.25,
		"Single pods or containers cannot be inspected; the relist waits two minutes for each.")
	if in.inspectLate > 0 {
		f.raise(0.5, in.found(signature.InspectFailed)...)
		if slices.ContainsFunc(in.culprits(), func(c journal.Culprit) bool { return c.Example == signature.InspectFailed }) {
			f.Confidence += 0.05
		}
	} else {
		f.addMissing("records that name what could not be inspected; identical ones are printed once a minute at most")
	}
	switch {
	case in.relistsHung():
		f.Confidence += 0.4
		if in.inspectLate > 0 {
			f.Confidence -= 0.3 // the records show it already
		}
		f.addFor(in.relistsText())
	case in.peak > 0:
		f.raise(0.1, fmt.Sprintf("the worst age is near %d times the 2 min deadline of a call: %d calls hung one after the other", in.peak, in.peak))
	}
	if in.listsLate > 0 || in.down {
		f.lower(0.4, "lists or the status do not come back either, so the trouble is wider than these objects")
	}
	return f
}

func incidentShimStuck(in *Incident) *incidentFinding {
	codes := []string{signature.ShimUnresponsive, signature.KillFailed, signature.ExitEventFailed}
	if in.count(codes...) == 0 && in.objectsLate == 0 {
		return nil
	}
	f := newIncidentFinding("ShimStuck", objectTier, 0.3, "A container's shim or its process does not react.").
		addFor(in.found(append(codes, signature.StopFailed)...)...)
	if in.count(signature.ShimUnresponsive) > 0 {
		f.Confidence += 0.35
	}
	if in.count(signature.KillFailed, signature.ExitEventFailed) > 0 {
		f.Confidence += 0.2
	}
	if in.listsLate > 0 && in.down {
		f.lower(0.1, "the whole runtime hangs; stopping containers fails in its wake")
	}
	return f
}

func incidentTaskStuck(in *Incident) *incidentFinding {
	if in.count(signature.ProcessBlocked) == 0 {
		return nil
	}
	return newIncidentFinding("TaskStuck", objectTier, 0.6,
		"A container's process cannot be killed: it waits in the kernel.").
		addFor(in.found(signature.ProcessBlocked)...)
}

func incidentListTooLarge(in *Incident) *incidentFinding {
	if in.records(signature.MessageTooLarge) == nil {
		return nil
	}
	f := newIncidentFinding("ListTooLarge", objectTier, 0.93,
		"The answer to a list is larger than gRPC lets through, so no relist can succeed.")
	for _, b := range in.each(signature.MessageTooLarge) {
		if c := b.Call(); c.Size != 0 {
			side := "the kubelet refuses to receive it"
			if c.Sending {
				side = "the runtime refuses to send it"
			}
			f.addFor(fmt.Sprintf("%d bytes against a limit of %d: %s", c.Size, c.Limit, side))
			break
		}
	}
	return f.addFor(in.found(signature.RelistFailed, signature.MessageTooLarge)...)
}

func incidentTooManyExited(in *Incident) *incidentFinding {
	tooLarge := in.count(signature.MessageTooLarge) > 0
	if in.count(signature.ContainerGCFailed, signature.RemoveFailed) == 0 || !tooLarge &&
		in.count(signature.RemoveFailed) < 5 {
		return nil
	}
	f := newIncidentFinding("TooManyExited", objectTier, 0.35,
		"Dead containers or sandboxes are not removed and pile up.").
		addFor(in.found(signature.ContainerGCFailed, signature.RemoveFailed)...).addMissing("how many there are")
	if tooLarge {
		f.raise(0.25, "the lists have grown too large to be sent")
	}
	return f
}

// incidentCNIHung: the runtime's status takes CNI's lock, so a hung plugin makes the kubelet call the runtime down
// while lists answer.
func incidentCNIHung(in *Incident) *incidentFinding {
	if in.count(signature.CNIFailed) == 0 {
		return nil
	}
	f := newIncidentFinding("CNIHung", objectTier, 0.25,
		"CNI plugins fail or hang: pods cannot be set up or torn down.").addFor(in.found(signature.CNIFailed)...)
	if in.late(signature.CNIFailed) > 0 {
		f.raise(0.25, "they miss their deadline")
	}
	if in.down && in.lists == 0 {
		f.raise(0.2, "the runtime's status hangs and no list is on record as failing, as when CNI's lock is held")
	}
	if in.listsLate > 0 {
		f.lower(0.15, "the lists hang too, and these do not wait for CNI")
	}
	return f
}

func incidentNetworkNotReady(in *Incident) *incidentFinding {
	codes := []string{signature.NetworkNotReady, signature.CNINotInitialized}
	if in.count(codes...) == 0 {
		return nil
	}
	return newIncidentFinding("NetworkNotReady", symptomTier, 0.25, "The runtime has no working pod network.").
		addFor(in.found(codes...)...).addAgainst("a missing network does not make PLEG unhealthy")
}

// runtimeEnd is how systemd reports that the runtime's unit ended by itself, before the incident or at its beginning,
// and how it was started again.
func (in *Incident) runtimeEnd() (ended []string, again string) {
	var last time.Time
	for _, code := range []string{signature.UnitFailed, signature.UnitOOMKilled} {
		if v := in.ofRole(code, journal.RoleRuntime); v != nil {
			ended = append(ended, in.describe(code, v))
			if v.last.After(last) {
				last = v.last
			}
		}
	}
	for _, v := range []*incidentRecords{in.ofRole(signature.UnitStarted, journal.RoleRuntime),
		in.records(signature.RuntimeStarted)} {
		if ended != nil && v != nil && v.last.After(last) {
			again = "the runtime was started again" + in.when(v.first, v.last)
		}
	}
	return ended, again
}

// answeredAgain reports whether the last record of a socket that does not speak CRI v1 comes after the last refused
// call.
func (in *Incident) answeredAgain() bool {
	unsupported, refused := in.records(signature.CRIUnsupported), in.records(signature.RuntimeUnreachable)
	return unsupported != nil && (refused == nil || unsupported.last.After(refused.last))
}

// refusals words how often calls were refused: one call writes two or three records.
func (in *Incident) refusals() string {
	text := "refused calls: " + recordCount(in.refused)
	if v := in.records(signature.RuntimeUnreachable); v != nil {
		text += in.when(v.first, v.last)
	}
	return text
}

// listedDown words that the kubelet calls the runtime down.
const listedDown = "the kubelet lists \"" + reasonRuntimeDown + "\""

func incidentRuntimeDown(in *Incident) *incidentFinding {
	stopped := in.records(signature.RuntimeStopped)
	ended, again := in.runtimeEnd()
	if in.refused == 0 && stopped == nil && ended == nil {
		return nil
	}
	f := newIncidentFinding("RuntimeDown", runtimeTier, 0.55, "The runtime's daemon is not running.").
		addFor(in.found(signature.RuntimeStopped)...).addFor(ended...)
	if in.refused > 0 {
		f.Confidence += 0.2
		f.Summary = "Nothing listens on the runtime's socket: the daemon is not running."
		f.addFor(in.refusals())
	} else if ended != nil {
		f.Confidence += 0.05
		in.lowerIfLate(f, signature.UnitFailed, signature.UnitOOMKilled)
	}
	switch {
	case in.answeredAgain():
		f.lower(0.4, "something listens again, though not as a CRI runtime: "+in.found(signature.CRIUnsupported)[0])
	case in.down:
		f.raise(0.1, listedDown)
	}
	if started := in.records(signature.RuntimeStarted); started != nil &&
		(stopped == nil || started.last.After(stopped.last)) {
		again = "the runtime was started again" + in.when(started.first, started.last)
	}
	if again != "" {
		f.lower(0.15, again)
	}
	if in.allLate > in.refused {
		f.lower(0.2, "calls rather missed their deadline than were refused: "+recordCount(in.allLate))
	}
	return f
}

// incidentRuntimeUnsupported is for a socket that answers every call, but not as CRI v1: containerd without its CRI
// plugin, another program, a runtime that is too old. Relists fail at once, each second, and so does the status.
func incidentRuntimeUnsupported(in *Incident) *incidentFinding {
	if in.unsupported == 0 {
		return nil
	}
	f := newIncidentFinding("RuntimeUnsupported", runtimeTier, 0.35,
		"Something listens on the runtime's socket that does not speak CRI v1: the runtime's CRI plugin is disabled, or it is another program.").
		addFor(in.found(signature.CRIUnsupported)...)
	unimplemented := func(c journal.Call) bool { return c.Code == "Unimplemented" }
	if in.calls(unimplemented, signature.RelistFailed, signature.ListFailed) > 0 {
		f.raise(0.4, "the lists of every relist fail with it")
	}
	if in.down && in.answeredAgain() {
		f.raise(0.1, listedDown)
	}
	switch {
	case in.refused > 0 && in.answeredAgain():
		f.addFor(in.refusals() + ": before that, when nothing listened, as while the daemon is started again")
	case in.refused > 0:
		f.lower(0.4, "calls were refused after that: "+in.refusals())
	}
	return f
}

// incidentRuntimeNotReady is for a runtime that answers Status and says itself that it is not ready. Such an answer
// does not count as a good status, so "container runtime is down" appears after 30 s too (pkg/kubelet/kubelet.go,
// updateRuntimeUp).
func incidentRuntimeNotReady(in *Incident) *incidentFinding {
	if in.count(signature.RuntimeNotReadyReported) == 0 {
		return nil
	}
	f := newIncidentFinding("RuntimeNotReady", runtimeTier, 0.7,
		"The runtime answers, and says itself that it is not ready.").
		addFor(in.found(signature.RuntimeNotReadyReported)...)
	for _, r := range in.Reasons {
		if strings.Contains(r, "RuntimeReady=false") {
			f.addFor("the kubelet lists \"" + r + "\"")
		}
	}
	if in.statusLate+in.listsLate > 0 {
		f.lower(0.3, "calls missed their deadline as well")
	}
	if in.refused > 0 {
		f.lower(0.3, "calls were refused as well")
	}
	return f
}

func incidentRuntimeHung(in *Incident) *incidentFinding {
	if !in.down && in.statusLate == 0 || in.refused > in.allLate {
		return nil
	}
	f := newIncidentFinding("RuntimeHung", runtimeTier, 0.5,
		"The runtime accepts calls and answers none: it hangs as a whole.")
	if in.Recovered {
		f.Summary = "The runtime accepted calls and answered none: it hung as a whole."
	}
	if slices.Contains(in.Reasons, reasonRuntimeDown) {
		f.raise(0.1, listedDown+" beside PLEG: neither status nor lists have succeeded")
	}
	f.addFor(in.found(signature.RuntimeIsDown, signature.SanityCheckFailed)...)
	if in.statusLate+in.listsLate == 0 {
		ended, again := in.runtimeEnd()
		if in.count(signature.RuntimeNotReadyReported, signature.RuntimeStopped) > 0 || in.unsupported > 0 ||
			in.Standstill != nil || ended != nil && again == "" {
			return nil // what is known says why there is no good status
		}
		f.Confidence = min(f.Confidence, 0.45)
		f.Summary = "The runtime's status has not succeeded for 30 s; the log does not say whether it hangs or is not running."
		return f.addMissing("records of failing calls: those that miss their deadline show a runtime that hangs, refused ones one that is not running")
	}
	if in.listsLate > 0 {
		f.raise(0.25, in.found(signature.RelistFailed, signature.ListFailed)...)
	} else if in.lists == 0 {
		f.addMissing("records of the failing lists, which would show how they fail")
	}
	if in.statusLate > 0 {
		f.Confidence += 0.05
	}
	return f
}

func incidentListHang(in *Incident) *incidentFinding {
	if in.listsLate == 0 || in.count(signature.MessageTooLarge) > 0 {
		return nil
	}
	f := newIncidentFinding("ListHang", runtimeTier, 0.75,
		"The lists of pods or containers do not come back, as when one container's lock is held.").
		addFor(in.found(signature.RelistFailed, signature.ListFailed)...)
	switch {
	case in.down || in.statusLate > 0:
		f.Confidence = 0.3
		f.addAgainst("the runtime's status does not come back either, so all of it hangs")
	case (in.Recovered || len(in.Stalls) >= 2 || len(in.Relists) > 0) && in.lateLists() <= 1:
		f.Confidence, f.Summary = 0.45, "A list missed its deadline once; later ones came back."
		f.addAgainst("relists succeeded again")
	default:
		f.addFor("the kubelet does not call the runtime down")
		f.addMissing("a look at the other calls: which of the two lists hangs names the lock")
	}
	if in.Recovered && f.Confidence > 0.45 {
		f.Summary = "The lists of pods or containers did not come back, as when one container's lock is held."
	}
	return f
}

// lateLists counts the lists that missed their deadline one after the other, by the time between their records: the
// records of one call lie within a second, those of the next one a deadline later.
func (in *Incident) lateLists() int {
	var at []time.Time
	for _, b := range in.each(signature.RelistFailed, signature.ListFailed) {
		if b.Call().Code == "DeadlineExceeded" {
			at = append(at, b.First(), b.Last())
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	n := 0
	for i, t := range at {
		if i == 0 || t.Sub(at[i-1]) > time.Minute {
			n++
		}
	}
	return n
}

// movingText words that relists end, but each too late.
func (in *Incident) movingText() string {
	if len(in.Stalls) < 2 {
		return ""
	}
	return fmt.Sprintf("the anchor moves: %d different relists were late one after the other", len(in.Stalls))
}

// incidentRuntimeSlow is for relists that end, but late, with other signs of slowness.
func incidentRuntimeSlow(in *Incident) *incidentFinding {
	signs := in.count(signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed,
		signature.StatsFailed, signature.NameReserved)
	moving := len(in.Stalls) >= 2
	if !moving && (signs == 0 || in.lateLists() > 1) || in.down {
		return nil
	}
	f := newIncidentFinding("RuntimeSlow", runtimeTier, 0.25,
		"Relists end, but the runtime answers too slowly for them to end in time.").
		addFor(in.movingText()).
		addFor(in.found(signature.HousekeepingSlow, signature.RuntimeStalled, signature.StatsFailed,
			signature.NameReserved)...)
	if moving {
		f.Confidence += 0.2
	}
	if signs > 0 {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.raise(0.2, in.relistsText())
	}
	return f
}

// incidentRelistOverloaded is for relists that end late while nothing fails.
func incidentRelistOverloaded(in *Incident) *incidentFinding {
	near := in.age() > 0 && in.age() < 3*time.Minute+45*time.Second && in.ThresholdSeconds <= 180
	moving := len(in.Stalls) >= 2
	if in.failing > 0 || in.down || in.relistsHung() || !moving && !in.relistsScattered() && (!near || !in.Recovered) {
		return nil
	}
	f := newIncidentFinding("RelistOverloaded", runtimeTier, 0.3,
		"Relists end late and no failing call is on record; perhaps there are many pods.").
		addFor(in.movingText()).addMissing("the number of pods, and how long one inspection takes")
	if moving {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.raise(0.2, in.relistsText())
	}
	if near {
		f.addFor("the age stays near the threshold: at most " + in.age().Round(time.Second).String())
	}
	return f.addFor("no failing call is on record")
}

// incidentKubeletStalled: the runtime is not on record as failing, and the kubelet's own loops stand.
func incidentKubeletStalled(in *Incident) *incidentFinding {
	f := newIncidentFinding("KubeletStalled", kubeletTier, 0,
		"The kubelet's own loops stand still, while no call to the runtime is on record as failing.")
	for _, sign := range []struct {
		confidence float64
		codes      []string
	}{
		{0.55, []string{signature.PLEGChannelFull, signature.EventedPLEGFull}},
		{0.15, []string{signature.WatchdogWithheld, signature.WatchdogTimeout}},
	} {
		if in.count(sign.codes...) > 0 {
			f.raise(sign.confidence, in.found(sign.codes...)...)
		}
	}
	if in.LongestPause > 12*time.Second && in.SkipLines >= 3 { // more than twice what is due
		f.raise(0.2, fmt.Sprintf("the skip lines, due every 5 s, pause for %s: the kubelet itself did not run, or records are missing", roughly(in.LongestPause)))
	}
	if in.Standstill != nil {
		in.addStandstill(f)
	} else if in.failing == 0 && !in.down && in.age() > 10*time.Minute {
		f.raise(0.3, fmt.Sprintf("the age grows to %s and no call is on record as failing, though a hung one would be every 2 min", in.age().Round(time.Second)))
		f.addMissing("whether the log holds all of the kubelet's lines")
	}
	if f.Confidence > 0 && in.failing > 0 && in.Standstill == nil {
		f.lower(0.3, "calls to the runtime fail: "+recordCount(in.failing))
	}
	if f.Confidence < 0.15 {
		return nil
	}
	return f
}

func (in *Incident) addStandstill(f *incidentFinding) {
	s := in.Standstill
	f.Confidence += 0.75
	f.Summary = fmt.Sprintf("The kubelet itself stood still for %s or more: by so much its first record of the trouble is late.", roughly(s.Late))
	f.addFor(fmt.Sprintf("the first record states an age of %s: a loop that runs reports it every 5 s from %s on",
		s.Age.Round(time.Second), s.Due.Round(time.Second)))
	if !s.From.IsZero() {
		f.addFor("of the kubelet the log holds nothing that kdiag knows" + in.when(s.From, s.To))
	}
	if s.Others {
		f.raise(0.1, "other parts of the node wrote meanwhile")
		return
	}
	f.addMissing("what else on the node wrote meanwhile: a machine that stands still as a whole looks the same")
}

func incidentKubeletCrashLooping(in *Incident) *incidentFinding {
	starts, last, pid := 0, time.Time{}, int32(0) // one start writes several records, of one process
	for _, b := range in.each(signature.KubeletStarted) {
		if t := b.First(); !t.IsZero() && (t.Sub(last) > 10*time.Second || pid != 0 && b.PID != 0 && b.PID != pid) {
			starts, last, pid = starts+1, t, b.PID
		}
	}
	if in.count(signature.KubeletFatal) == 0 && starts < 3 {
		return nil
	}
	f := newIncidentFinding("KubeletCrashLooping", kubeletTier, 0.3, "The kubelet starts again and again.").
		addFor(in.found(signature.KubeletFatal, signature.UnitRestarted)...)
	if starts >= 3 {
		f.raise(0.2, fmt.Sprintf("it was started %d times around the episode", starts))
	}
	return f
}

func incidentCertificateExpired(in *Incident) *incidentFinding {
	if in.records(signature.CertificateExpired) == nil {
		return nil
	}
	owners := map[signature.Party]bool{}
	for _, b := range in.each(signature.CertificateExpired) {
		owners[b.Call().Owner] = true
	}
	summary := "A certificate has expired, or this node's clock is wrong."
	switch own, server := owners[signature.KubeletParty], owners[signature.APIServer]; {
	case own && server:
		summary = "The kubelet's certificate and the API server's have expired, or a clock is wrong."
	case own:
		summary = "The kubelet's own certificate has expired: the API server does not accept it."
	case server:
		summary = "The API server's certificate has expired, or this node's clock is wrong: the kubelet does not accept it."
	}
	return newIncidentFinding("CertificateExpired", symptomTier, 0.2, summary).
		addFor(in.found(signature.CertificateExpired)...).addAgainst("PLEG does not talk to the API server")
}
