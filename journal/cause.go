package journal

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/journal/signature"
)

// Tiers of causes: what stands lower can be the root of what stands higher, hardly the other way round.
const (
	tierHost = iota
	tierObject
	tierRuntime
	tierKubelet
	tierSymptom
)

// rootFrom is the confidence from which a cause of a lower tier goes before a more certain one of a higher tier.
const rootFrom = 0.5

// A suspect is a cause in the making.
type suspect struct {
	Cause
	tier int
}

func accuse(code string, tier int, confidence float64, summary string) *suspect {
	return &suspect{tier: tier, Cause: Cause{
		Code: code, Confidence: confidence, Summary: summary,
		Evidence: Evidence{For: []string{}, Against: []string{}, Missing: []string{}},
	}}
}

// because adds evidence for the suspect; empty texts are left out.
func (s *suspect) because(texts ...string) *suspect {
	s.Evidence.For = addTexts(s.Evidence.For, texts)
	return s
}

func (s *suspect) against(texts ...string) *suspect {
	s.Evidence.Against = addTexts(s.Evidence.Against, texts)
	return s
}

func (s *suspect) lacks(texts ...string) *suspect {
	s.Evidence.Missing = addTexts(s.Evidence.Missing, texts)
	return s
}

func addTexts(list, texts []string) []string {
	for _, t := range texts {
		if t != "" && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// causes judges an incident: why did it happen, by the logs alone.
func (c *caseFile) causes() []Cause {
	var all []*suspect
	for _, judge := range []func(*caseFile) []*suspect{hostCauses, objectCauses, runtimeCauses, kubeletCauses} {
		all = append(all, judge(c)...)
	}
	if c.stood > 0 {
		c.clear(all)
	}
	c.last(&all)
	slices.SortStableFunc(all, func(a, b *suspect) int {
		ra, rb := a.Confidence >= rootFrom, b.Confidence >= rootFrom
		switch {
		case ra != rb:
			if ra {
				return -1
			}
			return 1
		case ra:
			return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(b.Confidence, a.Confidence), cmp.Compare(a.Code, b.Code))
		}
		return cmp.Or(cmp.Compare(b.Confidence, a.Confidence), cmp.Compare(a.tier, b.tier), cmp.Compare(a.Code, b.Code))
	})
	out := make([]Cause, 0, len(all))
	for i, s := range all {
		if i == 0 {
			s.lacks(c.unseen()...)
		}
		s.Confidence = min(max(s.Confidence, 0.05), 0.95)
		out = append(out, s.Cause)
	}
	return out
}

// last adds PLEGUnhealthy where nothing deeper was found.
func (c *caseFile) last(all *[]*suspect) {
	for _, s := range *all {
		if s.tier < tierSymptom && s.Confidence >= 0.4 {
			return
		}
	}
	what := "The kubelet says that PLEG is not healthy, and the logs do not say why."
	if c.episode.Kind == Failing {
		what = "Relists fail, and the logs do not say why."
	}
	s := accuse("PLEGUnhealthy", tierSymptom, 0.4, what).
		because(c.onlySkips()).
		lacks("records of failing calls, of the runtime or of the kernel that would explain it; that there are none proves nothing: many details are only logged at -v=4")
	*all = append(*all, s)
}

// onlySkips words what there is when nothing says why.
func (c *caseFile) onlySkips() string {
	text := records(int64(c.episode.Lines))
	if c.count(runtimeCalls()...) == 0 {
		text += ", no failing call among them"
	}
	return text
}

// unseen words what could not be looked at: lanes of which nothing was read, and holes.
func (c *caseFile) unseen() []string {
	lanes := map[signature.Lane]bool{}
	for i := range c.f.bursts {
		lanes[c.f.catalogue[c.f.code(&c.f.bursts[i])].Lane] = true
	}
	var out []string
	if !lanes[signature.Runtime] {
		out = append(out, "no record of the container runtime itself was found in what was read")
	}
	if !lanes[signature.Kernel] {
		out = append(out, "no kernel record of interest was found in what was read")
	}
	if v := c.byCode[signature.LogsSuppressed]; v != nil {
		out = append(out, "journald dropped records around the episode"+c.stretch(v.first, v.last))
	}
	return out
}
