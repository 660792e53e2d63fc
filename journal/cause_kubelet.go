package journal

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// kubeletCauses look for a fault of the kubelet itself, and for what is merely wrong at the same time.
func kubeletCauses(c *caseFile) []*suspect {
	var out []*suspect
	if s := kubeletStalled(c); s != nil {
		out = append(out, s)
	}
	if n := c.starts(); c.count(signature.KubeletFatal) > 0 || n >= 3 {
		s := accuse("KubeletCrashLooping", tierKubelet, 0.3, "The kubelet starts again and again.").
			because(c.says(signature.KubeletFatal), c.says(signature.UnitRestarted))
		if n >= 3 {
			s.Confidence += 0.2
			s.because(fmt.Sprintf("it was started %s around the episode", times(int64(n))))
		}
		out = append(out, s)
	}
	if c.count(signature.CertificateExpired) > 0 {
		out = append(out, accuse("CertificateExpired", tierSymptom, 0.2, "A certificate of the kubelet has expired; the node is not ready for that too.").
			because(c.says(signature.CertificateExpired)).against("PLEG does not talk to the API server"))
	}
	return out
}

// starts counts how often the kubelet was started around the episode. One start writes several records.
func (c *caseFile) starts() int {
	n, last := 0, int64(-1<<62)
	for _, b := range c.bursts {
		if c.f.code(b) != signature.KubeletStarted {
			continue
		}
		if t, ok := b.first.at(); ok && t-last > 10*second {
			n, last = n+1, t
		}
	}
	return n
}

// kubeletStalled: the runtime is not on record as failing, and the kubelet's own loops stand.
func kubeletStalled(c *caseFile) *suspect {
	k := c.tally()
	s := accuse("KubeletStalled", tierKubelet, 0, "The kubelet's own loops stand still, while no call to the runtime is on record as failing.")
	if c.count(signature.PLEGChannelFull, signature.EventedPLEGFull) > 0 {
		s.Confidence += 0.55
		s.because(c.says(signature.PLEGChannelFull), c.says(signature.EventedPLEGFull))
	}
	if c.count(signature.WatchdogWithheld, signature.WatchdogTimeout) > 0 {
		s.Confidence += 0.15
		s.because(c.says(signature.WatchdogWithheld), c.says(signature.WatchdogTimeout))
	}
	if c.gap && c.skips >= 3 {
		s.Confidence += 0.2
		s.because(fmt.Sprintf("the skip lines, due every 5 s, pause for %s: the kubelet itself did not run, or records are missing", about(c.longest)))
	}
	age := time.Duration(c.episode.MaxLastSeenSeconds * float64(time.Second))
	if k.failing == 0 && !k.down && age > 10*time.Minute {
		s.Confidence += 0.3
		s.because(fmt.Sprintf("the age grows to %s and no call is on record as failing, though a hung one would be every 2 min", age.Round(time.Second)))
		s.lacks("whether the log holds all of the kubelet's lines")
	}
	if s.Confidence == 0 {
		return nil
	}
	if k.failing > 0 {
		s.Confidence -= 0.3
		s.against("calls to the runtime fail: " + times(k.failing))
	}
	if s.Confidence < 0.15 {
		return nil
	}
	return s
}
