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

// A tally counts the records of one code.
type tally struct {
	count       int64
	first, last *time.Time
	example     string
	subjects    map[uint32]*SubjectCount
}

// see takes records from first to last into the tally.
func (t *tally) see(first, last *time.Time, n int64) {
	t.count += n
	t.first, t.last = earlier(t.first, first), later(t.last, last)
}

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

// counts says of each signature how often it was seen.
func (f *facts) counts(parts []*part) []Count {
	tallies := map[string]*tally{}
	of := func(code string) *tally {
		t := tallies[code]
		if t == nil {
			t = &tally{subjects: map[uint32]*SubjectCount{}}
			tallies[code] = t
		}
		return t
	}
	for _, h := range f.pleg {
		of(signature.PLEGNotHealthy).see(h.instant(), h.instant(), int64(max(1, h.lines)))
	}
	podded := f.podded()
	for i := range f.bursts {
		b := &f.bursts[i]
		t := of(f.code(b))
		t.see(b.first.instant(), b.last.instant(), int64(b.count))
		if b.subject == 0 {
			continue
		}
		s := t.subjects[b.subject]
		if s == nil {
			o := f.pool.subjectOf(b.subject)
			s = &SubjectCount{Kind: o.Kind, ID: clean(cmp.Or(o.ID, o.label()), 200)}
			if o.Kind == "Process" {
				s.Name, s.InPod = clean(o.Name, 200), podded[b.subject]
			}
			t.subjects[b.subject] = s
		}
		s.Count += int64(b.count)
		s.First, s.Last = earlier(s.First, b.first.instant()), later(s.Last, b.last.instant())
	}
	for _, p := range parts {
		for code, ex := range p.store.examples {
			if us, ok := p.cal.instant(ex.at); ok {
				ex.at.inner, ex.at.flags = us, ex.at.flags|resolved
			}
			if t, ok := tallies[f.pool.nameOf(code)]; ok && t.example == "" && f.window.admits(&ex.at) {
				t.example = ex.text
			}
		}
	}
	out := make([]Count, 0, len(tallies))
	for code, t := range tallies {
		sig := f.catalogue[code]
		out = append(out, Count{
			Code: code, Title: sig.Title, Lane: string(sig.Lane), Count: t.count, First: t.first, Last: t.last,
			Example: t.example, Subjects: top(t.subjects),
		})
	}
	slices.SortFunc(out, func(a, b Count) int {
		switch {
		case a.First != nil && b.First != nil:
			return cmp.Or(a.First.Compare(*b.First), cmp.Compare(a.Code, b.Code))
		case a.First != nil:
			return -1
		case b.First != nil:
			return 1
		}
		return cmp.Compare(a.Code, b.Code)
	})
	return out
}

// podded holds the tasks, by number, whose kill for memory names a pod's control group as theirs. The kernel says so in another record than
// that of the kill.
func (f *facts) podded() map[uint32]bool {
	out := map[uint32]bool{}
	for i := range f.bursts {
		if b := &f.bursts[i]; f.pool.detailOf(b.detail).Pods {
			out[b.subject] = true
		}
	}
	return out
}

// top returns the subjects named most often.
func top(all map[uint32]*SubjectCount) []SubjectCount {
	var out []SubjectCount
	for _, s := range all {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b SubjectCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), topSubjects)]
}

// clean makes a text of a log safe to show on one line: no control characters, no more than limit bytes.
func clean(s string, limit int) string {
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
