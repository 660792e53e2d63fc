package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
)

// Sizes from which a list's time may be its size's: 5,000 exited containers come in 38 ms (docs/bench), 8 microseconds each.
// Sixty times that is still honest on a loaded node; below 5,000 objects a slow list never is.
const (
	manyObjects       = 5000
	honestPerObject   = 500 * time.Microsecond
	slowCompanyFactor = 4 // all is slow when even the quickest RPC needs a quarter of SlowList
)

func runtimeSlow() Definition {
	return Definition{
		Code:  codeRuntimeSlow,
		Title: "everything answers, too slowly",
		Means: "No call hangs for good, but lists take seconds, status calls take seconds, or the runtime stops answering for a while and goes on. " +
			"Lists are served from memory, so this is a starved daemon: a saturated or throttled disk under its root folder, too " +
			"little CPU, memory reclaim, a lock that many wait for. Size is almost never the reason: 5,000 exited " +
			"containers are listed in 38 ms (docs/bench).\n\n" +
			"The kubelet's relist makes its calls one after the other. With statuses of two seconds, thirty changed containers are a minute; " +
			"a rollout then carries the relist over 3m and the node flaps between Ready and NotReady, without \"container runtime is down\".",
		Confirm: []string{
			"kdiag relist --count 20: is the time even, or does it come in bursts?",
			"grep . /proc/pressure/*: io full avg10 over 20, cpu some over 60 or memory full over 5 names what is short.",
			"Is Version slow as well? It touches nothing but the CPU: then the daemon does not get to run.",
			"The runtime's log says \"failed to reserve container name\": creations took over 2m, nearly always the disk.",
		},
		Fix: []string{
			"Stop the heaviest writer or image pull; limit parallel pulls (serializeImagePulls, maxParallelImagePulls).",
			"Reserve CPU and memory for the system and the kubelet (systemReserved, kubeReserved); move noisy pods away.",
			"Give the runtime's root folder a faster disk, or one of its own.",
			"Restarting the runtime helps only if its own locks are the trouble; a slow disk makes the restart slow too.",
		},
		Mistaken: "TooManyExited and ListTooLarge: slow because of size; needs far more than 5,000 objects. RelistOverloaded: each call is quick and " +
			"there are too many. InspectHang: one object is slow and the others are not. RuntimeHung: nothing comes back, whatever the deadline.",
		Sources: []string{
			"containerd/containerd#5325, #4604, #8698 (slow disks), Azure/AKS#1373 (disk quota)",
			"kubernetes/kubernetes#72533 (starvation before the hang)",
			"KEP-5825 (size of lists), docs/bench (their time)",
		},
		RootOf:    []string{codeInspectHang, codeRelistOverloaded},
		recognise: recogniseRuntimeSlow,
	}
}

func recogniseRuntimeSlow(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone {
		return nil
	}
	list, hasList := f.listMedian()
	status, hasStatus := f.statusMedian()
	slowList := hasList && f.Limits.SlowList > 0 && list >= f.Limits.SlowList && !f.slowBySize(list)
	slowStatus := hasStatus && f.Limits.SlowStatus > 0 && status >= f.Limits.SlowStatus
	stall := f.stalls()
	if !slowList && !slowStatus && !stall {
		return nil
	}
	severity := Warning
	if stall || f.verySlow(list, slowList) || slowStatus && f.allSlow() && status >= f.rpcTimeout()/2 {
		severity = Critical
	}
	e := f.slowEvidence(list, slowList, status, slowStatus)
	step := Certain
	if !f.allSlow() {
		step = Strong
	}
	f.missingSweep(&e)
	f.pressureEvidence(&e)
	if f.hearSlow(&e) {
		severity, step = Critical, raised(step, true) // the kubelet says that it has come so far
	}
	c := newCause(codeRuntimeSlow, severity, step, f.slowSummary(list, slowList, status, slowStatus, stall), e)
	c.Subject = f.daemonSubject()
	c.NextSteps = f.stepsWhenSlow()
	return c
}

// listMedian returns the median time of one relist's lists.
func (f *Facts) listMedian() (time.Duration, bool) {
	if f.Summary == nil || f.Summary.List == nil || f.Summary.List.P50Seconds == nil {
		return 0, false
	}
	return units.ToDuration(*f.Summary.List.P50Seconds), true
}

// statusMedian returns the median time of one answered status call.
func (f *Facts) statusMedian() (time.Duration, bool) {
	if s := f.sweepSummary(); s != nil && s.P50Seconds != nil {
		return units.ToDuration(*s.P50Seconds), true
	}
	return 0, false
}

// slowBySize reports whether the number of objects alone explains the time of the lists.
func (f *Facts) slowBySize(list time.Duration) bool {
	n := f.objects()
	return n >= manyObjects && list <= time.Duration(n)*honestPerObject
}

// allSlow reports whether even the quickest of the plain RPCs is slow: then the daemon as a whole does not get on.
func (f *Facts) allSlow() bool {
	if f.Limits.SlowList <= 0 {
		return false
	}
	seen := 0
	for _, name := range []string{rpcVersion, rpcStatus, rpcSandboxes, rpcContainers} {
		d, ok := f.rpc(name).fastest()
		if !ok {
			continue
		}
		seen++
		if d < f.Limits.SlowList/slowCompanyFactor {
			return false
		}
	}
	return seen > 1
}

// verySlow reports whether slow lists threaten the node now: over the critical limit, or so close to the deadline of
// one call, with everything slow, that the next moment may lose them.
func (f *Facts) verySlow(list time.Duration, slowList bool) bool {
	if !slowList {
		return false
	}
	return f.Limits.VerySlowList > 0 && list >= f.Limits.VerySlowList || f.allSlow() && list >= f.rpcTimeout()/2
}

func (f *Facts) slowSummary(list time.Duration, slowList bool, status time.Duration, slowStatus, stall bool) string {
	name := f.daemon().Label
	switch {
	case f.crawls():
		d, _ := f.rpc(rpcVersion).fastest()
		return fmt.Sprintf("%s crawls: Version took %s, and nothing else came within %s", name, units.Duration(d), units.Duration(f.rpcTimeout()))
	case stall:
		return fmt.Sprintf("%s stops answering for seconds at a time and then goes on", name)
	case slowList && slowStatus:
		return fmt.Sprintf("%s answers, but slowly: %s for the two lists, %s for one status call", name, units.Duration(list), units.Duration(status))
	case slowStatus:
		return fmt.Sprintf("%s answers, but slowly: %s for one status call in the median", name, units.Duration(status))
	}
	return fmt.Sprintf("%s answers, but slowly: %s for the two lists of one relist", name, units.Duration(list))
}

func (f *Facts) slowEvidence(list time.Duration, slowList bool, status time.Duration, slowStatus bool) Evidence {
	var e Evidence
	if n := f.objects(); slowList {
		line := fmt.Sprintf("the two lists of one relist take %s in the median", units.Duration(list))
		if n > 0 && n < manyObjects {
			line += fmt.Sprintf(" for %s: that is never size, but a lock, the disk or the CPU", units.Count(n, "object"))
		} else if n > 0 {
			line += fmt.Sprintf(" for %s, %s each: more than size explains", units.Count(n, "object"), units.Duration(list/time.Duration(n)))
		}
		e.For = append(e.For, line)
	}
	if slowStatus {
		addf(&e.For, "one status call takes %s in the median", units.Duration(status))
	}
	if f.crawls() {
		f.addCalls(&e.For, isHanging, rpcStatus, rpcSandboxes, rpcContainers)
		f.missingPatience(&e)
	}
	for _, name := range []string{rpcSandboxes, rpcContainers} {
		if r := f.rpc(name); r.Outcome == stalled {
			addf(&e.For, "%s of %s did not answer within the deadline, the others did", units.Number(r.hungCalls()), units.Count(len(r.Calls), name+" call"))
		}
	}
	if s, ok := f.silence(); ok && s.Recovered {
		addf(&e.For, "nothing was answered for %s (%s hung), then calls were answered again", units.Duration(s.For), units.Count(s.Hung, "call"))
	}
	if r := f.rpc(rpcVersion); r.Outcome == hung && f.anyList() {
		addf(&e.For, "%s, later calls were answered", callLine(r.last()))
	}
	if d, ok := f.rpc(rpcVersion).fastest(); ok && d >= f.Limits.SlowList/slowCompanyFactor {
		addf(&e.For, "Version, which touches nothing but the CPU, took %s: the daemon hardly gets to run", units.Duration(d))
	} else if ok && !f.stalls() {
		addf(&e.Against, "Version took %s: the daemon itself gets to run", units.Duration(d))
	}
	f.addProjection(&e)
	return e
}

// addProjection adds what the slowness costs the kubelet.
func (f *Facts) addProjection(e *Evidence) {
	s := f.Summary
	if s == nil || s.ProjectedSeconds == nil {
		return
	}
	line := fmt.Sprintf("one relist of the kubelet would take %s now", units.Seconds(*s.ProjectedSeconds))
	if s.ChurnSeconds != nil {
		line += fmt.Sprintf(", %s in a rollout", units.Seconds(*s.ChurnSeconds))
	}
	if s.ColdSeconds != nil {
		line += fmt.Sprintf(", %s after a kubelet restart", units.Seconds(*s.ColdSeconds))
	}
	addf(&e.For, "%s; the threshold is %s", line, units.Duration(f.threshold()))
}

func (f *Facts) stepsWhenSlow() []NextStep {
	var s steps
	f.addPressure(&s)
	s.add(TouchesNothing, "ps -eo stat,pid,wchan:32,comm | grep '^D'", "Many processes in D state wait for a disk or a mount; the function says which.")
	s.add(TouchesNothing, f.kdiagCommand("relist --count 20"), "Is it slow all the time, or in bursts?")
	f.addCapture(&s)
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod makes the next relist longer; keep them away until it is quick again.")
	f.addRestart(&s)
	return s.done()
}
