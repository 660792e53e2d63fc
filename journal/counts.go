package journal

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	topSubjects   = 5   // named per signature
	exampleLength = 400 // bytes of an example record
)

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

func later(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.After(*a) {
		return b
	}
	return a
}

// A tally counts the records of one code.
type tally struct {
	Count
	subjects map[Object]*SubjectCount
}

// counts returns how often each signature was seen.
func (h *history) counts(sources []*logSource) []Count {
	tallies := map[string]*tally{}
	see := func(code string, first, last *time.Time, n int64) *tally {
		t := tallies[code]
		if t == nil {
			sig := h.catalogue[code]
			t = &tally{
				Count:    Count{Code: code, Title: sig.Title, Lane: string(sig.Lane)},
				subjects: map[Object]*SubjectCount{},
			}
			tallies[code] = t
		}
		t.Count.Count += n
		t.First, t.Last = earlier(t.First, first), later(t.Last, last)
		return t
	}
	for _, u := range h.unhealthy {
		see(signature.PLEGNotHealthy, u.instant(), u.instant(), int64(max(1, u.lines)))
	}
	podded := map[Object]bool{} // the kernel names the control group of a kill in another record than the kill
	for i := range h.bursts {
		if b := &h.bursts[i]; b.Call().Pods {
			podded[b.Object()] = true
		}
	}
	for i := range h.bursts {
		b := &h.bursts[i]
		first, last := b.first.instant(), b.last.instant()
		t := see(b.Code, first, last, b.Count)
		o := b.Object()
		if o == (Object{}) {
			continue
		}
		s := t.subjects[o]
		if s == nil {
			s = &SubjectCount{Kind: o.Kind, ID: Clean(cmp.Or(o.ID, o.Label()), 200)}
			if o.Kind == "Process" {
				s.Name, s.InPod = Clean(o.Name, 200), podded[o]
			}
			t.subjects[o] = s
		}
		s.Count += b.Count
		s.First, s.Last = earlier(s.First, first), later(s.Last, last)
	}
	for _, s := range sources {
		for code, ex := range s.matches.examples {
			if us, ok := s.cal.instant(ex.at); ok {
				ex.at.inner, ex.at.flags = us, ex.at.flags|resolved
			}
			if t, ok := tallies[code]; ok && t.Example == "" && h.window.admits(&ex.at) {
				t.Example = ex.text
			}
		}
	}
	out := make([]Count, 0, len(tallies))
	for _, t := range tallies {
		for _, s := range t.subjects {
			t.Subjects = append(t.Subjects, *s)
		}
		slices.SortFunc(t.Subjects, func(a, b SubjectCount) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID),
				byTime(a.First, b.First, 0))
		})
		t.Subjects = t.Subjects[:min(len(t.Subjects), topSubjects)]
		out = append(out, t.Count)
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(byTime(a.First, b.First, 0),
			cmp.Compare(a.Code, b.Code))
	})
	return out
}

// Clean makes a text of a log safe to show on one line: no control characters, no more than limit bytes.
func Clean(s string, limit int) string {
	s = strings.TrimSpace(s)
	cut := len(s) > limit
	if cut {
		s = s[:limit] // a character that is cut here goes below
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	if cut {
		s += "…"
	}
	return s
}
