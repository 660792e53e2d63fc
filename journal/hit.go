package journal

import (
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/signature"
)

// What is known of a moment, as bits of moment.flags.
const (
	innerKnown uint8 = 1 << iota
	innerYear
	innerZone
	outerKnown
	outerYear
	outerZone
	resolved // inner is the instant in microseconds since 1970 UTC; nothing else counts any more
)

// A moment is when a record was written, by all of its stamps, small enough to keep hundreds of thousands. Stamps with
// a zone are UTC already; those without a year count in 1972, as in [klog.Stamp].
type moment struct {
	inner  int64 // the program's own stamp; µs
	outer  int64 // the stamp of journald, syslog or the container runtime; µs
	mono   int64 // µs since the machine's start, by the outer clock; 0: unknown
	seq    uint32
	source uint16
	boot   uint16 // number of the boot ID in the pool; 0: unknown
	flags  uint8
}

// newMoment packs the stamps of a record.
func newMoment(inner, outer klog.Stamp, mono int64) moment {
	m := moment{mono: mono}
	if inner.Known && !inner.Monotonic {
		m.inner, m.flags = inner.Micros, m.flags|innerKnown
		if inner.Year {
			m.flags |= innerYear
		}
		if inner.Zone {
			m.flags |= innerZone
			m.inner -= int64(inner.Offset) * 1e6
		}
	}
	if outer.Known && outer.Monotonic && mono == 0 {
		m.mono = outer.Micros
	}
	if outer.Known && !outer.Monotonic {
		m.outer, m.flags = outer.Micros, m.flags|outerKnown
		if outer.Year {
			m.flags |= outerYear
		}
		if outer.Zone {
			m.flags |= outerZone
			m.outer -= int64(outer.Offset) * 1e6
		}
	}
	return m
}

// has reports whether all of the bits are set.
func (m *moment) has(bits uint8) bool { return m.flags&bits == bits }

// raw is the best stamp without any assumption, to compare records of one source that follow each other.
func (m *moment) raw() (micros int64, ok bool) {
	switch {
	case m.flags&(innerKnown|resolved) != 0:
		return m.inner, true
	case m.flags&outerKnown != 0:
		return m.outer, true
	case m.mono != 0:
		return m.mono, true
	}
	return 0, false
}

// at returns the instant, once it is resolved.
func (m *moment) at() (int64, bool) { return m.inner, m.flags&resolved != 0 }

// instant returns the resolved time for a report, or nil.
func (m *moment) instant() *time.Time {
	us, ok := m.at()
	if !ok {
		return nil
	}
	return timeOf(us)
}

// timeOf makes a time for the report: UTC, to the microsecond.
func timeOf(us int64) *time.Time {
	t := time.UnixMicro(us).UTC()
	return &t
}

// What a record that says "PLEG is not healthy" is, as bits of plegHit.kind.
const (
	hasAge      uint8 = 1 << iota
	never             // no relist has succeeded yet
	condition         // a node condition, not a line of the sync loop
	pending           // the status check may not have completed: this kubelet has had no good status yet
	coarse            // its only stamp counts whole seconds
	channelFull       // the evented PLEG's channel is full: another trouble under the same words
)

// A plegHit is one record that says "PLEG is not healthy". It takes 64 bytes or less, so that they can be kept one by one.
type plegHit struct {
	moment
	age       int64 // ns
	pid       int32
	lines     uint32 // records that it stands for; more than one after thinning
	host      uint16
	threshold uint16 // s
	reasons   uint16 // number of the list of reasons in the pool
	kind      uint8
}

// anchor is the record's time minus its age, in µs, on the clock that at is on.
func (h *plegHit) anchor(at int64) int64 { return at - h.age/1000 }

// A burstKey is what records must share to be counted together.
type burstKey struct {
	code    uint16
	host    uint16
	subject uint32
	detail  uint32
	pid     int32
	source  uint16
	side    int8 // of the range of time asked for; see collector.side
}

// A burst is one or more records of the same kind about the same object in short order.
type burst struct {
	burstKey
	first, last moment
	count       uint32
	seconds     float32 // largest that the records state, such as for how long a task was blocked
}

// A detail is what a record says beside its object, mostly of the call that failed. Bursts refer to it by number.
type detail struct {
	RPC, Code, Text string
	Size, Limit     int64
	Sending         bool
	Role            Role            // of the unit that the record names, or of who wrote it where the words are anyone's
	Everywhere      bool            // the limit that was hit is the node's, not one process's
	Constraint      string          // of a kill for memory: memcg or global
	Placed, Pods    bool            // the cgroup of the kill is named; it is of pods
	Owner           signature.Party // whose certificate has expired
}

// A subject is the object that a record names.
type subject struct {
	Kind, ID, Name, Namespace, Pod, PodUID string
}

// label is the object in a few words.
func (s subject) label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Namespace != "" && s.Pod != "" && s.ID == "":
		return s.Namespace + "/" + s.Pod
	}
	return s.ID
}

// A syncHit is a record that proves that the sync loop runs, kept when it follows or precedes unhealthy ones.
type syncHit struct {
	moment
	pid  int32
	host uint16
}
