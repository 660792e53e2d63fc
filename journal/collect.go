package journal

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// matchers finds records: with the proof that the sync loop runs, which healthy kubelets write all day, or without.
type matchers struct{ full, lean *signature.Matcher }

// begin prepares a source for its first reading.
func (r *reader) begin(s *source) {
	s.Name = Clean(s.name, 1024)
	s.matches, s.reader, s.active = newMatches(cmp.Or(r.opts.mostBursts, maxBursts)), r, r.m.full
	s.hint = calendarHint{
		loc: r.opts.Local, notAfter: r.opts.Now(), how: "assumed: the last that is not in the future",
	}
	if !s.changed.IsZero() && s.changed.Before(s.hint.notAfter) {
		s.hint.notAfter, s.hint.how = s.changed, "assumed from file mtime"
	}
	if r.opts.Year != 0 {
		s.hint.notAfter, s.hint.how = time.Date(r.opts.Year, 12, 31, 0, 0, 0, 0, time.UTC), "as given by --year"
	}
}

// literal returns where the first literal of a signature stands in a text.
func (s *source) literal(b []byte) int { return s.active.Next(b) }

// match matches one message of a journal, and keeps the matches for the entries that it belongs to.
func (s *source) match(message []byte) bool {
	s.found = s.active.Match(message, s.found[:0])
	return len(s.found) > 0 || s.reader.opts.everySync && (severity(message) != "" || isOutput(message))
}

// output begins the line in which the kubelet has what mount(8) or umount(8) said, behind the error of a volume
// (k8s.io/mount-utils): journald and syslog have each line as a record of its own.
const output = "Output: "

// isOutput reports whether a line, which may begin with what syslog puts in front, is the output of a program.
func isOutput(line []byte) bool {
	return bytes.HasPrefix(line, []byte(output)) ||
		bytes.Contains(line[:min(len(line), 128)], []byte("]: "+output))
}

// withOutput adds to a record with an output the error before it, matches both as one record, and returns its time.
func (s *source) withOutput(r *textlog.Record, t timestamp) timestamp {
	words, is := bytes.CutPrefix(r.Message, []byte(output))
	if s.joined = is && s.failed != nil && s.failedBy == r.PID; s.joined {
		r.Message = slices.Concat(s.failed, []byte(": "), words)
		s.found = s.reader.m.full.Match(r.Message, s.found[:0])
		t.inner, t.outer = s.failedAt.inner, s.failedAt.outer
	}
	s.failed = nil
	if !s.joined && slices.ContainsFunc(s.found, func(m signature.Match) bool {
		return m.Signature.Code == signature.MountFailed
	}) {
		s.failed, s.failedAt, s.failedBy = bytes.Clone(r.Message), t, r.PID
	}
	return t
}

// wanted reports whether a record is of the units asked for. Records that name no sender pass.
func (s *source) wanted(r *textlog.Record) bool {
	if len(s.reader.opts.Units) == 0 {
		return true
	}
	by := senders(r)
	return len(by) == 0 || slices.ContainsFunc(s.reader.opts.Units, func(unit string) bool {
		unit = strings.TrimSuffix(unit, ".service")
		return slices.Contains(by, unit) || slices.Contains(by, unit+".service")
	})
}

// senders returns the units and identifiers that a record names.
func senders(r *textlog.Record) []string {
	by := slices.Clone(r.Units)
	if r.Kernel {
		by = append(by, "kernel")
	}
	return slices.DeleteFunc(append(by, r.Identifier), func(s string) bool { return s == "" })
}

// line takes a record of a text.
func (s *source) line(r *textlog.Record) {
	if s.found = s.found[:0]; !r.Sample {
		s.found = s.reader.m.full.Match(r.Message, s.found)
	}
	s.take(r)
}

// take takes one record, whose matches are in found.
func (s *source) take(r *textlog.Record) {
	s.seq++
	t := newTimestamp(r, s.seq)
	if at, ok := t.raw(); ok {
		if s.last != 0 && at > s.last {
			s.ups++
		} else if s.last != 0 && at < s.last {
			s.downs++
		}
		s.last = at
	}
	s.matches.stamp(t)
	t = s.withOutput(r, t)
	s.errorRecord(r, t)
	if len(s.found) > 0 && !ofCanary(r) && s.wanted(r) {
		for i := range s.found {
			s.keep(&s.found[i], r, t)
		}
	}
}

// descending reports whether the source is newest first, by the records so far.
func (s *source) descending() bool { return s.downs > 2*s.ups }

// ownChild begins the names of kdiag's own child processes (package host), which it leaves behind in file systems that
// hang. The kernel reports them, and they hold nothing up.
const ownChild = "kdiag-"

// ofCanary reports whether a record is about a canary of kdiag (package canary), whose first try fails on a runtime
// that cannot be asked for its cgroup driver.
func ofCanary(r *textlog.Record) bool { return bytes.Contains(r.Message, []byte(ownChild+"canary")) }

// keep keeps one match of a record.
func (s *source) keep(m *signature.Match, r *textlog.Record, t timestamp) {
	if strings.HasPrefix(m.Process, ownChild) {
		return
	}
	b := Burst{
		burstKey: burstKey{
			Code: m.Signature.Code, host: unique.Make(r.Host).Value(), PID: int32(cmp.Or(r.InnerPID, r.PID)), side: s.side(t),
			object: unique.Make(objectOf(m, r)), call: unique.Make(callOf(m, r)),
		},
		first: t, last: t, Count: 1, Seconds: m.Seconds,
	}
	if s.joined {
		b.Count = 0 // the error alone was counted
	}
	switch b.Code {
	case signature.SyncLoopActive:
		s.syncLoop(b, m.Signature)
		return
	case signature.PLEGNotHealthy:
		s.unhealthy(m, r, t, b.host)
	case signature.RuntimeIsDown: // the next proof that the loop runs is its end
		s.afterUnhealthy = true
		s.active = s.reader.m.full
		s.matches.add(b)
	case signature.GoroutineDump:
		if s.dump == nil || !before(t, *s.dump) {
			s.dump = &t
		}
		s.matches.add(b)
	default:
		s.matches.add(b)
	}
	// The example is the first record in the range asked for. side is a guess until all stamps are known; counts checks
	// again.
	text := r.Message[:min(len(r.Message), 8*exampleLength)]
	ex := s.matches.examples[b.Code]
	if ex == nil || s.side(ex.at) != 0 && b.side == 0 {
		ex = &example{at: t, text: ends(string(text)), latestAt: t}
		s.matches.examples[b.Code] = ex
	}
	// The first reason why a runtime does not start is the cause of those that follow within the second.
	at, _ := t.raw()
	first, _ := ex.latestAt.raw()
	follows := b.Code == signature.RuntimeStartFailed && ex.latest != nil && at-first < second
	if b.side == 0 && !before(t, ex.latestAt) && !follows && !bytes.Contains(text, []byte("exceeds retry count")) {
		ex.latestAt, ex.latest = t, append(ex.latest[:0], text...)
	}
	what := ""
	if m.HasAge {
		what = ", last seen active " + m.Age.Round(time.Millisecond).String() + " ago"
	}
	s.live(b, m.Signature, what)
}

// live hands on a record while a log is followed. Its time is the record's, or else now.
func (s *source) live(b Burst, sig *signature.Signature, what string) {
	if s.reader.opts.onEvent == nil {
		return
	}
	at, known := (&calendar{hint: s.hint}).instant(b.first)
	if !known {
		at = time.Now().UnixMicro()
	}
	e := b.event(sig)
	e.At, e.What = timeOf(at), e.What+what
	s.reader.opts.onEvent(e)
}

// side returns on which side of the range asked for a record lies, by its own stamps alone: -1 before, 1 after, 0
// within or unknown.
func (s *source) side(t timestamp) int8 {
	w := s.reader.opts.window()
	if w.open() {
		return 0
	}
	if at, ok := (&calendar{hint: s.hint}).instant(t); ok {
		return w.side(at)
	}
	return 0
}

// syncLoop keeps the proofs that the loop runs next to unhealthy records, and stops looking for more.
func (s *source) syncLoop(b Burst, sig *signature.Signature) {
	b.object, b.call, b.after = unique.Make(Object{}), unique.Make(Call{}), uint32(len(s.matches.unhealthy))
	if s.afterUnhealthy {
		s.live(b, sig, "")
	}
	if s.pending = &b; s.afterUnhealthy || s.reader.opts.everySync {
		s.matches.add(b)
		s.pending = nil
	}
	s.afterUnhealthy = false
	if !s.reader.opts.everySync && !s.descending() {
		s.active = s.reader.m.lean
	}
}

// unhealthy keeps an unhealthy record.
func (s *source) unhealthy(m *signature.Match, r *textlog.Record, t timestamp, host string) {
	s.reader.found.Add(1)
	if stated, ok := conditionTime(r.Message); ok {
		t.outer, t.stated = stated, true
		s.matches.stamp(t)
	}
	if s.pending != nil {
		s.matches.add(*s.pending) // in a log that runs backwards, this one came after
		s.pending = nil
	}
	s.matches.addUnhealthy(newUnhealthy(m, t, cmp.Or(r.InnerPID, r.PID), host))
	s.afterUnhealthy = true
	s.active = s.reader.m.full
}
