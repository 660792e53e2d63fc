package journal

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// beginSlack is how long, in µs, after the anchor what holds up the next relist may have begun: relists are 1 s apart
// (relistPeriod in pkg/kubelet/kubelet.go), and one on a full node takes some seconds.
const beginSlack = 30 * second

// lateConfidence is the most that a cause is worth which began after the trouble: less than "the logs do not say why".
const lateConfidence = 0.35

// lag is how long, in µs, before its record something can have begun.
func lag(code string, b *burst) int64 {
	stated := int64(float64(b.seconds) * 1e6)
	switch code {
	case signature.HungTask:
		// The kernel looks every N s and reports what has not moved for N s, so it began N to 2N s before
		// (kernel/hung_task.c); later reports of one task state a larger N.
		return 2 * max(stated, minute)
	case signature.SoftLockup:
		return max(stated, 20*second)
	case signature.OOMKill, signature.UnitOOMKilled, signature.UnitFailed, signature.UnitStopped, signature.RuntimeStopped:
		return 0 // happens when it is written
	case signature.NFSNotResponding, signature.BlockIOError:
		return 3 * minute // written once all repetitions have failed: timeo=600, retrans=2 of nfs(5); 30 s a try for disks
	}
	return 2 * minute // a lasting state, of which somebody writes when it next gets in the way
}

// began returns the earliest instant at which what records of the codes tell can have begun; false without times.
func (c *caseFile) began(codes ...string) (int64, bool) {
	earliest, ok := int64(0), false
	for _, code := range codes {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			if t, timed := b.first.at(); timed {
				if t -= lag(code, b); !ok || t < earliest {
					earliest, ok = t, true
				}
			}
		}
	}
	return earliest, ok
}

// trouble returns when the trouble began: the anchor, else the first unhealthy record.
func (c *caseFile) trouble() (int64, bool) {
	switch {
	case c.episode.Anchor != nil:
		return c.episode.Anchor.UnixMicro(), true
	case c.episode.Start != nil:
		return c.episode.Start.UnixMicro(), true
	}
	return 0, false
}

// timing takes from a suspect that began only after the trouble what makes it a root.
func (c *caseFile) timing(s *suspect, codes ...string) {
	began, ok := c.began(codes...)
	anchor, known := c.trouble()
	if !ok || !known || began <= anchor+beginSlack {
		return
	}
	s.Confidence = min(s.Confidence, lateConfidence)
	s.against(fmt.Sprintf("it began %s or more after the last good relist, so it is no root", about(time.Duration(began-anchor)*time.Microsecond)))
}

// clockCauses tell of clocks. A step of the wall clock does not make PLEG unhealthy, since the kubelet measures the age
// on the monotonic clock; a machine that was suspended loses its connections.
func clockCauses(c *caseFile) []*suspect {
	var out []*suspect
	if c.sleptBefore() {
		out = append(out, accuse("ClockJumped", tierHost, 0.6, "The machine was suspended while PLEG became unhealthy.").
			because(c.says(signature.MachineSuspended)))
	} else if s := clockStep(c); s != nil {
		out = append(out, s)
	}
	return out
}

// sleptBefore reports whether the machine was suspended between the last good relist and the first unhealthy record.
func (c *caseFile) sleptBefore() bool {
	v := c.byCode[signature.MachineSuspended]
	anchor, ok := c.trouble()
	if v == nil || !ok || c.episode.Start == nil {
		return false
	}
	start := c.episode.Start.UnixMicro()
	for _, b := range v.bursts {
		first, fok := b.first.at()
		last, lok := b.last.at()
		if fok && first >= anchor && first <= start || lok && last >= anchor && last <= start {
			return true
		}
	}
	return false
}

func clockStep(c *caseFile) *suspect {
	s := accuse("ClockJumped", tierSymptom, 0.2, "The wall clock was set; that alone does not make PLEG unhealthy.").
		because(c.says(signature.ClockChanged))
	for _, st := range c.episode.Stalls {
		if st.SpreadSeconds >= 30 {
			s.because(fmt.Sprintf("within one stall, time of day and stated age drift apart by %.0f s", st.SpreadSeconds))
			break
		}
	}
	if len(s.Evidence.For) == 0 {
		return nil
	}
	return s.against("the kubelet measures the age on the monotonic clock")
}
