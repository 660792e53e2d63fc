package checks

import (
	"fmt"
	"time"
)

// Checks returns everything that kdiag looks at, in the order in which it is shown: the cause before its consequences, so
// from the kernel upwards, then the runtime from the socket inwards, the kubelet, and what the logs say.
func Checks() []Check {
	return []Check{
		hostPressure(),
		hostMemory(),
		hostSpace(),
		hostInodes(),
		hostWrites(),
		hostDisks(),
		hostMounts(),
		hostPIDs(),
		hostFiles(),
		hostInotify(),
		hostConntrack(),
		hostCgroups(),
		hostClock(),
		hostProcesses(),
		hostTasks(),
		hostZombies(),
		hostShims(),
		hostFreezer(),
		hostThrottling(),
		systemdAnswer(),
		systemdUnits(),
		runtimeUnit(),
		runtimeEndpoint(),
		runtimeConnect(),
		runtimeVersion(),
		runtimeStatus(),
		runtimeNetwork(),
		runtimeLists(),
		runtimeInspect(),
		imageService(),
		relistSize(),
		relistExited(),
		relistProjection(),
		kubeletUnitCheck(),
		kubeletSettings(),
		kubeletHealthz(),
		kubeletServer(),
		kubeletMetrics(),
		kubeletCertificates(),
		kubeletAPIServer(),
		kubeletCgroupDriver(),
		kubeletCNI(),
		journalPLEG(),
		journalKubelet(),
		journalAPIServer(),
		journalKernel(),
	}
}

// Results reads the checks out of the facts, one result for each, in the order of Checks, without those that the command
// does not look at. It is pure.
func Results(f *Facts) []Result {
	list := Checks()
	out := make([]Result, 0, len(list))
	for _, c := range list {
		r := Result{Status: StatusUnknown, Summary: "no runtime was asked"}
		if f != nil {
			r = c.read(f)
		}
		if r.Status == StatusSkipped && r.Summary == notWanted {
			continue
		}
		r.ID = c.ID
		out = append(out, r)
	}
	return out
}

// result makes a result without a duration.
func result(s Status, format string, args ...any) Result {
	return Result{Status: s, Summary: fmt.Sprintf(format, args...)}
}

// took adds a duration to a result.
func (r Result) took(d time.Duration) Result {
	r.DurationSeconds = new(max(d, 0).Seconds())
	return r
}

// unreached is the result of a check that needs calls which were not made; nil when they could be.
func (f *Facts) unreached() *Result {
	var r Result
	switch {
	case f.Measurement == nil:
		r = result(StatusUnknown, "no runtime was asked")
	case !f.connected():
		r = result(StatusSkipped, "the socket did not get that far")
	default:
		return nil
	}
	return &r
}

// readRPC is the result for one RPC that says all that there is to say by being answered.
func (f *Facts) readRPC(name string, good func() Result) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	r := f.rpc(name)
	switch r.Outcome {
	case notAsked:
		return result(StatusUnknown, "%s", or(f.cutOff(name), name+" was not asked before the time was up"))
	case hung, failed:
		return result(StatusCritical, "%s", callLine(r.last())).took(r.last().Elapsed)
	}
	return good().took(r.last().Elapsed)
}
