package checks

import (
	"cmp"
	"slices"
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
//   - beside a cause that stops or slows a relist now: PLEGUnhealthy, since what the kubelet says is evidence there.
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
	return order(found, roots)
}

// rootsAmong maps the code of each consequence among the causes to the code of its root.
func rootsAmong(f *Facts, found []Cause) map[string]string {
	roots := map[string]string{}
	for _, d := range Definitions() {
		if !has(found, d.Code) {
			continue
		}
		for _, consequence := range d.RootOf {
			if _, known := roots[consequence]; !known && has(found, consequence) && applies(f, d.Code, consequence) {
				roots[consequence] = d.Code
			}
		}
	}
	return roots
}

// applies reports whether a relation of the definitions holds for these facts.
func applies(f *Facts, root, consequence string) bool {
	switch {
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
	case root == codeKernelHung && consequence == codeRuntimeHung:
		p := f.daemon().Process
		return p == nil || !isStopped(p) // a signal stopped it, not the kernel
	}
	return true
}

// explainsPLEG reports whether a cause is why a relist fails, hangs or is late, so that the kubelet's own word for it adds
// no cause.
func (f *Facts) explainsPLEG(c Cause) bool {
	switch c.Code {
	case codeRuntimeSlow, codeRelistOverloaded:
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
		}
		out = append(out, c)
	}
	for _, c := range found {
		place(c)
	}
	return out
}

func has(causes []Cause, code string) bool { return index(causes, code) >= 0 }

func index(causes []Cause, code string) int {
	return slices.IndexFunc(causes, func(c Cause) bool { return c.Code == code })
}
