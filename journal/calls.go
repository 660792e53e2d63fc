package journal

import (
	"math"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// rpcTimeout is the kubelet's default deadline of most calls to the runtime (runtimeRequestTimeout in
// pkg/kubelet/apis/config/v1beta1/defaults.go).
const rpcTimeout = 2 * time.Minute

// maxHungCalls is up to how many hung calls an age can count: beyond, being near a multiple of the deadline is chance.
const maxHungCalls = 6

// What a bracket list says beside PLEG, as signature.Match.Reasons has it.
const (
	reasonDown    = "container runtime is down"
	reasonPending = "container runtime status check may not have completed yet"
)

// gRPC's names of codes.
const (
	deadline      = "DeadlineExceeded"
	unavailable   = "Unavailable"
	unimplemented = "Unimplemented"
)

// Texts of a refused connection: nothing listens.
func refusedTexts() []string {
	return []string{"connection refused", "no such file or directory", "cannot connect to the docker", "cannot connect to docker", "is the docker daemon running"}
}

// runtimeCalls are the signatures of failing calls to the runtime.
func runtimeCalls() []string {
	return []string{
		signature.RelistFailed, signature.ListFailed, signature.InspectFailed, signature.StopFailed, signature.RemoveFailed,
		signature.CreateFailed, signature.SanityCheckFailed, signature.StatsFailed, signature.ImageServiceFailed,
		signature.ContainerGCFailed, signature.LogRotateFailed, signature.ExecFailed, signature.RuntimeUnreachable,
	}
}

// calls is how the runtime's calls fail around an episode, counted in records. One failing call writes up to three.
type calls struct {
	listsLate, lists                 int64
	lateLists                        int // lists that missed their deadline one after the other
	inspectLate, statusLate, allLate int64
	refused                          int64
	unsupported                      int64 // records of a socket that does not speak CRI v1
	listsUnsupported                 int64 // lists among them
	answered                         bool  // what does not speak CRI v1 answered after the last call that was refused
	tooLarge                         int64
	down                             bool // the kubelet says that the runtime is down: its status has failed for 30 s
	notReady                         bool // the runtime has answered that it is not ready
	failing                          int64
	peak                             int // hung calls that the worst age counts; 0: it counts none
	moving                           int // stalls with different anchors
	inspect, objectOps               int64
	relists                          relists
}

func (c *caseFile) tally() calls {
	lists := []string{signature.RelistFailed, signature.ListFailed}
	everything := runtimeCalls()
	k := calls{
		lists:       c.count(lists...),
		listsLate:   c.calls(deadline, nil, lists...),
		lateLists:   c.lateInARow(lists...),
		inspect:     c.count(signature.InspectFailed),
		inspectLate: c.calls(deadline, nil, signature.InspectFailed),
		statusLate:  c.calls(deadline, nil, signature.SanityCheckFailed),
		allLate:     c.calls(deadline, nil, everything...),
		refused:     c.calls("", refusedTexts(), everything...),
		tooLarge:    c.count(signature.MessageTooLarge),
		failing:     c.count(everything...),
		objectOps:   c.calls(deadline, nil, signature.StopFailed, signature.RemoveFailed, signature.ExecFailed),
		down:        c.reasons[reasonDown] || c.count(signature.RuntimeIsDown) > 0,
		notReady:    c.count(signature.RuntimeNotReadyReported) > 0,
		moving:      len(c.episode.Stalls),
		relists:     c.relists,
	}
	k.refused = max(k.refused, c.count(signature.RuntimeUnreachable))
	if v := c.byCode[signature.CRIUnsupported]; v != nil {
		k.unsupported, k.listsUnsupported = v.count, c.calls(unimplemented, nil, lists...)
		k.answered = c.answeredSince(v)
	}
	k.peak = c.peak(k)
	return k
}

// peakAbove is how far beyond the threshold an age must be to count calls: every stall passes the threshold itself, which
// is near a multiple of the deadline when it is 10 min.
const peakAbove = 30 * time.Second

// peak returns how many hung calls the worst age counts. Only a stall that ended has a worst age; where a log is cut, its
// last record has just an age.
func (c *caseFile) peak(k calls) int {
	age := time.Duration(c.episode.MaxLastSeenSeconds * float64(time.Second))
	threshold := time.Duration(c.episode.ThresholdSeconds * float64(time.Second))
	if threshold == 0 {
		threshold = time.Duration(relistThreshold)
	}
	if !c.episode.Recovered && !c.worstEnded(k) || age < threshold+peakAbove {
		return 0
	}
	n := int(math.Round(age.Seconds() / rpcTimeout.Seconds()))
	if n < 2 || n > maxHungCalls {
		return 0
	}
	// The last line comes up to 5 s before the call ends, or the relist ends a little after it.
	if d := age - time.Duration(n)*rpcTimeout; d < -6*time.Second || d > 8*time.Second {
		return 0
	}
	return n
}

// worstEnded reports whether a later anchor shows that the stall with the worst age ended.
func (c *caseFile) worstEnded(k calls) bool {
	if k.moving < 2 {
		return false
	}
	last := c.episode.Stalls[k.moving-1]
	return last.MaxLastSeenSeconds < c.episode.MaxLastSeenSeconds
}

// lateInARow counts the calls that missed their deadline one after the other, by the time between their records: the
// records of one call lie within a second, those of the next one a deadline later.
func (c *caseFile) lateInARow(codes ...string) int {
	var at []int64
	for _, code := range codes {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			if c.f.pool.detailOf(b.detail).Code != deadline {
				continue
			}
			first, _ := b.first.at()
			last, _ := b.last.at()
			at = append(at, first, last)
		}
	}
	slices.Sort(at)
	n := 0
	for i, t := range at {
		if i == 0 || t-at[i-1] > minute {
			n++
		}
	}
	return n
}

// answeredSince reports whether the last record of a socket that does not speak CRI v1 comes after the last refused call: something listens
// again. Records without a time do not tell.
func (c *caseFile) answeredSince(v *seen) bool {
	refused := c.byCode[signature.RuntimeUnreachable]
	return refused == nil || v.last > refused.last
}
