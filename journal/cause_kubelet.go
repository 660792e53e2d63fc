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
	if s := certificateExpired(c); s != nil {
		out = append(out, s)
	}
	return out
}

// certificateExpired tells whose certificate the records are about.
func certificateExpired(c *caseFile) *suspect {
	v := c.byCode[signature.CertificateExpired]
	if v == nil {
		return nil
	}
	owners := map[signature.Party]bool{}
	for _, b := range v.bursts {
		owners[c.f.pool.detailOf(b.detail).Owner] = true
	}
	what := "A certificate has expired, or this node's clock is wrong."
	switch own, server := owners[signature.KubeletParty], owners[signature.APIServer]; {
	case own && server:
		what = "The kubelet's certificate and the API server's have expired, or a clock is wrong."
	case own:
		what = "The kubelet's own certificate has expired: the API server does not accept it."
	case server:
		what = "The API server's certificate has expired, or this node's clock is wrong: the kubelet does not accept it."
	}
	return accuse("CertificateExpired", tierSymptom, 0.2, what).
		because(c.says(signature.CertificateExpired)).against("PLEG does not talk to the API server")
}

// starts counts how often the kubelet was started around the episode. One start writes several records, of one process.
func (c *caseFile) starts() int {
	n, last, pid := 0, int64(-1<<62), int32(0)
	for _, b := range c.bursts {
		if c.f.code(b) != signature.KubeletStarted {
			continue
		}
		t, ok := b.first.at()
		if ok && (t-last > 10*second || pid != 0 && b.pid != 0 && b.pid != pid) {
			n, last, pid = n+1, t, b.pid
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
	if c.stood > 0 {
		c.stoodStill(s)
	}
	age := time.Duration(c.episode.MaxLastSeenSeconds * float64(time.Second))
	if c.stood == 0 && k.failing == 0 && !k.down && age > 10*time.Minute {
		s.Confidence += 0.3
		s.because(fmt.Sprintf("the age grows to %s and no call is on record as failing, though a hung one would be every 2 min", age.Round(time.Second)))
		s.lacks("whether the log holds all of the kubelet's lines")
	}
	if s.Confidence == 0 {
		return nil
	}
	if k.failing > 0 && c.stood == 0 {
		s.Confidence -= 0.3
		s.against("calls to the runtime fail: " + records(k.failing))
	}
	if s.Confidence < 0.15 {
		return nil
	}
	return s
}
