package journal

import (
	"fmt"
	"strings"

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
		{"DiskFull", 0.75, "A file system is full.", []string{signature.DiskFull}},
		{"PIDsExhausted", 0.75, "New processes or threads cannot be started.", []string{signature.ForkFailed, signature.ForkRejected}},
		{"FilesExhausted", 0.7, "A process has run out of file descriptors.", []string{signature.FilesExhausted}},
		{"InotifyExhausted", 0.55, "The node has run out of inotify instances or watches.", []string{signature.InotifyExhausted}},
		{"SystemdWedged", 0.75, "systemd or its bus does not answer; runc waits for it.", []string{signature.SystemdUnresponsive}},
		{"ClockJumped", 0.6, "The clock was set, or the machine was suspended.", []string{signature.ClockChanged, signature.MachineSuspended}},
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
		c.timing(s, r.codes)
		out = append(out, s)
	}
	for _, s := range out {
		if s.Code == "KernelHung" && c.anyProcess(essential, signature.HungTask, signature.SoftLockup) {
			s.Confidence += 0.15
			s.because("the stuck task belongs to the runtime, a container's shim or the kubelet")
		}
	}
	for _, judge := range []func(*caseFile) *suspect{filesystemHung, oomKilled, slowDisk, clockStep} {
		if s := judge(c); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// timing lowers a suspect whose first record comes only after the trouble had begun.
func (c *caseFile) timing(s *suspect, codes []string) {
	if c.episode.Start == nil {
		return
	}
	start, first := c.episode.Start.UnixMicro(), int64(1<<62)
	for _, code := range codes {
		if v := c.byCode[code]; v != nil && v.first != 0 {
			first = min(first, v.first)
		}
	}
	if first == 1<<62 || first <= start {
		return
	}
	// A hung task is only reported after two minutes, so a little later proves nothing.
	if first > start+2*minute {
		s.Confidence -= 0.25
		s.against(fmt.Sprintf("it was first seen %s after PLEG had become unhealthy", about(timeOf(first).Sub(*c.episode.Start))))
	}
}

// essential reports whether a task belongs to what containers need to run.
func essential(name string) bool {
	for _, p := range []string{"containerd", "dockerd", "docker", "crio", "conmon", "runc", "crun", "kubelet", "k3s", "rke2", "hyperkube", "systemd", "shim"} {
		if strings.HasPrefix(name, p) || p == "shim" && strings.Contains(name, p) {
			return true
		}
	}
	return false
}

// anyProcess reports whether records of the codes name a process that fits.
func (c *caseFile) anyProcess(fits func(string) bool, codes ...string) bool {
	for _, code := range codes {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			s := c.f.pool.subjectOf(b.subject)
			if fits(s.Name) || s.Kind == "Unit" && fits(s.ID) {
				return true
			}
		}
	}
	return false
}

// filesystemHung looks for a network file server that does not answer and has not come back.
func filesystemHung(c *caseFile) *suspect {
	v := c.byCode[signature.NFSNotResponding]
	if v == nil {
		return nil
	}
	s := accuse("FilesystemHung", tierHost, 0.8, "A network file server does not answer: whatever touches its mounts waits.").
		because(c.says(signature.NFSNotResponding), c.says(signature.MountFailed))
	if ok := c.byCode[signature.NFSRecovered]; ok != nil && ok.last >= v.last {
		s.Confidence = 0.5
		s.against("it answered again" + stretch(ok.first, ok.last))
	}
	c.timing(s, []string{signature.NFSNotResponding})
	return s
}

// oomKilled looks for processes that the kernel killed for memory.
func oomKilled(c *caseFile) *suspect {
	if c.count(signature.OOMKill, signature.UnitOOMKilled) == 0 {
		return nil
	}
	s := accuse("OOMKilled", tierHost, 0.35, "The kernel killed processes to free memory.").
		because(c.says(signature.OOMKill), c.says(signature.UnitOOMKilled))
	if c.anyProcess(essential, signature.OOMKill, signature.UnitOOMKilled) {
		s.Confidence = 0.8
		s.Summary = "The kernel killed the runtime, a shim or the kubelet to free memory."
		s.because("a part of the runtime or the kubelet is among the victims")
	} else {
		s.against("no part of the runtime or the kubelet is among the victims that are named")
	}
	c.timing(s, []string{signature.OOMKill, signature.UnitOOMKilled})
	return s
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

// clockStep tells an episode through which the wall clock was set.
func clockStep(c *caseFile) *suspect {
	if c.count(signature.ClockChanged, signature.MachineSuspended) > 0 {
		return nil // told already
	}
	for _, st := range c.episode.Stalls {
		if st.SpreadSeconds >= 30 {
			return accuse("ClockJumped", tierHost, 0.3, "The wall clock was set during the episode; that alone does not make PLEG unhealthy.").
				because(fmt.Sprintf("within one stall, time of day and stated age drift apart by %.0f s", st.SpreadSeconds)).
				against("the kubelet measures the age on the monotonic clock")
		}
	}
	return nil
}
