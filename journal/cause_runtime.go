package journal

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// runtimeCauses tell a dead, a hung and a slow runtime apart by which calls fail, and how.
func runtimeCauses(c *caseFile) []*suspect {
	k := c.tally()
	var out []*suspect
	for _, judge := range []func(*caseFile, calls) *suspect{runtimeDown, runtimeUnsupported, runtimeNotReady, runtimeHung, listHang, runtimeSlow, relistOverloaded} {
		if s := judge(c, k); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// unitEnd is how systemd tells that the runtime's unit ended by itself, before the trouble or at its beginning, and is
// not up again by the end of the episode.
func (c *caseFile) unitEnd() (says []string, restarted string) {
	ended := int64(0)
	for _, code := range []string{signature.UnitFailed, signature.UnitOOMKilled} {
		if v := c.ofRole(code, RoleRuntime); v != nil {
			says = append(says, c.saysOf(code, v))
			ended = max(ended, v.last)
		}
	}
	if len(says) == 0 {
		return nil, ""
	}
	for _, v := range []*seen{c.ofRole(signature.UnitStarted, RoleRuntime), c.byCode[signature.RuntimeStarted]} {
		if v != nil && v.last > ended {
			restarted = "the runtime was started again" + c.stretch(v.first, v.last)
		}
	}
	return says, restarted
}

func runtimeDown(c *caseFile, k calls) *suspect {
	stopped := c.byCode[signature.RuntimeStopped]
	ended, again := c.unitEnd()
	if k.refused == 0 && stopped == nil && ended == nil {
		return nil
	}
	s := accuse("RuntimeDown", tierRuntime, 0.55, "The runtime's daemon is not running.").
		because(c.says(signature.RuntimeStopped)).because(ended...)
	if k.refused > 0 {
		s.Confidence += 0.2
		s.Summary = "Nothing listens on the runtime's socket: the daemon is not running."
		s.because(c.refusals(k))
	} else if ended != nil {
		s.Confidence += 0.05
		c.timing(s, signature.UnitFailed, signature.UnitOOMKilled)
	}
	switch {
	case k.unsupported > 0 && k.answered:
		s.Confidence -= 0.4
		s.against("something listens again, though not as a CRI runtime: " + c.says(signature.CRIUnsupported))
	case k.down:
		s.Confidence += 0.1
		s.because("the kubelet lists \"container runtime is down\"")
	}
	if started := c.byCode[signature.RuntimeStarted]; started != nil && (stopped == nil || started.last > stopped.last) {
		again = "the runtime was started again" + c.stretch(started.first, started.last)
	}
	if again != "" {
		s.Confidence -= 0.15
		s.against(again)
	}
	if k.allLate > k.refused {
		s.Confidence -= 0.2
		s.against(fmt.Sprintf("calls rather missed their deadline than were refused: %s", records(k.allLate)))
	}
	return s
}

// runtimeUnsupported is for a socket that answers every call, but not as CRI v1: containerd without its CRI plugin, another program, a
// runtime that is too old. Relists fail at once, each second, and so does the status.
func runtimeUnsupported(c *caseFile, k calls) *suspect {
	if k.unsupported == 0 {
		return nil
	}
	s := accuse("RuntimeUnsupported", tierRuntime, 0.35, "Something listens on the runtime's socket that does not speak CRI v1: the runtime's CRI plugin is disabled, or it is another program.").
		because(c.says(signature.CRIUnsupported))
	if k.listsUnsupported > 0 {
		s.Confidence += 0.4
		s.because("the lists of every relist fail with it")
	}
	if k.down && k.answered {
		s.Confidence += 0.1
		s.because("the kubelet lists \"container runtime is down\"")
	}
	switch {
	case k.refused > 0 && k.answered:
		s.because(c.refusals(k) + ": before that, when nothing listened, as while the daemon is started again")
	case k.refused > 0:
		s.Confidence -= 0.4
		s.against("calls were refused after that: " + c.refusals(k))
	}
	return s
}

// refusals words how often calls were refused: one call writes two or three records.
func (c *caseFile) refusals(k calls) string {
	text := "refused calls: " + records(k.refused)
	if v := c.byCode[signature.RuntimeUnreachable]; v != nil {
		text += c.stretch(v.first, v.last)
	}
	return text
}

// runtimeNotReady is for a runtime that answers Status and says itself that it is not ready. Such an answer does not count
// as a good status, so "container runtime is down" appears after 30 s too (pkg/kubelet/kubelet.go, updateRuntimeUp).
func runtimeNotReady(c *caseFile, k calls) *suspect {
	if !k.notReady {
		return nil
	}
	s := accuse("RuntimeNotReady", tierRuntime, 0.7, "The runtime answers, and says itself that it is not ready.").
		because(c.says(signature.RuntimeNotReadyReported))
	for _, r := range c.episode.Reasons {
		if strings.Contains(r, "RuntimeReady=false") {
			s.because("the kubelet lists \"" + r + "\"")
		}
	}
	if k.statusLate+k.listsLate > 0 {
		s.Confidence -= 0.3
		s.against("calls missed their deadline as well")
	}
	if k.refused > 0 {
		s.Confidence -= 0.3
		s.against("calls were refused as well")
	}
	return s
}

func runtimeHung(c *caseFile, k calls) *suspect {
	if !k.down && k.statusLate == 0 || k.refused > k.allLate {
		return nil
	}
	s := accuse("RuntimeHung", tierRuntime, 0.5, "The runtime accepts calls and answers none: it hangs as a whole.")
	if c.episode.Recovered {
		s.Summary = "The runtime accepted calls and answered none: it hung as a whole."
	}
	if c.reasons[reasonDown] {
		s.Confidence += 0.1
		s.because("the kubelet lists \"container runtime is down\" beside PLEG: neither status nor lists have succeeded")
	}
	s.because(c.says(signature.RuntimeIsDown), c.says(signature.SanityCheckFailed))
	if k.statusLate+k.listsLate == 0 {
		if ended, again := c.unitEnd(); k.notReady || k.unsupported > 0 || c.stood > 0 || ended != nil && again == "" || c.byCode[signature.RuntimeStopped] != nil {
			return nil // what is known says why there is no good status
		}
		s.Confidence = min(s.Confidence, 0.45)
		s.Summary = "The runtime's status has not succeeded for 30 s; the log does not say whether it hangs or is not running."
		return s.lacks("records of failing calls: those that miss their deadline show a runtime that hangs, refused ones one that is not running")
	}
	if k.listsLate > 0 {
		s.Confidence += 0.25
		s.because(c.says(signature.RelistFailed), c.says(signature.ListFailed))
	} else if k.lists == 0 {
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
	goesOn := c.episode.Recovered || k.moving >= 2 || k.relists.n() > 0
	switch {
	case k.down || k.statusLate > 0:
		s.Confidence = 0.3
		s.against("the runtime's status does not come back either, so all of it hangs")
	case goesOn && k.lateLists <= 1:
		s.Confidence, s.Summary = 0.45, "A list missed its deadline once; later ones came back."
		s.against("relists succeeded again")
	default:
		s.because("the kubelet does not call the runtime down")
		s.lacks("a look at the other calls: which of the two lists hangs names the lock")
	}
	if c.episode.Recovered && s.Confidence > 0.45 {
		s.Summary = "The lists of pods or containers did not come back, as when one container's lock is held."
	}
	return s
}

// runtimeSlow is for relists that end, but late, with other signs of slowness.
func runtimeSlow(c *caseFile, k calls) *suspect {
	signs := c.count(signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed, signature.StatsFailed, signature.NameReserved)
	if k.moving < 2 && signs == 0 || k.lateLists > 1 && k.moving < 2 || k.down {
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
	if k.relists.scattered() {
		s.Confidence += 0.2
		s.because(k.relists.text())
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
	if k.failing > 0 || k.down || k.relists.hung() || k.moving < 2 && !k.relists.scattered() && (!near || !c.episode.Recovered) {
		return nil
	}
	s := accuse("RelistOverloaded", tierRuntime, 0.3, "Relists end late and no failing call is on record; perhaps there are many pods.").
		because(movingText(k)).
		lacks("the number of pods, and how long one inspection takes")
	if k.moving >= 2 {
		s.Confidence += 0.15
	}
	if k.relists.scattered() {
		s.Confidence += 0.2
		s.because(k.relists.text())
	}
	if near {
		s.because(fmt.Sprintf("the age stays near the threshold: at most %s", age.Round(time.Second)))
	}
	return s.because("no failing call is on record")
}
