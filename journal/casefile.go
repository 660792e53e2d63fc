package journal

import (
	"fmt"
	"strings"
	"time"
)

// How far around an episode its causes are looked for.
const (
	lookBefore = 10 * minute // before the anchor
	lookAfter  = 2 * minute  // after the last unhealthy record
)

// A caseFile is what is known of one incident when its causes are judged.
type caseFile struct {
	f       *facts
	episode *Episode
	bursts  []*burst // of the host, around the episode
	byCode  map[string]*seen
	reasons map[string]bool
	skips   int // skip lines
	longest time.Duration
	gap     bool          // the skip lines have a hole of more than twice their cadence
	relists relists       // that followed each other directly, of the series that the episode belongs to
	stood   time.Duration // for how long at least the kubelet's loop did not run before the first skip line; 0: it did
	silence quiet         // what there is of that time
}

// seen is how records of one code occur around an episode.
type seen struct {
	count       int64
	first, last int64
	bursts      []*burst
}

// newCase opens the file of an incident.
func (f *facts) newCase(e *Episode, host uint16, s span, g *grouping, r *run) *caseFile {
	c := &caseFile{f: f, episode: e, byCode: map[string]*seen{}, reasons: map[string]bool{}}
	if s.timed {
		from := s.start
		if s.anchored {
			from = min(from, s.anchor)
		}
		c.bursts = f.around(host, from-lookBefore, s.end+lookAfter)
	} else {
		for i := range f.bursts { // an excerpt without times is one scene
			if b := &f.bursts[i]; b.source == s.first.source && b.of(host) {
				c.bursts = append(c.bursts, b)
			}
		}
	}
	for _, b := range c.bursts {
		code := f.code(b)
		v := c.byCode[code]
		if v == nil {
			v = &seen{}
			c.byCode[code] = v
		}
		v.take(b)
	}
	for _, reason := range e.Reasons {
		c.reasons[reason] = true
	}
	c.pauses(g, r)
	c.standstill(g, r)
	return c
}

// take counts a burst.
func (v *seen) take(b *burst) {
	first, _ := b.first.at()
	last, _ := b.last.at()
	if len(v.bursts) == 0 {
		v.first, v.last = first, last
	}
	v.count += int64(b.count)
	v.first, v.last = min(v.first, first), max(v.last, last)
	v.bursts = append(v.bursts, b)
}

// ofRole returns how records of a code occur that name a unit of a role, nil if there are none.
func (c *caseFile) ofRole(code string, want Role) *seen {
	all := c.byCode[code]
	if all == nil {
		return nil
	}
	v := &seen{}
	for _, b := range all.bursts {
		if c.f.pool.detailOf(b.detail).Role == want {
			v.take(b)
		}
	}
	if v.count == 0 {
		return nil
	}
	return v
}

// pauses looks for holes between the skip lines of one process.
func (c *caseFile) pauses(g *grouping, r *run) {
	var prev *rec
	for _, i := range r.recs {
		rec := &g.recs[i]
		if rec.kind&condition != 0 {
			continue
		}
		c.skips += int(max(1, rec.lines))
		if prev != nil && prev.lines <= 1 && rec.timed && prev.timed && rec.pid == prev.pid && rec.step == prev.step {
			d := time.Duration(rec.clock-prev.clock) * time.Microsecond
			c.longest = max(c.longest, d)
		}
		prev = rec
	}
	c.gap = c.longest > 12*time.Second
}

// count returns how many records bear one of the codes.
func (c *caseFile) count(codes ...string) int64 {
	n := int64(0)
	for _, code := range codes {
		if v := c.byCode[code]; v != nil {
			n += v.count
		}
	}
	return n
}

// calls returns how many records of the codes are failures with a gRPC code, or with one of the texts.
func (c *caseFile) calls(grpc string, texts []string, codes ...string) int64 {
	n := int64(0)
	for _, code := range codes {
		v := c.byCode[code]
		if v == nil {
			continue
		}
		for _, b := range v.bursts {
			d := c.f.pool.detailOf(b.detail)
			ok := grpc != "" && d.Code == grpc
			for _, t := range texts {
				ok = ok || strings.Contains(strings.ToLower(d.Text), t)
			}
			if ok {
				n += int64(b.count)
			}
		}
	}
	return n
}

// says words how often and when records of a code occur, such as "relist failed: 3 records, 00:51:11 to 00:55:11 UTC".
func (c *caseFile) says(code string) string {
	v := c.byCode[code]
	if v == nil {
		return ""
	}
	return c.saysOf(code, v)
}

// saysOf is says of some of the records.
func (c *caseFile) saysOf(code string, v *seen) string {
	sig := c.f.catalogue[code]
	what := sig.Title
	if what == "" {
		what = code
	}
	var extra []string
	if name := c.whom(v); name != "" {
		extra = append(extra, name)
	}
	if d := c.f.pool.detailOf(v.bursts[0].detail); d.Code != "" {
		extra = append(extra, strings.TrimSpace(d.RPC+" "+d.Code))
	}
	if s := longestOf(v.bursts); s >= 1 {
		extra = append(extra, fmt.Sprintf("up to %s", about(time.Duration(s*float32(time.Second)))))
	}
	text := fmt.Sprintf("%s: %s%s", what, records(v.count), c.stretch(v.first, v.last))
	if len(extra) > 0 {
		text += " (" + strings.Join(extra, "; ") + ")"
	}
	return text
}

func longestOf(bursts []*burst) float32 {
	var s float32
	for _, b := range bursts {
		s = max(s, b.seconds)
	}
	return s
}

// whom names the objects of a signature, at most three.
func (c *caseFile) whom(v *seen) string {
	var out []string
	had := map[uint32]bool{0: true}
	for _, b := range v.bursts {
		if had[b.subject] || innocent(c.f.pool.detailOf(b.detail)) {
			continue
		}
		had[b.subject] = true
		if len(out) == 3 {
			out = append(out, "and others")
			break
		}
		out = append(out, clean(c.f.pool.subjectOf(b.subject).label(), 80))
	}
	return strings.Join(out, ", ")
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// records counts log records, which are more than the calls or events that they tell of.
func records(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

// stretch words when something was seen, in the zone of the log.
func (c *caseFile) stretch(first, last int64) string {
	if first == 0 {
		return ""
	}
	const clock = "15:04:05"
	zone := c.f.zone
	a, b := time.UnixMicro(first).In(zone), time.UnixMicro(last).In(zone)
	name := "UTC"
	if _, offset := a.Zone(); offset != 0 {
		name = a.Format("-07:00")
	}
	if b.Sub(a) < time.Second {
		return ", " + a.Format(clock) + " " + name
	}
	return fmt.Sprintf(", %s to %s %s", a.Format(clock), b.Format(clock), name)
}
