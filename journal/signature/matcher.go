package signature

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// A Matcher finds signatures in log records. It is safe for use from several goroutines.
type Matcher struct {
	filter  *filter
	entries []entry
	uses    [][]use // by literal
}

// A use is one form that a literal belongs to, by its places in Matcher.entries and in its entry.
type use struct{ entry, form int }

const (
	// maxEntries and maxLiterals bound the catalogue: sets of them are on the stack.
	maxEntries  = 256
	maxLiterals = 1024
	// maxTries bounds the work for a record that repeats a literal. The offset of a literal matters to few forms.
	maxTries = 4
)

// NewMatcher returns a matcher for all signatures except those with the given codes.
func NewMatcher(except ...string) *Matcher {
	m := &Matcher{}
	m.entries = slices.DeleteFunc(slices.Clone(entries()), func(e entry) bool {
		return slices.Contains(except, e.Code)
	})
	literals := literalsOf(m.entries)
	index := map[string]int{}
	for i, l := range literals {
		index[l] = i
	}
	m.uses = make([][]use, len(literals))
	for e, entry := range m.entries {
		for f, form := range entry.Forms {
			for _, text := range form.Texts {
				m.uses[index[text]] = append(m.uses[index[text]], use{e, f})
			}
		}
	}
	m.filter = newFilter(literals)
	return m
}

// Longest returns the length in bytes of the longest literal. Blocks of a text that are searched one by one must
// overlap by one byte less.
func (m *Matcher) Longest() int { return m.filter.longest }

// Next returns the offset of the first literal of any signature in b, or -1. The record around the literal may still
// match no signature.
func (m *Matcher) Next(b []byte) int { return m.filter.next(b) }

// Match appends the signatures that a record matches to dst, each once, by lane and code. The record is a message,
// with or without the header of klog and the prefixes of its transport. All matches of one record have the same
// facts, and share Reasons. Output of kdiag matches nothing: it quotes other logs.
func (m *Matcher) Match(msg []byte, dst []Match) []Match {
	from := m.filter.possible(msg, 0)
	if from < 0 {
		return dst
	}
	var matched [maxEntries]bool
	var tried [maxLiterals]uint8
	r := record{text: unsafe.String(unsafe.SliceData(msg), len(msg))} // most records that have a literal do not match
	n, reads := 0, uint(0)
	m.filter.each(msg, from, func(literal, start int) {
		if tried[literal] == maxTries {
			return
		}
		tried[literal]++
		for _, u := range m.uses[literal] {
			if e := &m.entries[u.entry]; !matched[u.entry] && e.Forms[u.form].matches(&r, start) {
				matched[u.entry] = true
				reads |= e.reads
				n++
			}
		}
	})
	if n == 0 || own(r.text) {
		return dst
	}
	whole := &record{text: r.text, call: r.call, looked: r.looked}
	first := len(dst)
	for i := 0; n > 0; i++ {
		if matched[i] {
			dst = append(dst, Match{Signature: &m.entries[i].Signature})
			n--
		}
	}
	facts := &dst[first]
	for i := 0; reads>>i != 0; i++ {
		if reads>>i&1 != 0 {
			readers[i].read(whole, facts)
		}
	}
	for i := first + 1; i < len(dst); i++ {
		signature := dst[i].Signature
		dst[i] = *facts
		dst[i].Signature = signature
	}
	return dst
}

// matches reports whether a record that contains one of the form's texts at an offset meets its conditions.
func (f *form) matches(r *record, at int) bool {
	text := r.text
	switch {
	case len(f.RPCs) > 0 && !slices.Contains(f.RPCs, r.rpc()):
		return false
	case len(f.Or) > 0 && !containsAny(text, f.Or), len(f.Not) > 0 && containsAny(text, f.Not):
		return false
	}
	if slices.ContainsFunc(f.And, func(s string) bool { return !strings.Contains(text, s) }) {
		return false
	}
	if len(f.Verbs) > 0 && !slices.ContainsFunc(f.Verbs, func(s string) bool { return leads(text, at, s) }) {
		return false
	}
	if f.OurUnit {
		_, role := unitOf(text, at)
		return role != ""
	}
	return true
}

func containsAny(s string, list []string) bool {
	return slices.ContainsFunc(list, func(sub string) bool { return strings.Contains(s, sub) })
}

// leads reports whether a verb of systemd precedes an offset, with only the name and description of a unit between,
// as in "systemd[1]: Started kubelet.service - kubelet: The Kubernetes Node Agent.".
func leads(s string, at int, verb string) bool {
	const longestName = 100 // bytes of the verb and the name
	from := max(0, at-longestName)
	i := strings.LastIndex(s[from:at], verb)
	if i < 0 || strings.ContainsAny(s[from+i:at], "\n\"=") {
		return false
	}
	i += from
	return i == 0 || strings.IndexByte(" \n\"=", s[i-1]) >= 0
}

// ownPrefix matches the beginning of a record that kdiag wrote.
var ownPrefix = lazyregexp.New(`^\s*kdiag[ :[]|^[^]]{0,120} kdiag(?:\[|: )|"kind": *"(?:Journal)?Report"`)

// own reports whether kdiag wrote a record: its name is in front, or the record is one of its documents.
func own(s string) bool { return strings.Contains(s, "kdiag") && ownPrefix.MatchString(s) }
