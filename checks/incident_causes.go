package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// incidentRecognisers are one function for each cause that a log can show.
func incidentRecognisers() []func(*Incident) *incidentFinding {
	return []func(*Incident) *incidentFinding{
		incidentKernelHung, incidentIOStall, incidentPIDsExhausted, incidentInotifyExhausted, incidentSystemdWedged, incidentFilesystemHung,
		incidentOOMKilled, incidentDiskFull, incidentFilesExhausted, incidentClockJumped,
		incidentInspectHang, incidentShimStuck, incidentTaskStuck, incidentListTooLarge, incidentTooManyExited, incidentCNIHung, incidentNetworkNotReady,
		incidentRuntimeDown, incidentRuntimeUnsupported, incidentRuntimeNotReady, incidentRuntimeHung, incidentListHang, incidentRuntimeSlow,
		incidentRelistOverloaded, incidentKubeletStalled, incidentKubeletCrashLooping, incidentCertificateExpired,
	}
}

// hostFinding is a finding of the host by records that speak for themselves; nil without one.
func (in *Incident) hostFinding(code string, confidence float64, summary string, codes ...string) *incidentFinding {
	if in.count(codes...) == 0 {
		return nil
	}
	f := newIncidentFinding(code, hostTier, confidence, summary).addFor(in.found(codes...)...)
	in.lowerIfLate(f, codes...)
	return f
}

func incidentKernelHung(in *Incident) *incidentFinding {
	codes := []string{signature.HungTask, signature.SoftLockup, signature.RCUStall}
	f := in.hostFinding("KernelHung", 0.75, "The kernel reports tasks or CPUs that do not move.", codes...)
	blocks := func(name string) bool {
		r := journal.TaskRole(name)
		return essential(r) || r == journal.RoleOCI || r == journal.RoleInit
	}
	if f != nil && in.anyTask(blocks, signature.HungTask, signature.SoftLockup) {
		f.Confidence += 0.15
		f.addFor("the stuck task belongs to the runtime, a container's shim or the kubelet")
		in.lowerIfLate(f, codes...)
	}
	return f
}

// essential reports whether a role is one that all containers of a node, or one of them, cannot do without.
func essential(r journal.Role) bool {
	return r == journal.RoleRuntime || r == journal.RoleShim || r == journal.RoleKubelet
}

// incidentIOStall is for a disk that fails, or one that answers late by several signs.
func incidentIOStall(in *Incident) *incidentFinding {
	if f := in.hostFinding("IOStall", 0.7, "A disk fails or its file system is damaged: whatever touches it waits.",
		signature.BlockIOError, signature.FilesystemError); f != nil {
		return f
	}
	f := newIncidentFinding("IOStall", hostTier, 0.1, "Much points to a disk that is slow or overloaded.")
	for _, code := range []string{signature.DiskScanSlow, signature.NameReserved, signature.RuntimeStalled, signature.HousekeepingSlow} {
		if in.count(code) > 0 {
			f.Confidence += 0.13
			f.addFor(in.found(code)...)
		}
	}
	writer := func(name string) bool {
		return slices.ContainsFunc([]string{"jbd2", "xfs", "kworker", "dm_", "btrfs", "ext4"}, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	if in.anyTask(writer, signature.HungTask) {
		f.Confidence += 0.4
		f.addFor("the kernel reports writers of a file system as stuck")
	}
	if f.Confidence < 0.3 {
		return nil
	}
	return f.addMissing("pressure and latency of the disk, which logs do not tell")
}

func incidentPIDsExhausted(in *Incident) *incidentFinding {
	return in.hostFinding("PIDsExhausted", 0.75, "New processes or threads cannot be started.", signature.ForkFailed, signature.ForkRejected)
}

func incidentInotifyExhausted(in *Incident) *incidentFinding {
	return in.hostFinding("InotifyExhausted", 0.55, "The node has run out of inotify instances or watches.", signature.InotifyExhausted)
}

func incidentSystemdWedged(in *Incident) *incidentFinding {
	return in.hostFinding("SystemdWedged", 0.75, "systemd or its bus does not answer; runc waits for it.", signature.SystemdUnresponsive)
}

func incidentFilesystemHung(in *Incident) *incidentFinding {
	lost := in.records(signature.NFSNotResponding)
	if lost == nil {
		return nil
	}
	f := newIncidentFinding("FilesystemHung", hostTier, 0.8, "A network file server does not answer: whatever touches its mounts waits.").
		addFor(in.found(signature.NFSNotResponding, signature.MountFailed)...)
	in.lowerIfLate(f, signature.NFSNotResponding)
	back := in.records(signature.NFSRecovered)
	if back == nil || back.last.Before(lost.last) {
		return f
	}
	again := "it answered again" + in.when(back.first, back.last)
	f.Summary = "A network file server did not answer for a while: whatever touched its mounts waited."
	switch begin := in.begin(); {
	case begin != nil && back.last.Before(*begin):
		f.Confidence = min(f.Confidence, 0.2)
		f.Summary = "A network file server did not answer for a while, and did again before the trouble began."
		f.addAgainst(again)
	case in.RecoveredAt != nil && back.last.Sub(*in.RecoveredAt).Abs() <= callDeadline:
		f.addFor(again + ", and so did PLEG")
	default:
		f.Confidence = min(f.Confidence, 0.45)
		f.addAgainst(again)
	}
	return f
}

func incidentOOMKilled(in *Incident) *incidentFinding {
	codes := []string{signature.OOMKill, signature.UnitOOMKilled}
	if in.count(codes...) == 0 {
		return nil
	}
	f := newIncidentFinding("OOMKilled", hostTier, 0.35, "The kernel killed processes to free memory.").addFor(in.found(codes...)...)
	victim, placed := in.essentialVictim()
	switch {
	case victim == nil:
		f.addAgainst("no part of the runtime or the kubelet is among the victims that are named")
		in.lowerIfLate(f, codes...)
		return f
	case !placed:
		f.Confidence = 0.55
		f.addFor("a victim is named like a part of the runtime or the kubelet")
		f.addMissing("the cgroup that ran out of memory: a container may run a program of that name")
	default:
		f.Confidence = 0.8
		f.addFor("a part of the runtime or the kubelet is among the victims")
	}
	f.Summary = "The kernel killed the runtime, a shim or the kubelet to free memory."
	if begin := in.begin(); begin != nil && victim.First().After(begin.Add(beginSlack)) {
		f.Confidence = min(f.Confidence, lateConfidence)
		f.addAgainst("that was " + roughly(victim.First().Sub(*begin)) + " after the last good relist, so it is no root")
	}
	return f
}

// essentialVictim returns the first part of runtime or kubelet that was killed for memory, and whether the log says which cgroup was
// out of memory; victims of which it does go first. What dies by the limit of a pod is of that pod, whatever its name is: docker in
// docker, kind, builds.
func (in *Incident) essentialVictim() (victim *journal.Burst, placed bool) {
	inPod, isPlaced := map[journal.Object]bool{}, map[journal.Object]bool{}
	for _, b := range in.each(signature.OOMInvoked, signature.OOMKill) {
		inPod[b.Object()] = inPod[b.Object()] || b.Call().Pods
		isPlaced[b.Object()] = isPlaced[b.Object()] || b.Call().Placed
	}
	for _, b := range in.each(signature.OOMKill, signature.UnitOOMKilled) {
		o, memcg := b.Object(), b.Call().Constraint == "memcg"
		role := b.Call().Role
		if o.Kind != "Unit" {
			role = journal.TaskRole(o.Name)
		}
		if !essential(role) || memcg && inPod[o] {
			continue
		}
		known := !memcg || isPlaced[o]
		if victim == nil || known && !placed || known == placed && b.First().Before(victim.First()) {
			victim, placed = b, known
		}
	}
	return victim, placed
}

func incidentDiskFull(in *Incident) *incidentFinding {
	return in.limitFinding("DiskFull", signature.DiskFull, 0.75, "A file system that the runtime or the kubelet writes to is full.",
		"A file system was full; the log does not show that the runtime or the kubelet uses it.")
}

func incidentFilesExhausted(in *Incident) *incidentFinding {
	return in.limitFinding("FilesExhausted", signature.FilesExhausted, 0.7, "The runtime, a shim or the kubelet has run out of file descriptors.",
		"A process has run out of file descriptors; the log does not show that the runtime did.")
}

// limitFinding is a finding of a resource that ran out, by words that any program uses: own is for the runtime and the kubelet, others for
// the rest.
func (in *Incident) limitFinding(code, record string, confidence float64, own, others string) *incidentFinding {
	if in.records(record) == nil {
		return nil
	}
	runtime, kubelet := false, int64(0)
	for _, b := range in.each(record) {
		c := b.Call()
		switch {
		case c.Role == journal.RoleRuntime, c.Role == journal.RoleShim, c.Role == journal.RoleOCI, c.Everywhere, b.Object().Kind == "Filesystem" && ofRuntime(b.Object().ID):
			runtime = true
		case c.Role == journal.RoleKubelet:
			kubelet += b.Count
		}
	}
	f := newIncidentFinding(code, hostTier, confidence, own)
	switch {
	case runtime:
	case kubelet > 1:
		f.addFor("the kubelet itself says so")
	case kubelet == 1:
		f.Confidence, f.Summary = lateConfidence, others
		f.addAgainst("the kubelet says so in a single record, which tells of no file of the runtime")
	default:
		f.Confidence, f.Summary = 0.3, others
		f.addAgainst("another program says so, of no file of the runtime or the kubelet")
	}
	f.addFor(in.found(record)...)
	in.lowerIfLate(f, record)
	return f
}

// ofRuntime reports whether a path is where runtimes and kubelets keep their files.
func ofRuntime(path string) bool {
	return slices.ContainsFunc([]string{
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher", "/var/snap/microk8s",
		"/run", "/var/run", "/var/log/pods", "/var/log/containers",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// incidentClockJumped is for a machine that was suspended, which loses its connections. A step of the wall clock alone does not make PLEG
// unhealthy: the kubelet measures the age on the monotonic clock.
func incidentClockJumped(in *Incident) *incidentFinding {
	during := func(t time.Time) bool { return !t.IsZero() && !t.Before(*in.begin()) && !t.After(*in.Start) }
	for _, b := range in.each(signature.MachineSuspended) {
		if in.Start != nil && (during(b.First()) || during(b.Last())) {
			return newIncidentFinding("ClockJumped", hostTier, 0.6, "The machine was suspended while PLEG became unhealthy.").
				addFor(in.found(signature.MachineSuspended)...)
		}
	}
	f := newIncidentFinding("ClockJumped", symptomTier, 0.2, "The wall clock was set; that alone does not make PLEG unhealthy.").
		addFor(in.found(signature.ClockChanged)...)
	for _, s := range in.Stalls {
		if s.SpreadSeconds >= 30 {
			f.addFor(fmt.Sprintf("within one stall, time of day and stated age drift apart by %.0f s", s.SpreadSeconds))
			break
		}
	}
	if len(f.Evidence.For) == 0 {
		return nil
	}
	return f.addAgainst("the kubelet measures the age on the monotonic clock")
}

// incidentInspectHang is for status calls of single pods or containers that do not come back.
func incidentInspectHang(in *Incident) *incidentFinding {
	if in.inspectLate == 0 && (in.peak == 0 && !in.relistsHung() || in.down || in.lists > 0) {
		return nil
	}
	f := newIncidentFinding("InspectHang", objectTier, 0.25, "Single pods or containers cannot be inspected; the relist waits two minutes for each.")
	if in.inspectLate > 0 {
		f.Confidence += 0.5
		f.addFor(in.found(signature.InspectFailed)...)
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
		f.Confidence += 0.1
		f.addFor(fmt.Sprintf("the worst age is near %d times the 2 min deadline of a call: %d calls hung one after the other", in.peak, in.peak))
	}
	if in.listsLate > 0 || in.down {
		f.Confidence -= 0.4
		f.addAgainst("lists or the status do not come back either, so the trouble is wider than these objects")
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
		f.Confidence -= 0.1
		f.addAgainst("the whole runtime hangs; stopping containers fails in its wake")
	}
	return f
}

func incidentTaskStuck(in *Incident) *incidentFinding {
	if in.count(signature.ProcessBlocked) == 0 {
		return nil
	}
	return newIncidentFinding("TaskStuck", objectTier, 0.6, "A container's process cannot be killed: it waits in the kernel.").
		addFor(in.found(signature.ProcessBlocked)...)
}

func incidentListTooLarge(in *Incident) *incidentFinding {
	if in.records(signature.MessageTooLarge) == nil {
		return nil
	}
	f := newIncidentFinding("ListTooLarge", objectTier, 0.93, "The answer to a list is larger than gRPC lets through, so no relist can succeed.")
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
	if in.count(signature.ContainerGCFailed, signature.RemoveFailed) == 0 || !tooLarge && in.count(signature.RemoveFailed) < 5 {
		return nil
	}
	f := newIncidentFinding("TooManyExited", objectTier, 0.35, "Dead containers or sandboxes are not removed and pile up.").
		addFor(in.found(signature.ContainerGCFailed, signature.RemoveFailed)...).addMissing("how many there are")
	if tooLarge {
		f.Confidence += 0.25
		f.addFor("the lists have grown too large to be sent")
	}
	return f
}

// incidentCNIHung: the runtime's status takes CNI's lock, so a hung plugin makes the kubelet call the runtime down while lists answer.
func incidentCNIHung(in *Incident) *incidentFinding {
	if in.count(signature.CNIFailed) == 0 {
		return nil
	}
	f := newIncidentFinding("CNIHung", objectTier, 0.25, "CNI plugins fail or hang: pods cannot be set up or torn down.").addFor(in.found(signature.CNIFailed)...)
	if in.late(signature.CNIFailed) > 0 {
		f.Confidence += 0.25
		f.addFor("they miss their deadline")
	}
	if in.down && in.lists == 0 {
		f.Confidence += 0.2
		f.addFor("the runtime's status hangs and no list is on record as failing, as when CNI's lock is held")
	}
	if in.listsLate > 0 {
		f.Confidence -= 0.15
		f.addAgainst("the lists hang too, and these do not wait for CNI")
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

// runtimeEnd is how systemd reports that the runtime's unit ended by itself, before the incident or at its beginning, and how it was
// started again.
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
	for _, v := range []*incidentRecords{in.ofRole(signature.UnitStarted, journal.RoleRuntime), in.records(signature.RuntimeStarted)} {
		if ended != nil && v != nil && v.last.After(last) {
			again = "the runtime was started again" + in.when(v.first, v.last)
		}
	}
	return ended, again
}

// answeredAgain reports whether the last record of a socket that does not speak CRI v1 comes after the last refused call.
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
		f.Confidence -= 0.4
		f.addAgainst("something listens again, though not as a CRI runtime: " + in.found(signature.CRIUnsupported)[0])
	case in.down:
		f.Confidence += 0.1
		f.addFor(listedDown)
	}
	if started := in.records(signature.RuntimeStarted); started != nil && (stopped == nil || started.last.After(stopped.last)) {
		again = "the runtime was started again" + in.when(started.first, started.last)
	}
	if again != "" {
		f.Confidence -= 0.15
		f.addAgainst(again)
	}
	if in.allLate > in.refused {
		f.Confidence -= 0.2
		f.addAgainst("calls rather missed their deadline than were refused: " + recordCount(in.allLate))
	}
	return f
}

// incidentRuntimeUnsupported is for a socket that answers every call, but not as CRI v1: containerd without its CRI plugin, another program, a
// runtime that is too old. Relists fail at once, each second, and so does the status.
func incidentRuntimeUnsupported(in *Incident) *incidentFinding {
	if in.unsupported == 0 {
		return nil
	}
	f := newIncidentFinding("RuntimeUnsupported", runtimeTier, 0.35,
		"Something listens on the runtime's socket that does not speak CRI v1: the runtime's CRI plugin is disabled, or it is another program.").
		addFor(in.found(signature.CRIUnsupported)...)
	unimplemented := func(c journal.Call) bool { return c.Code == "Unimplemented" }
	if in.calls(unimplemented, signature.RelistFailed, signature.ListFailed) > 0 {
		f.Confidence += 0.4
		f.addFor("the lists of every relist fail with it")
	}
	if in.down && in.answeredAgain() {
		f.Confidence += 0.1
		f.addFor(listedDown)
	}
	switch {
	case in.refused > 0 && in.answeredAgain():
		f.addFor(in.refusals() + ": before that, when nothing listened, as while the daemon is started again")
	case in.refused > 0:
		f.Confidence -= 0.4
		f.addAgainst("calls were refused after that: " + in.refusals())
	}
	return f
}

// incidentRuntimeNotReady is for a runtime that answers Status and says itself that it is not ready. Such an answer does not count
// as a good status, so "container runtime is down" appears after 30 s too (pkg/kubelet/kubelet.go, updateRuntimeUp).
func incidentRuntimeNotReady(in *Incident) *incidentFinding {
	if in.count(signature.RuntimeNotReadyReported) == 0 {
		return nil
	}
	f := newIncidentFinding("RuntimeNotReady", runtimeTier, 0.7, "The runtime answers, and says itself that it is not ready.").
		addFor(in.found(signature.RuntimeNotReadyReported)...)
	for _, r := range in.Reasons {
		if strings.Contains(r, "RuntimeReady=false") {
			f.addFor("the kubelet lists \"" + r + "\"")
		}
	}
	if in.statusLate+in.listsLate > 0 {
		f.Confidence -= 0.3
		f.addAgainst("calls missed their deadline as well")
	}
	if in.refused > 0 {
		f.Confidence -= 0.3
		f.addAgainst("calls were refused as well")
	}
	return f
}

func incidentRuntimeHung(in *Incident) *incidentFinding {
	if !in.down && in.statusLate == 0 || in.refused > in.allLate {
		return nil
	}
	f := newIncidentFinding("RuntimeHung", runtimeTier, 0.5, "The runtime accepts calls and answers none: it hangs as a whole.")
	if in.Recovered {
		f.Summary = "The runtime accepted calls and answered none: it hung as a whole."
	}
	if slices.Contains(in.Reasons, reasonRuntimeDown) {
		f.Confidence += 0.1
		f.addFor(listedDown + " beside PLEG: neither status nor lists have succeeded")
	}
	f.addFor(in.found(signature.RuntimeIsDown, signature.SanityCheckFailed)...)
	if in.statusLate+in.listsLate == 0 {
		ended, again := in.runtimeEnd()
		if in.count(signature.RuntimeNotReadyReported, signature.RuntimeStopped) > 0 || in.unsupported > 0 || in.Standstill != nil || ended != nil && again == "" {
			return nil // what is known says why there is no good status
		}
		f.Confidence = min(f.Confidence, 0.45)
		f.Summary = "The runtime's status has not succeeded for 30 s; the log does not say whether it hangs or is not running."
		return f.addMissing("records of failing calls: those that miss their deadline show a runtime that hangs, refused ones one that is not running")
	}
	if in.listsLate > 0 {
		f.Confidence += 0.25
		f.addFor(in.found(signature.RelistFailed, signature.ListFailed)...)
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
	f := newIncidentFinding("ListHang", runtimeTier, 0.75, "The lists of pods or containers do not come back, as when one container's lock is held.").
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
	signs := in.count(signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed, signature.StatsFailed, signature.NameReserved)
	moving := len(in.Stalls) >= 2
	if !moving && (signs == 0 || in.lateLists() > 1) || in.down {
		return nil
	}
	f := newIncidentFinding("RuntimeSlow", runtimeTier, 0.25, "Relists end, but the runtime answers too slowly for them to end in time.").
		addFor(in.movingText()).
		addFor(in.found(signature.HousekeepingSlow, signature.RuntimeStalled, signature.StatsFailed, signature.NameReserved)...)
	if moving {
		f.Confidence += 0.2
	}
	if signs > 0 {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.Confidence += 0.2
		f.addFor(in.relistsText())
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
	f := newIncidentFinding("RelistOverloaded", runtimeTier, 0.3, "Relists end late and no failing call is on record; perhaps there are many pods.").
		addFor(in.movingText()).addMissing("the number of pods, and how long one inspection takes")
	if moving {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.Confidence += 0.2
		f.addFor(in.relistsText())
	}
	if near {
		f.addFor("the age stays near the threshold: at most " + in.age().Round(time.Second).String())
	}
	return f.addFor("no failing call is on record")
}

// incidentKubeletStalled: the runtime is not on record as failing, and the kubelet's own loops stand.
func incidentKubeletStalled(in *Incident) *incidentFinding {
	f := newIncidentFinding("KubeletStalled", kubeletTier, 0, "The kubelet's own loops stand still, while no call to the runtime is on record as failing.")
	for _, sign := range []struct {
		confidence float64
		codes      []string
	}{
		{0.55, []string{signature.PLEGChannelFull, signature.EventedPLEGFull}},
		{0.15, []string{signature.WatchdogWithheld, signature.WatchdogTimeout}},
	} {
		if in.count(sign.codes...) > 0 {
			f.Confidence += sign.confidence
			f.addFor(in.found(sign.codes...)...)
		}
	}
	if in.LongestPause > 12*time.Second && in.SkipLines >= 3 { // more than twice what is due
		f.Confidence += 0.2
		f.addFor(fmt.Sprintf("the skip lines, due every 5 s, pause for %s: the kubelet itself did not run, or records are missing", roughly(in.LongestPause)))
	}
	if in.Standstill != nil {
		in.addStandstill(f)
	} else if in.failing == 0 && !in.down && in.age() > 10*time.Minute {
		f.Confidence += 0.3
		f.addFor(fmt.Sprintf("the age grows to %s and no call is on record as failing, though a hung one would be every 2 min", in.age().Round(time.Second)))
		f.addMissing("whether the log holds all of the kubelet's lines")
	}
	if f.Confidence > 0 && in.failing > 0 && in.Standstill == nil {
		f.Confidence -= 0.3
		f.addAgainst("calls to the runtime fail: " + recordCount(in.failing))
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
	f.addFor(fmt.Sprintf("the first record states an age of %s: a loop that runs reports it every 5 s from %s on", s.Age.Round(time.Second), s.Due.Round(time.Second)))
	if !s.From.IsZero() {
		f.addFor("of the kubelet the log holds nothing that kdiag knows" + in.when(s.From, s.To))
	}
	if s.Others {
		f.Confidence += 0.1
		f.addFor("other parts of the node wrote meanwhile")
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
		f.Confidence += 0.2
		f.addFor(fmt.Sprintf("it was started %d times around the episode", starts))
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
