package journal

import (
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// A hostRule accuses a part of the host by records that speak for themselves.
type hostRule struct {
	cause      string
	confidence float64
	summary    string
	codes      []string
}

// hostRules are the causes that need no weighing against each other.
func hostRules() []hostRule {
	return []hostRule{
		{"KernelHung", 0.75, "The kernel reports tasks or CPUs that do not move.", []string{signature.HungTask, signature.SoftLockup, signature.RCUStall}},
		{"IOStall", 0.7, "A disk fails or its file system is damaged: whatever touches it waits.", []string{signature.BlockIOError, signature.FilesystemError}},
		{"PIDsExhausted", 0.75, "New processes or threads cannot be started.", []string{signature.ForkFailed, signature.ForkRejected}},
		{"InotifyExhausted", 0.55, "The node has run out of inotify instances or watches.", []string{signature.InotifyExhausted}},
		{"SystemdWedged", 0.75, "systemd or its bus does not answer; runc waits for it.", []string{signature.SystemdUnresponsive}},
	}
}

// hostCauses looks for a root in the host: kernel, disk, memory, limits, clock.
func hostCauses(c *caseFile) []*suspect {
	var out []*suspect
	for _, r := range hostRules() {
		if c.count(r.codes...) == 0 {
			continue
		}
		s := accuse(r.cause, tierHost, r.confidence, r.summary)
		for _, code := range r.codes {
			s.because(c.says(code))
		}
		if s.Code == "KernelHung" && c.anyProcess(moves, signature.HungTask, signature.SoftLockup) {
			s.Confidence += 0.15
			s.because("the stuck task belongs to the runtime, a container's shim or the kubelet")
		}
		c.timing(s, r.codes...)
		out = append(out, s)
	}
	for _, judge := range []func(*caseFile) *suspect{filesystemHung, oomKilled, slowDisk} {
		if s := judge(c); s != nil {
			out = append(out, s)
		}
	}
	return append(append(out, limitCauses(c)...), clockCauses(c)...)
}

// moves reports whether a task that stands still in the kernel holds up the runtime.
func moves(name string) bool {
	r := TaskRole(name)
	return vital(r) || r == RoleOCI || r == RoleInit
}

// anyProcess reports whether records of the codes name a process that fits.
func (c *caseFile) anyProcess(fits func(string) bool, codes ...string) bool {
	for _, code := range codes {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			if s := c.f.pool.subjectOf(b.subject); s.Kind == "Process" && fits(s.Name) {
				return true
			}
		}
	}
	return false
}

// filesystemHung looks for a network file server that does not answer.
func filesystemHung(c *caseFile) *suspect {
	v := c.byCode[signature.NFSNotResponding]
	if v == nil {
		return nil
	}
	s := accuse("FilesystemHung", tierHost, 0.8, "A network file server does not answer: whatever touches its mounts waits.").
		because(c.says(signature.NFSNotResponding), c.says(signature.MountFailed))
	c.timing(s, signature.NFSNotResponding)
	ok := c.byCode[signature.NFSRecovered]
	if ok == nil || ok.last < v.last {
		return s
	}
	anchor, known := c.trouble()
	again := "it answered again" + c.stretch(ok.first, ok.last)
	s.Summary = "A network file server did not answer for a while: whatever touched its mounts waited."
	switch healed := c.episode.RecoveredAt; {
	case known && ok.last < anchor:
		s.Confidence = min(s.Confidence, 0.2)
		s.Summary = "A network file server did not answer for a while, and did again before the trouble began."
		s.against(again)
	case healed != nil && near(ok.last, healed.UnixMicro(), rpcTimeout.Microseconds()):
		s.because(again + ", and so did PLEG")
	default:
		s.Confidence = min(s.Confidence, 0.45)
		s.against(again)
	}
	return s
}

func near(a, b, within int64) bool { return abs(a-b) <= within }

// oomKilled looks for processes that the kernel killed for memory.
func oomKilled(c *caseFile) *suspect {
	if c.count(signature.OOMKill, signature.UnitOOMKilled) == 0 {
		return nil
	}
	s := accuse("OOMKilled", tierHost, 0.35, "The kernel killed processes to free memory.").
		because(c.says(signature.OOMKill), c.says(signature.UnitOOMKilled))
	v := c.vitalVictim()
	switch {
	case v == nil:
		s.against("no part of the runtime or the kubelet is among the victims that are named")
		c.timing(s, signature.OOMKill, signature.UnitOOMKilled)
		return s
	case v.unplaced:
		s.Confidence = 0.55
		s.because("a victim is named like a part of the runtime or the kubelet")
		s.lacks("the cgroup that ran out of memory: a container may run a program of that name")
	default:
		s.Confidence = 0.8
		s.because("a part of the runtime or the kubelet is among the victims")
	}
	s.Summary = "The kernel killed the runtime, a shim or the kubelet to free memory."
	if anchor, ok := c.trouble(); ok && v.at > anchor+beginSlack {
		s.Confidence = min(s.Confidence, lateConfidence)
		s.against("that was " + about(time.Duration(v.at-anchor)*time.Microsecond) + " after the last good relist, so it is no root")
	}
	return s
}

// A victim is what was killed that a node cannot do without.
type victim struct {
	at       int64
	unplaced bool // a cgroup was out of memory, and it is not said which
}

// vitalVictim returns the first part of runtime or kubelet that was killed for memory. What dies by the limit of a pod is
// of that pod, whatever its name is: docker in docker, kind, builds.
func (c *caseFile) vitalVictim() *victim {
	podded := map[uint32]bool{}
	placed := map[uint32]bool{}
	for _, code := range []string{signature.OOMInvoked, signature.OOMKill} {
		if v := c.byCode[code]; v != nil {
			for _, b := range v.bursts {
				d := c.f.pool.detailOf(b.detail)
				podded[b.subject] = podded[b.subject] || d.Pods
				placed[b.subject] = placed[b.subject] || d.Placed
			}
		}
	}
	var first *victim
	for _, code := range []string{signature.OOMKill, signature.UnitOOMKilled} {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			o, d := c.f.pool.subjectOf(b.subject), c.f.pool.detailOf(b.detail)
			memcg := d.Constraint == "memcg"
			if o.Kind == "Unit" && !vital(d.Role) || o.Kind != "Unit" && !vital(TaskRole(o.Name)) || memcg && podded[b.subject] {
				continue
			}
			at, _ := b.first.at()
			x := victim{at: at, unplaced: memcg && !placed[b.subject]}
			if first == nil || first.unplaced && !x.unplaced || first.unplaced == x.unplaced && x.at < first.at {
				first = &x
			}
		}
	}
	return first
}

// slowDisk weighs the signs of a disk that answers, but late.
func slowDisk(c *caseFile) *suspect {
	if c.count(signature.BlockIOError, signature.FilesystemError) > 0 {
		return nil // told already
	}
	signs := []string{signature.DiskScanSlow, signature.NameReserved, signature.RuntimeStalled, signature.HousekeepingSlow}
	s := accuse("IOStall", tierHost, 0.1, "Much points to a disk that is slow or overloaded.")
	for _, code := range signs {
		if c.count(code) > 0 {
			s.Confidence += 0.13
			s.because(c.says(code))
		}
	}
	blocked := func(name string) bool {
		for _, p := range []string{"jbd2", "xfs", "kworker", "dm_", "btrfs", "ext4"} {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return false
	}
	if c.anyProcess(blocked, signature.HungTask) {
		s.Confidence += 0.4
		s.because("the kernel reports writers of a file system as stuck")
	}
	if s.Confidence < 0.3 {
		return nil
	}
	return s.lacks("pressure and latency of the disk, which logs do not tell")
}
