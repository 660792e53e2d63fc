package journal

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// The kinds of records with "PLEG is not healthy", as bits of unhealthy.kind.
const (
	hasAge    uint8 = 1 << iota
	never           // no relist has succeeded yet
	condition       // a node condition, not a line of the sync loop
	coarse          // its only stamp counts whole seconds
)

// An unhealthyRecord is one record with "PLEG is not healthy".
type unhealthyRecord struct {
	timedRecord
	age       int64 // ns
	host      string
	reasons   unique.Handle[string] // the other reasons that the record lists, joined by separator
	threshold uint32                // ms
	kind      uint8
	folded    int32 // records of the same stall before this one that were counted and not kept
}

// newUnhealthy makes a match of an unhealthy record.
func newUnhealthy(m *signature.Match, t timestamp, pid int, host string) unhealthyRecord {
	u := unhealthyRecord{
		timedRecord: timedRecord{timestamp: t, pid: int32(pid)}, host: host,
		reasons:   unique.Make(strings.Join(m.Reasons, separator)),
		threshold: uint32(min(max(m.Threshold/time.Millisecond, 0), 1<<32-1)),
	}
	if m.HasAge {
		u.age, u.kind = int64(m.Age), u.kind|hasAge
	}
	if m.Never {
		u.kind |= never
	}
	if m.Condition {
		u.kind |= condition
	}
	if us, ok := t.raw(); ok && us%second == 0 {
		u.kind |= coarse
	}
	return u
}

// separator stands between the reasons that a record lists.
const separator = "\x1f"

// anchor is the record's time minus its age, in µs, on the clock that at is on.
func (u *unhealthyRecord) anchor(at int64) int64 { return at - u.age/1000 }

// A burstKey holds the facts that records must share to be counted together.
type burstKey struct {
	Code   string // of the signature
	PID    int32  // of the process that wrote them; 0: unknown
	source uint16
	side   int8   // of the range of time asked for; see collector.side
	after  uint32 // unhealthy records before it, where Code shows that the sync loop runs
	host   string
	object unique.Handle[Object]
	call   unique.Handle[Call]
}

// A Burst is one or more records of the same kind about the same object in short order.
type Burst struct {
	burstKey
	Title       string // of the signature
	Count       int64
	Seconds     float64 // largest that the records state, such as for how long a task was blocked
	first, last timestamp
}

// First is the time of the first record; zero where none is known.
func (b *Burst) First() time.Time { return orZero(b.first.time()) }

// Last is the time of the last record; zero where none is known.
func (b *Burst) Last() time.Time { return orZero(b.last.time()) }

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// Object is the object that the records name.
func (b *Burst) Object() Object { return b.object.Value() }

// Call returns the facts of the records beside their object.
func (b *Burst) Call() Call { return b.call.Value() }

// of reports whether a burst belongs to a host, as far as it names one.
func (b *Burst) of(host string) bool { return b.host == host || b.host == "" || host == "" }

// near reports whether a record lies within gap of the burst.
func (b *Burst) near(t timestamp, gap int64) bool {
	at, ok := t.raw()
	from, _ := b.first.raw()
	to, timed := b.last.raw()
	return ok == timed && (!ok || at >= from-gap && at <= to+gap)
}

// join adds the records of another burst of the same kind.
func (b *Burst) join(o *Burst) {
	b.Count += o.Count
	b.Seconds = max(b.Seconds, o.Seconds)
	if before(o.first, b.first) {
		b.first = o.first
	}
	if !before(o.last, b.last) {
		b.last = o.last
	}
}

// before compares two timestamps of one source by their stamps, else by their place.
func before(a, b timestamp) bool {
	ta, aok := a.raw()
	tb, bok := b.raw()
	if aok && bok && ta != tb {
		return ta < tb
	}
	return a.seq < b.seq
}

// An Object is a thing that a record names: a container, a process, a file system. The zero Object is none.
type Object struct {
	Kind, ID, Name, Namespace, Pod, PodUID string
}

// Label is the object in a few words.
func (o Object) Label() string {
	if o.Name == "" && o.Namespace != "" && o.Pod != "" && o.ID == "" {
		return o.Namespace + "/" + o.Pod
	}
	return cmp.Or(o.Name, o.ID)
}

// A Call holds the facts of a record beside its object, mostly of the call that failed.
type Call struct {
	RPC, Code, Text string // the method, gRPC's code, and the beginning of the error
	Size, Limit     int64  // bytes of a message that was too large, and the limit
	Sending         bool   // the sender refused it
	Role            Role   // of the unit that the record names, or of its writer where any program may use the words
	Everywhere      bool   // the limit that was hit is the node's, not one process's
	Constraint      string // of a kill for memory: memcg or global
	Cgroup, Limiter string // of the kill, where it is named, and the one that was at its limit
}

// Refused reports whether nothing listened on the runtime's socket.
func (c Call) Refused() bool {
	text := strings.ToLower(c.Text)
	return slices.ContainsFunc([]string{
		"connection refused", "no such file or directory", "cannot connect to the docker", "cannot connect to docker",
		"is the docker daemon running",
	}, func(words string) bool { return strings.Contains(text, words) })
}

// InPod reports whether a kill is named to be in the cgroup of a pod.
func (c Call) InPod() bool { return strings.Contains(c.Cgroup, "kubepods") }

// Innocent reports whether a call failed before it came to the object that it names: on a socket where nothing listens,
// or something that does not speak CRI.
func (c Call) Innocent() bool {
	return c.Code == "Unavailable" && c.Refused() || c.Code == "Unimplemented" &&
		strings.Contains(strings.ToLower(c.Text), "unknown service")
}

// callOf returns the facts of a match beside its object.
func callOf(m *signature.Match, r *textlog.Record) Call {
	c := Call{
		RPC: m.RPC, Code: m.GRPCCode, Text: m.ErrorText, Size: m.Size, Limit: m.Limit, Sending: m.Sending,
		Role: laneRole(m.Role), Constraint: m.Constraint,
	}
	if c.Constraint != "" && m.Path != "" {
		c.Cgroup, c.Limiter = m.Path, m.Limiter
	}
	switch m.Signature.Code {
	case signature.DiskFull, signature.FilesExhausted: // words that any program uses
		c.Role, _ = senderRole(r)
		c.Everywhere = bytes.Contains(r.Message, []byte("open files in system")) // ENFILE; EMFILE has no more words
	}
	return c
}

// ofPods are the signatures of pods that do not start, stop or answer. Of the first nine the pod is the object: after
// most of them the kubelet makes another sandbox, whose id means nothing.
var ofPods = []string{
	signature.PodRejected, signature.CNIFailed, signature.CreateFailed, signature.NameReserved, signature.PodSyncFailed,
	signature.PluginMissing, signature.ProbeUnroutable, signature.ProbeFailed, signature.ImagePullFailed,
	signature.StopFailed, signature.MountFailed,
}

// objectOf is the object that a match of a record names, the most particular one first.
func objectOf(m *signature.Match, r *textlog.Record) Object {
	o := Object{Namespace: m.Namespace, Pod: m.Pod, PodUID: m.PodUID}
	switch {
	case slices.Contains(ofPods[:9], m.Signature.Code) && m.Pod != "" && m.Namespace != "":
		return Object{Kind: "Pod", Namespace: m.Namespace, Pod: m.Pod}
	case m.ContainerID != "":
		o.Kind, o.ID, o.Name = "Container", m.ContainerID, m.Container
	case m.SandboxID != "":
		o.Kind, o.ID = "PodSandbox", m.SandboxID
	case m.Process != "":
		o.Kind, o.Name = "Process", m.Process
		if m.PID != 0 {
			o.ID = strconv.Itoa(m.PID)
		}
	case m.Path != "":
		o.Kind, o.ID = "Filesystem", m.Path
	case m.Device != "":
		o.Kind, o.ID = "Device", m.Device
	case m.Unit != "":
		o.Kind, o.ID = "Unit", m.Unit
	case m.Signature.Code == signature.GoPanicked && len(r.Units) > 0: // of whoever writes it
		o.Kind, o.ID = "Unit", r.Units[0]
	case m.Pod != "" || m.PodUID != "":
		o.Kind, o.Name = "Pod", m.Container
	default:
		return Object{}
	}
	return o
}

// Bounds of the matches of one source.
const (
	maxUnhealthy = 20_000 // one by one: a day of the kubelet's 5 s cadence has 17,280
	maxBursts    = 100_000
	maxStamps    = 4_096
	maxBurstGap  = 7 * 24 * hour
)

// The matches of one source: unhealthy records one by one, and from the bound on only the first and last ones of each
// stall; all others in bursts, whose number is bounded.
type matches struct {
	unhealthy []unhealthyRecord
	bursts    []Burst
	open      map[burstKey]int // the latest burst of each kind
	most      int              // bursts
	gap       int64            // µs within which records join a burst; grows when there are too many
	stamps    []timestamp      // every n-th timestamp, and the latest
	every     uint32
	seen      uint32 // timestamps
	examples  map[string]*example
	errors    map[errorKey]*errorGroup
}

// An example is the first record of a code in a source, and the last one that has more than a count of tries.
type example struct {
	at, latestAt timestamp
	text         string
	latest       []byte
}

func newMatches(most int) *matches {
	return &matches{
		open: map[burstKey]int{}, most: most, gap: 10 * second, every: 1, examples: map[string]*example{},
		errors: map[errorKey]*errorGroup{},
	}
}

// stamp keeps every n-th timestamp; the last place always holds the latest.
func (s *matches) stamp(t timestamp) {
	if !t.inner.Known && !t.outer.Known {
		return
	}
	if n := len(s.stamps); n > 1 && s.seen%s.every != 0 {
		s.stamps[n-1] = t
	} else {
		s.stamps = append(s.stamps, t)
	}
	if s.seen++; len(s.stamps) < maxStamps {
		return
	}
	kept := s.stamps[:0]
	for i, t := range s.stamps {
		if i%2 == 0 || i == len(s.stamps)-1 {
			kept = append(kept, t)
		}
	}
	s.stamps, s.every = kept, 2*s.every
}

// addUnhealthy keeps an unhealthy record. Beyond the bound it leaves out one of the middle of a stall.
func (s *matches) addUnhealthy(u unhealthyRecord) {
	const ends = 10 // records of a stall that are kept at its end; at its beginning 3 count
	s.unhealthy = append(s.unhealthy, u)
	k := len(s.unhealthy) - ends
	if k < maxUnhealthy-ends {
		return
	}
	if it, next := &s.unhealthy[k], &s.unhealthy[k+1]; it.sameStall(&s.unhealthy[k-3]) && it.sameStall(next) {
		next.folded += it.folded + 1
		s.unhealthy = slices.Delete(s.unhealthy, k, k+1)
	}
}

// sameStall reports whether two records of one source state the same relist and the same reasons.
func (u *unhealthyRecord) sameStall(o *unhealthyRecord) bool {
	at, ok := u.raw()
	other, known := o.raw()
	return ok && known && u.kind == o.kind && u.kind&hasAge != 0 && u.pid == o.pid && u.host == o.host &&
		u.reasons == o.reasons && u.threshold == o.threshold && abs(u.anchor(at)-o.anchor(other)) <= anchorTolerance
}

// add counts records of any other kind. When there are too many bursts, those farther and farther apart become one, and
// in the end bursts of different objects too.
func (s *matches) add(b Burst) {
	s.put(b)
	for len(s.bursts) >= s.most {
		all := s.bursts
		s.bursts, s.gap = all[:0], s.gap*6
		clear(s.open)
		for _, b := range all {
			if s.gap > maxBurstGap {
				b.burstKey = burstKey{
					Code: b.Code, side: b.side, object: unique.Make(Object{}), call: unique.Make(Call{}),
				}
			}
			s.put(b)
		}
	}
}

func (s *matches) put(b Burst) {
	if i, ok := s.open[b.burstKey]; ok && s.bursts[i].near(b.first, s.gap) {
		s.bursts[i].join(&b)
		return
	}
	s.open[b.burstKey] = len(s.bursts)
	s.bursts = append(s.bursts, b)
}
