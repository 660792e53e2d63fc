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
		incidentKernelHung, incidentIOStall, incidentPIDsExhausted, incidentInotifyExhausted, incidentSystemdWedged,
		incidentFilesystemHung,
		incidentOOMKilled, incidentDiskFull, incidentFilesExhausted, incidentClockJumped,
		incidentInspectHang, incidentShimStuck, incidentTaskStuck, incidentListTooLarge, incidentTooManyExited,
		incidentCNIHung, incidentNetworkNotReady,
		incidentRuntimeDown, incidentRuntimeUnsupported, incidentRuntimeNotReady, incidentRuntimeHung,
		incidentListHang, incidentRuntimeSlow,
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
		f.raise(0.15, "the stuck task belongs to the runtime, a container's shim or the kubelet")
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
	for _, code := range []string{signature.DiskScanSlow, signature.NameReserved, signature.RuntimeStalled,
		signature.HousekeepingSlow} {
		if in.count(code) > 0 {
			f.raise(0.13, in.found(code)...)
		}
	}
	writer := func(name string) bool {
		return slices.ContainsFunc([]string{"jbd2", "xfs", "kworker", "dm_", "btrfs", "ext4"},
			func(p string) bool { return strings.HasPrefix(name, p) })
	}
	if in.anyTask(writer, signature.HungTask) {
		f.raise(0.4, "the kernel reports writers of a file system as stuck")
	}
	if f.Confidence < 0.3 {
		return nil
	}
	return f.addMissing("pressure and latency of the disk, which logs do not tell")
}

func incidentPIDsExhausted(in *Incident) *incidentFinding {
	return in.hostFinding("PIDsExhausted", 0.75, "New processes or threads cannot be started.", signature.ForkFailed,
		signature.ForkRejected)
}

func incidentInotifyExhausted(in *Incident) *incidentFinding {
	return in.hostFinding("InotifyExhausted", 0.55, "The node has run out of inotify instances or watches.",
		signature.InotifyExhausted)
}

func incidentSystemdWedged(in *Incident) *incidentFinding {
	return in.hostFinding("SystemdWedged", 0.75, "systemd or its bus does not answer; runc waits for it.",
		signature.SystemdUnresponsive)
}

func incidentFilesystemHung(in *Incident) *incidentFinding {
	lost := in.records(signature.NFSNotResponding)
	if lost == nil {
		return nil
	}
	f := newIncidentFinding("FilesystemHung", hostTier, 0.8,
		"A network file server does not answer: whatever touches its mounts waits.").
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
		f.limit(0.45, again)
	}
	return f
}

func incidentOOMKilled(in *Incident) *incidentFinding {
	codes := []string{signature.OOMKill, signature.UnitOOMKilled}
	if in.count(codes...) == 0 {
		return nil
	}
	f := newIncidentFinding("OOMKilled", hostTier, 0.35,
		"The kernel killed processes to free memory.").addFor(in.found(codes...)...)
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
		f.limit(lateConfidence, "that was "+roughly(victim.First().Sub(*begin))+" after the last good relist, so it is no root")
	}
	return f
}

// essentialVictim returns the first part of runtime or kubelet that was killed for memory, and whether the log says
// which cgroup was out of memory; victims of which it does go first. What dies by the limit of a pod is of that pod,
// whatever its name is: docker in docker, kind, builds.
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
	return in.limitFinding("DiskFull", signature.DiskFull, 0.75,
		"A file system that the runtime or the kubelet writes to is full.",
		"A file system was full; the log does not show that the runtime or the kubelet uses it.")
}

func incidentFilesExhausted(in *Incident) *incidentFinding {
	return in.limitFinding("FilesExhausted", signature.FilesExhausted, 0.7,
		"The runtime, a shim or the kubelet has run out of file descriptors.",
		"A process has run out of file descriptors; the log does not show that the runtime did.")
}

// limitFinding is a finding of a resource that ran out, by words that any program uses: own is for the runtime and
// the kubelet, others for the rest.
func (in *Incident) limitFinding(code, record string, confidence float64, own, others string) *incidentFinding {
	if in.records(record) == nil {
		return nil
	}
	runtime, kubelet := false, int64(0)
	for _, b := range in.each(record) {
		c := b.Call()
		switch {
		case c.Role == journal.RoleRuntime, c.Role == journal.RoleShim, c.Role == journal.RoleOCI, c.Everywhere,
			b.Object().Kind == "Filesystem" && ofRuntime(b.Object().ID):
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
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher",
		"/var/snap/microk8s",
		"/run", "/var/run", "/var/log/pods", "/var/log/containers",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// incidentClockJumped is for a machine that was suspended, which loses its connections. A step of the wall clock
// alone does not make PLEG unhealthy: the kubelet measures the age on the monotonic clock.
func incidentClockJumped(in *Incident) *incidentFinding {
	during := func(t time.Time) bool { return !t.IsZero() && !t.Before(*in.begin()) && !t.After(*in.Start) }
	for _, b := range in.each(signature.MachineSuspended) {
		if in.Start != nil && (during(b.First()) || during(b.Last())) {
			return newIncidentFinding("ClockJumped", hostTier, 0.6,
				"The machine was suspended while PLEG became unhealthy.").
				addFor(in.found(signature.MachineSuspended)...)
		}
	}
	f := newIncidentFinding("ClockJumped", symptomTier, 0.2,
		"The wall clock was set; that alone does not make PLEG unhealthy.").
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
