package journal

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	topSubjects   = 10  // named per signature
	exampleLength = 400 // bytes of an example record
	// maxMemoryKills bounds the control groups with kills that are kept: more than a node has pods.
	maxMemoryKills = 200
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

// counts returns how often each signature was seen.
func (h *history) counts() []Count {
	all := map[string]*Count{}
	subjects := map[string]map[Object]*SubjectCount{}
	see := func(code string, first, last *time.Time, n int64) {
		c := all[code]
		if c == nil {
			sig := h.catalogue[code]
			c = &Count{Code: code, Title: sig.Title, Lane: string(sig.Lane)}
			all[code], subjects[code] = c, map[Object]*SubjectCount{}
		}
		c.Count += n
		c.First, c.Last = earlier(c.First, first), later(c.Last, last)
	}
	for _, u := range h.unhealthy {
		see(signature.PLEGNotHealthy, u.time(), u.time(), 1+int64(u.folded))
	}
	podded := map[Object]bool{} // the kernel names the control group of a kill in another record than the kill
	for i := range h.bursts {
		podded[h.bursts[i].Object()] = podded[h.bursts[i].Object()] || h.bursts[i].Call().InPod()
	}
	for i := range h.bursts {
		b := &h.bursts[i]
		if b.Code == signature.SyncLoopActive && !h.everySync {
			continue // only those next to unhealthy records were kept
		}
		first, last, o := b.first.time(), b.last.time(), b.Object()
		see(b.Code, first, last, b.Count)
		if o == (Object{}) {
			continue
		}
		s := subjects[b.Code][o]
		if s == nil {
			s = &SubjectCount{Kind: o.Kind, ID: Clean(cmp.Or(o.ID, o.Label(), o.PodUID), 200)}
			if o.Kind == "Process" {
				s.Name, s.InPod = Clean(o.Name, 200), podded[o]
			}
			subjects[b.Code][o] = s
		}
		s.Count += b.Count
		s.First, s.Last = earlier(s.First, first), later(s.Last, last)
		newest := s.Last == last || last != nil && last.Equal(*s.Last)
		if text := b.Call().Text; text != "" && newest && slices.Contains(ofPods, b.Code) {
			s.Error = ends(text)
		}
	}
	latest := map[string]int64{}
	for _, s := range h.sources {
		for code, ex := range s.matches.examples {
			ex.at.at, ex.at.known = s.cal.instant(ex.at)
			ex.latestAt.at, ex.latestAt.known = s.cal.instant(ex.latestAt)
			c, ok := all[code]
			if ok && c.Example == "" && h.window.admits(&ex.at) {
				c.Example = ex.text
			}
			if ok && h.window.admits(&ex.latestAt) && ex.latestAt.at >= latest[code] {
				latest[code], c.Latest = ex.latestAt.at, ends(string(ex.latest))
			}
		}
	}
	out := []Count{}
	for code, c := range all {
		if c.Latest == c.Example {
			c.Latest = ""
		}
		for _, s := range subjects[code] {
			c.Subjects = append(c.Subjects, *s)
		}
		slices.SortFunc(c.Subjects, func(a, b SubjectCount) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID),
				byTime(a.First, b.First, 0))
		})
		c.Subjects = c.Subjects[:min(len(c.Subjects), topSubjects)]
		out = append(out, *c)
	}
	slices.SortFunc(
		out,
		func(a, b Count) int { return cmp.Or(byTime(a.First, b.First, 0), cmp.Compare(a.Code, b.Code)) },
	)
	return out
}

// memoryKills returns in which control groups the kernel killed for memory, and by whose limit, the most often first.
func (h *history) memoryKills() []MemoryKill {
	var all []MemoryKill
	for i := range h.bursts {
		b, call := &h.bursts[i], h.bursts[i].Call()
		if call.Cgroup == "" {
			continue
		}
		k := MemoryKill{
			Cgroup: Clean(call.Cgroup, 253), Limit: Clean(call.Limiter, 253), Task: Clean(b.Object().Name, 200),
		}
		at := slices.IndexFunc(all, func(o MemoryKill) bool {
			return o.Cgroup == k.Cgroup && o.Limit == k.Limit && o.Task == k.Task
		})
		if at < 0 {
			at = len(all)
			all = append(all, k)
		}
		all[at].Count += b.Count
		all[at].First, all[at].Last = earlier(all[at].First, b.first.time()), later(all[at].Last, b.last.time())
	}
	slices.SortStableFunc(all, func(a, b MemoryKill) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(len(all), maxMemoryKills)]
}

// withoutValues returns a structured record up to the end of its error.
func withoutValues(s string) string {
	for _, key := range []string{` err="`, ` error="`} {
		if begin := strings.Index(s, key) + len(key) - 1; begin >= len(key) {
			if quoted, err := strconv.QuotedPrefix(s[begin:]); err == nil {
				return s[:begin+len(quoted)]
			}
		}
	}
	return s
}

// ends is Clean for an example: of a long record what follows its error, most digits of its ids, and then the middle,
// between two words, are left out. Its beginning has what failed, and its end why.
func ends(s string) string {
	const gap, half = " … ", exampleLength / 2
	if s = strings.TrimSpace(s); len(s) > exampleLength {
		s = signature.ShortIDs(withoutValues(s))
	}
	if len(s) <= exampleLength {
		return Clean(s, exampleLength)
	}
	first, last := s[:half], s[len(s)-(exampleLength-half-len(gap)):]
	if i := strings.LastIndexByte(first, ' '); i > half/2 {
		first = first[:i]
	}
	if i := strings.IndexByte(last, ' '); i >= 0 && i < half/2 {
		last = last[i:]
	}
	return Clean(first, half) + gap + Clean(last, half)
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
