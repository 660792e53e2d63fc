package journal

import (
	"fmt"
	"math"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// rpcTimeout is the kubelet's default deadline of most calls to the runtime (runtimeRequestTimeout in
// pkg/kubelet/apis/config/v1beta1/defaults.go).
const rpcTimeout = 2 * time.Minute

// maxHungCalls is up to how many hung calls an age can count: beyond, being near a multiple of the deadline is chance.
const maxHungCalls = 6

// What a bracket list says beside PLEG, as signature.Hit.Reasons has it.
const (
	reasonDown    = "container runtime is down"
	reasonPending = "container runtime status check may not have completed yet"
)

const deadline = "DeadlineExceeded"

// Texts of a refused connection: nothing listens.
func refusedTexts() []string {
	return []string{"connection refused", "no such file or directory", "cannot connect to the docker", "cannot connect to docker", "is the docker daemon running"}
}

// calls is how the runtime's calls fail around an episode, counted.
type calls struct {
	listsLate, lists                 int64
	inspectLate, statusLate, allLate int64
	refused                          int64
	tooLarge                         int64
	down                             bool // the kubelet says that the runtime is down: its status has failed for 30 s
	failing                          int64
	peak                             int // hung calls that the worst age counts; 0: it counts none
	moving                           int // stalls with different anchors
	inspect, objectOps               int64
}

func (c *caseFile) tally() calls {
	lists := []string{signature.RelistFailed, signature.ListFailed}
	everything := []string{
		signature.RelistFailed, signature.ListFailed, signature.InspectFailed, signature.StopFailed, signature.RemoveFailed,
		signature.CreateFailed, signature.SanityCheckFailed, signature.StatsFailed, signature.ImageServiceFailed,
		signature.ContainerGCFailed, signature.LogRotateFailed, signature.ExecFailed, signature.RuntimeUnreachable,
	}
	k := calls{
		lists:       c.count(lists...),
		listsLate:   c.calls(deadline, nil, lists...),
		inspect:     c.count(signature.InspectFailed),
		inspectLate: c.calls(deadline, nil, signature.InspectFailed),
		statusLate:  c.calls(deadline, nil, signature.SanityCheckFailed),
		allLate:     c.calls(deadline, nil, everything...),
		refused:     c.calls("", refusedTexts(), everything...) + c.count(signature.RuntimeUnreachable),
		tooLarge:    c.count(signature.MessageTooLarge),
		failing:     c.count(everything...),
		objectOps:   c.calls(deadline, nil, signature.StopFailed, signature.RemoveFailed, signature.ExecFailed),
		down:        c.reasons[reasonDown] || c.count(signature.RuntimeIsDown) > 0,
		moving:      len(c.episode.Stalls),
	}
	age := time.Duration(c.episode.MaxLastSeenSeconds * float64(time.Second))
	if n := int(math.Round(age.Seconds() / rpcTimeout.Seconds())); n >= 2 && n <= maxHungCalls {
		// The last line comes up to 5 s before the call ends, or the relist ends a little after it.
		if d := age - time.Duration(n)*rpcTimeout; d >= -6*time.Second && d <= 8*time.Second {
			k.peak = n
		}
	}
	return k
}

// runtimeCauses tell a dead, a hung and a slow runtime apart by which calls fail, and how.
func runtimeCauses(c *caseFile) []*suspect {
	k := c.tally()
	var out []*suspect
	for _, judge := range []func(*caseFile, calls) *suspect{runtimeDown, runtimeHung, listHang, runtimeSlow, relistOverloaded} {
		if s := judge(c, k); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func runtimeDown(c *caseFile, k calls) *suspect {
	stopped := c.byCode[signature.RuntimeStopped]
	if k.refused == 0 && stopped == nil {
		return nil
	}
	s := accuse("RuntimeDown", tierRuntime, 0.55, "Nothing listens on the runtime's socket: the daemon is not running.").
		because(c.says(signature.RuntimeUnreachable), c.says(signature.RuntimeStopped))
	if k.refused > 0 {
		s.Confidence += 0.2
		s.because(fmt.Sprintf("calls were refused %s", times(k.refused)))
	}
	if k.down {
		s.Confidence += 0.1
		s.because("the kubelet lists \"container runtime is down\"")
	}
	if started := c.byCode[signature.RuntimeStarted]; started != nil && (stopped == nil || started.last > stopped.last) {
		s.Confidence -= 0.15
		s.against("the runtime was started again" + stretch(started.first, started.last))
	}
	if k.allLate > k.refused {
		s.Confidence -= 0.2
		s.against(fmt.Sprintf("calls rather missed their deadline than were refused: %s", times(k.allLate)))
	}
	return s
}

func runtimeHung(c *caseFile, k calls) *suspect {
	if !k.down && k.statusLate == 0 || k.refused > k.allLate {
		return nil
	}
	s := accuse("RuntimeHung", tierRuntime, 0.5, "The runtime accepts calls and answers none: it hangs as a whole.")
	if c.reasons[reasonDown] {
		s.Confidence += 0.1
		s.because("the kubelet lists \"container runtime is down\" beside PLEG: neither status nor lists come back")
	}
	s.because(c.says(signature.RuntimeIsDown), c.says(signature.SanityCheckFailed))
	switch {
	case k.listsLate > 0:
		s.Confidence += 0.25
		s.because(c.says(signature.RelistFailed), c.says(signature.ListFailed))
	case k.lists == 0:
		s.lacks("records of the failing lists, which would show how they fail")
	}
	if k.statusLate > 0 {
		s.Confidence += 0.05
	}
	return s
}

func listHang(c *caseFile, k calls) *suspect {
	if k.listsLate == 0 || k.tooLarge > 0 {
		return nil
	}
	s := accuse("ListHang", tierRuntime, 0.75, "The lists of pods or containers do not come back, as when one container's lock is held.").
		because(c.says(signature.RelistFailed), c.says(signature.ListFailed))
	switch {
	case k.down || k.statusLate > 0:
		s.Confidence = 0.3
		s.against("the runtime's status does not come back either, so all of it hangs")
	default:
		s.because("the kubelet does not call the runtime down")
		s.lacks("a look at the other calls: which of the two lists hangs names the lock")
	}
	return s
}

// runtimeSlow is for relists that end, but late, with other signs of slowness.
func runtimeSlow(c *caseFile, k calls) *suspect {
	signs := c.count(signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed, signature.StatsFailed, signature.NameReserved)
	if k.moving < 2 && signs == 0 || k.listsLate > 0 && k.moving < 2 || k.down {
		return nil
	}
	s := accuse("RuntimeSlow", tierRuntime, 0.25, "Relists end, but the runtime answers too slowly for them to end in time.").
		because(movingText(k), c.says(signature.HousekeepingSlow), c.says(signature.RuntimeStalled), c.says(signature.StatsFailed), c.says(signature.NameReserved))
	if k.moving >= 2 {
		s.Confidence += 0.2
	}
	if signs > 0 {
		s.Confidence += 0.15
	}
	return s
}

func movingText(k calls) string {
	if k.moving < 2 {
		return ""
	}
	return fmt.Sprintf("the anchor moves: %d different relists were late one after the other", k.moving)
}

// relistOverloaded is for relists that end late while nothing fails.
func relistOverloaded(c *caseFile, k calls) *suspect {
	age := time.Duration(c.episode.MaxLastSeenSeconds * float64(time.Second))
	near := age > 0 && age < 3*time.Minute+45*time.Second && c.episode.ThresholdSeconds <= 180
	if k.failing > 0 || k.down || k.moving < 2 && (!near || !c.episode.Recovered) {
		return nil
	}
	s := accuse("RelistOverloaded", tierRuntime, 0.3, "Too many pods to inspect one after the other: no call fails, all together take too long.").
		because(movingText(k)).
		lacks("the number of pods, and how long one inspection takes")
	if k.moving >= 2 {
		s.Confidence += 0.15
	}
	if near {
		s.because(fmt.Sprintf("the age stays near the threshold: at most %s", age.Round(time.Second)))
	}
	return s.because("no failing call is on record")
}
