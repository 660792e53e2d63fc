package checks

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// Judge names the causes that the facts speak for, most likely first and root before consequence; nil when there are
// none. It is pure: equal facts give equal causes.
//
// A cause that another explains is either not found at all or is found with CausedBy set. Not found, because the other
// is the same observation seen whole:
//   - beside RuntimeDown and RuntimeUnsupported: everything that needs an answer;
//   - beside RuntimeHung: RuntimeSlow, CNIHung, ListHang, InspectHang, ImageServiceHung and RelistOverloaded;
//   - beside ListHang: InspectHang, since the containers whose status hangs hold the lock; they are its subjects;
//   - beside a hung status call: RelistOverloaded, since the call and not the number of pods is what a relist waits for;
//   - beside a runtime that stalled and went on: CNIHung, ImageServiceHung and InspectHang, since single calls hung by
//     the moment (RuntimeSlow says so);
//   - beside a list of 5,000 objects and more whose time its size explains: RuntimeSlow;
//   - beside a cause that stops or slows a relist now, or a kubelet that is down or stands still: PLEGUnhealthy, since what
//     the kubelet says is evidence there.
//
// The root is the earliest signal that does not depend on the runtime: the disk before the shim, the mount before the task
// that waits in it, the certificate before the API server that refuses it. A root explains only what the facts link to it: the same
// pod, the same file system, the daemon itself. Of a chain each cause names the link before it.
//
// Found as a consequence, because it has a remedy of its own: what Definition.RootOf lists, except that large entries
// and not their number make a list large (then ListTooLarge stands for itself), and except what the logs speak against:
// see applies.
func Judge(f *Facts) []Cause {
	if f == nil {
		return nil
	}
	var found []Cause
	for _, d := range Definitions() {
		if c := d.recognise(f); c != nil {
			found = append(found, *c)
		}
	}
	if f.hearsKubelet() && slices.ContainsFunc(found, f.explainsPLEG) {
		found = slices.DeleteFunc(found, func(c Cause) bool { return c.Code == codePLEGUnhealthy })
	}
	roots := rootsAmong(f, found)
	raiseRoots(found, roots)
	return f.withoutSystemd(f.nameNode(order(found, roots)))
}

// rootsAmong maps the code of each consequence among the causes to the code of its root.
func rootsAmong(f *Facts, found []Cause) map[string]string {
	all := map[string][]string{} // the roots of each, in the order of the contract
	could := map[string][]string{}
	for _, d := range Definitions() {
		for _, consequence := range d.RootOf {
			could[consequence] = append(could[consequence], d.Code)
		}
		if !has(found, d.Code) {
			continue
		}
		for _, consequence := range d.RootOf {
			if has(found, consequence) && applies(f, d.Code, consequence) {
				all[consequence] = append(all[consequence], d.Code)
			}
		}
	}
	roots := make(map[string]string, len(all))
	for consequence, candidates := range all {
		roots[consequence] = nearest(candidates, could)
	}
	return roots
}

// nearest returns the first of the roots of a cause that could be no root of another of them: of a mount that holds a task that holds a
// status call, the task. Of a slow disk and a shim that somebody stopped, the shim, though nothing is the root of that.
func nearest(candidates []string, could map[string][]string) string {
	for _, c := range candidates {
		if !slices.ContainsFunc(candidates, func(other string) bool { return slices.Contains(could[other], c) }) {
			return c
		}
	}
	return candidates[0]
}

// explainers holds, for the causes whose relations depend on more than that both are found, what tells. What is not here is in
// applies.
func explainers() map[string]func(f *Facts, consequence string) bool {
	return map[string]func(*Facts, string) bool{
		codeKubeletDown:        kubeletDownExplains,
		codeKubeletStalled:     kubeletStalledExplains,
		codeCertificateExpired: certificateExpiredExplains,
		codeDiskFull:           diskFullExplains,
		codeInodesExhausted:    inodesExhaustedExplains,
		codeIOStall:            ioStallExplains,
		codeFilesystemHung:     filesystemHungExplains,
		codeMemoryPressure:     memoryPressureExplains,
		codeCPUStarved:         cpuStarvedExplains,
		codePIDsExhausted:      pidsExhaustedExplains,
		codeFilesExhausted:     filesExhaustedExplains,
		codeInotifyExhausted:   inotifyExhaustedExplains,
		codeTaskStuck:          taskStuckExplains,
		codeShimStuck:          shimStuckExplains,
		codeCgroupFrozen:       cgroupFrozenExplains,
		codeSystemdWedged:      systemdWedgedExplains,
		codeMountsExploded:     mountsExplodedExplains,
		codeCgroupsLeaked:      cgroupsLeakedExplains,
		codeClockJumped:        clockJumpedExplains,
	}
}

// applies reports whether a relation of the definitions holds for these facts.
func applies(f *Facts, root, consequence string) bool {
	if f.onPurpose(consequence) {
		return false
	}
	if explains, ok := explainers()[root]; ok {
		return explains(f, consequence) && f.linked(root, consequence)
	}
	switch {
	case root == codeRuntimeDown:
		return f.keepsKubeletDown()
	case consequence == codeKubeletStalled:
		return f.neverCameUp() != nil // one that was up waits for the runtime, and stands still for reasons of its own
	case root == codeKubeletCrashLooping && consequence == codeKubeletDown:
		return f.crashExplainsDown()
	case root == codeKubeletCrashLooping && consequence == codeAPIServerUnreachable:
		return f.seen().Server.Value.Reachable && !certificateExpiredExplains(f, consequence) // which is refused in every life of the kubelet
	case root == codeKernelHung && consequence == codeTaskStuck:
		return slices.ContainsFunc(f.stuckTasks(), func(t host.BlockedTask) bool {
			return slices.ContainsFunc(f.hungTasks(), func(k task) bool { return k.PID > 0 && (k.PID == t.PID || k.PID == t.TID) })
		})
	case root == codeOOMKilled && consequence == codeKubeletDown:
		return f.oomHits(roleKubelet)
	case root == codeTooManyExited && consequence == codeListTooLarge:
		return !f.largeEntries()
	case root == codeTooManyExited && consequence == codeRelistOverloaded:
		return f.mostlyDead()
	case root == codeImageServiceHung && consequence == codeInspectHang:
		return len(f.inspectionsThat(isHung)) > 0
	case consequence == codeKubeletCrashLooping && root != codeOOMKilled:
		return f.watchdogEnds() // a loop that stands still; other ends of the kubelet are its own
	case root == codeOOMKilled && consequence == codeKubeletCrashLooping:
		return f.oomHits(roleKubelet)
	case root == codeOOMKilled && consequence == codeRuntimeDown:
		return f.oomHits(roleRuntime)
	case root == codeOOMKilled:
		return f.oomHits(roleShim)
	}
	return true
}

// onPurpose reports whether a consequence is the work of a person or a program: stopped by a signal, or by its unit in good order. Then
// nothing on the node is its root.
func (f *Facts) onPurpose(consequence string) bool {
	inOrder := func(u *host.Unit) bool { return u != nil && u.Active == "inactive" && u.Result == "success" }
	switch consequence {
	case codeRuntimeHung:
		p := f.daemon().Process
		return p != nil && isStopped(p)
	case codeShimStuck:
		return len(f.stoppedShims()) > 0
	case codeKubeletStalled:
		return f.stoppedKubelet() != nil
	case codeKubeletDown:
		return inOrder(f.kubeletUnitSeen())
	case codeRuntimeDown:
		return inOrder(f.runtimeUnitSeen())
	}
	return false
}

// linked reports whether what a root holds is what its consequence waits for, as far as the facts name both.
func (f *Facts) linked(root, consequence string) bool {
	switch {
	case root == codeFilesystemHung && (consequence == codeInspectHang || consequence == codeListHang):
		hungs := f.inspectionsThat(isHung)
		return len(hungs) == 0 || slices.ContainsFunc(f.silentMounts(), func(m host.Mount) bool {
			return m.Hung && (m.PodUID == "" || slices.ContainsFunc(hungs, func(i plegbench.Inspection) bool { return i.Pod.UID == m.PodUID }))
		})
	case root == codeFilesystemHung && consequence == codeTaskStuck:
		return f.someStuck(waitNetworkFS, waitFUSE, waitUnmount, waitUnknown)
	case root == codeIOStall && consequence == codeTaskStuck:
		return f.someStuck(waitDisk, waitUnmount, waitUnknown)
	case root == codeClockJumped && consequence == codeCertificateExpired:
		c, client := f.invalidCertificate(clientCertificate)
		return !f.seen().Server.Value.SkewKnown || client && f.byWrongClock(c)
	case root == codeClockJumped && consequence == codeAPIServerUnreachable:
		return f.logged(signature.CertificateExpired) != nil || f.seen().Server.Value.TLSError != ""
	}
	return true
}

// someStuck reports whether a stuck task waits for one of the kinds.
func (f *Facts) someStuck(kinds ...wait) bool {
	return slices.ContainsFunc(f.stuckTasks(), func(t host.BlockedTask) bool { return slices.Contains(kinds, waitOf(t)) })
}

// explainsPLEG reports whether a cause is why a relist fails, hangs or is late, so that the kubelet's own word for it adds
// no cause.
func (f *Facts) explainsPLEG(c Cause) bool {
	switch c.Code {
	case codeRuntimeSlow, codeRelistOverloaded, codeKubeletDown, codeKubeletStalled:
		return true
	case codeRuntimeDown, codeRuntimeHung, codeRuntimeNotReady, codeRuntimeUnsupported, codeListHang, codeInspectHang, codeKernelHung:
		return c.Severity == Critical
	case codeOOMKilled:
		return f.oomBeforePLEG()
	case codeListTooLarge:
		s, known := f.listSize()
		return known && s.over() && c.Severity == Critical
	}
	return false
}

// raiseRoots makes each root as severe as what follows from it.
func raiseRoots(found []Cause, roots map[string]string) {
	for range found { // a chain is no longer than the causes
		for _, c := range found {
			if i := index(found, roots[c.Code]); i >= 0 && c.Severity == Critical {
				found[i].Severity = Critical
			}
		}
	}
}

// order sorts by severity, confidence and the order of the contract, then puts each root before its consequences.
func order(found []Cause, roots map[string]string) []Cause {
	slices.SortStableFunc(found, func(a, b Cause) int {
		if a.Severity != b.Severity {
			if a.Severity == Critical {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Confidence, a.Confidence)
	})
	var out []Cause
	var place func(Cause)
	place = func(c Cause) {
		if has(out, c.Code) {
			return
		}
		if i := index(found, roots[c.Code]); i >= 0 {
			place(found[i])
			c.CausedBy = roots[c.Code]
			c.NextSteps = afterRoot(c.NextSteps, c.CausedBy)
		}
		out = append(out, c)
	}
	for _, c := range found {
		place(c)
	}
	return out
}

// afterRoot says of what a consequence would restart that its root comes first. What the kernel did is over, and needs no repair.
func afterRoot(steps []NextStep, root string) []NextStep {
	if root == codeOOMKilled || root == codeKernelHung {
		return steps
	}
	for i, s := range steps {
		if slices.Contains([]string{TouchesRuntime, TouchesKubelet, TouchesNode}, s.Touches) {
			steps[i].Why = "Only if it stays when " + root + " is over. " + s.Why
		}
	}
	return steps
}

func has(causes []Cause, code string) bool { return index(causes, code) >= 0 }

func index(causes []Cause, code string) int {
	return slices.IndexFunc(causes, func(c Cause) bool { return c.Code == code })
}
