package signature

import (
	"slices"
	"strings"
)

// A Matcher finds signatures in log records. It is safe for use from several goroutines.
type Matcher struct {
	filter  *filter
	entries []entry
	uses    [][]use // by literal
}

// A use is one form that a literal belongs to.
type use struct{ entry, form int }

const (
	// maxEntries and maxLiterals bound the catalogue: sets of them stand on the stack.
	maxEntries  = 256
	maxLiterals = 1024
	// maxTries bounds the work for a record that repeats a literal. Where it stands matters to few forms.
	maxTries = 4
)

// NewMatcher returns a matcher for all signatures but those whose codes are given.
func NewMatcher(leave ...string) *Matcher {
	m := &Matcher{}
	m.entries = slices.DeleteFunc(entries(), func(e entry) bool { return slices.Contains(leave, e.Code) })
	literals := unique(m.entries)
	index := map[string]int{}
	for i, l := range literals {
		index[l] = i
	}
	m.uses = make([][]use, len(literals))
	for e, entry := range m.entries {
		for f, form := range entry.forms {
			l := index[form.has]
			m.uses[l] = append(m.uses[l], use{e, f})
		}
	}
	m.filter = newFilter(literals)
	return m
}

// Longest returns the length in bytes of the longest literal. Blocks of a text that are searched one by one must overlap by one
// byte less.
func (m *Matcher) Longest() int { return m.filter.longest }

// Next returns the offset of the first literal of any signature in b, or -1. It is a filter: the record around the literal may
// still bear no signature.
func (m *Matcher) Next(b []byte) int { return m.filter.next(b) }

// Match appends the signatures that a record bears to dst, each once, by lane and code. The record is a message, with or
// without klog's header and the prefixes of its transport. All hits of one record carry the same facts, and share
// Reasons. kdiag's own output bears none: it quotes what it has read.
func (m *Matcher) Match(msg []byte, dst []Hit) []Hit {
	var borne [maxEntries]bool
	var tried [maxLiterals]uint8
	r := record{}
	n, what := 0, reading(0)
	m.filter.each(msg, func(literal, start int) {
		if tried[literal] == maxTries {
			return
		}
		tried[literal]++
		if r.text == "" {
			r.text = string(msg)
		}
		for _, u := range m.uses[literal] {
			if e := &m.entries[u.entry]; !borne[u.entry] && e.forms[u.form].bears(&r, start) {
				borne[u.entry] = true
				what |= e.reads
				n++
			}
		}
	})
	if n == 0 || own(r.text) {
		return dst
	}
	var facts Hit
	read(&r, what, &facts)
	for i := 0; n > 0; i++ {
		if borne[i] {
			facts.Signature = &m.entries[i].Signature
			dst = append(dst, facts)
			n--
		}
	}
	return dst
}

// A record is a message that is being matched.
type record struct {
	text    string
	rpc     string
	rpcDone bool
}

// call returns the CRI call that the record names.
func (r *record) call() string {
	if !r.rpcDone {
		r.rpc, r.rpcDone = rpcName(r.text), true
	}
	return r.rpc
}

// bears reports whether a record that contains the form's literal at an offset meets its conditions.
func (f *form) bears(r *record, at int) bool {
	if len(f.rpcs) > 0 && !slices.Contains(f.rpcs, r.call()) {
		return false
	}
	for _, s := range f.and {
		if !strings.Contains(r.text, s) {
			return false
		}
	}
	for _, s := range f.not {
		if strings.Contains(r.text, s) {
			return false
		}
	}
	if len(f.or) > 0 && !slices.ContainsFunc(f.or, func(s string) bool { return strings.Contains(r.text, s) }) {
		return false
	}
	if len(f.lead) > 0 && !slices.ContainsFunc(f.lead, func(s string) bool { return leads(r.text, at, s) }) {
		return false
	}
	if f.role {
		_, role := unitOf(r.text, at)
		return role != ""
	}
	return true
}

// leads reports whether one of systemd's words stands before an offset with nothing but a unit's name and description between, as in
// "systemd[1]: Started kubelet.service - kubelet: The Kubernetes Node Agent.".
func leads(s string, at int, lead string) bool {
	const longestName = 100 // bytes of the word and the name
	from := max(0, at-longestName)
	i := strings.LastIndex(s[from:at], lead)
	if i < 0 || strings.ContainsAny(s[from+i:at], "\n\"=") {
		return false
	}
	i += from
	return i == 0 || strings.IndexByte(" \n\"=", s[i-1]) >= 0
}

// own reports whether a record is kdiag's: by the name that begins it or stands in its prefix, or by the kind of its document.
func own(s string) bool {
	const prefix = 120 // bytes that the prefix of a transport takes at most
	if !strings.Contains(s, "kdiag") {
		return false
	}
	if trimmed := strings.TrimLeft(s, " \t"); strings.HasPrefix(trimmed, "kdiag") && (len(trimmed) == 5 || !isWord(trimmed[5])) {
		return true
	}
	head := s[:min(len(s), prefix)]
	for _, mark := range []string{" kdiag[", " kdiag: "} {
		i := strings.Index(head, mark)
		if i >= 0 && !strings.Contains(head[:i], "]") {
			return true
		}
	}
	if !strings.Contains(s, "kdiag/v") {
		return false
	}
	kind := field(s, "kind")
	return kind == "JournalReport" || kind == "Report"
}
