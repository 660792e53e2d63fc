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
)

// What a record that says "PLEG is not healthy" is, as bits of unhealthy.kind.
const (
	hasAge    uint8 = 1 << iota
	never           // no relist has succeeded yet
	condition       // a node condition, not a line of the sync loop
	pending         // the status check may not have completed: this kubelet has had no good status yet
	coarse          // its only stamp counts whole seconds
)

// An unhealthy is one record that says "PLEG is not healthy".
type unhealthy struct {
	timestamp
	age       int64 // ns
	host      string
	reasons   unique.Handle[string] // what else the record lists, joined by separator
	pid       int32
	lines     uint32 // records that it stands for; more than one after thinning
	threshold uint16 // s
	kind      uint8

	// clock is the record's time in µs with the steps of the wall clock taken out as far as they are known: by the
	// monotonic clock where a journal gives it, else by time that goes backwards in the text. Set by sequence.
	clock int64
	timed bool
	// step numbers the stretches of a text between steps back. The time that really passed at a step is unknown.
	step int32
}

// newUnhealthy makes a match of an unhealthy record.
func newUnhealthy(h *signature.Match, m timestamp, pid int, host string) unhealthy {
	u := unhealthy{timestamp: m, pid: int32(pid), lines: 1, host: host}
	if h.HasAge {
		u.age, u.kind = int64(h.Age), u.kind|hasAge
	}
	if h.Never {
		u.kind |= never
	}
	if h.Condition {
		u.kind |= condition
	}
	if s := int64(h.Threshold / time.Second); s > 0 && s < 1<<16 {
		u.threshold = uint16(s)
	}
	if us, ok := m.raw(); ok && us%second == 0 {
		u.kind |= coarse
	}
	u.reasons = unique.Make(strings.Join(h.Reasons, separator))
	if slices.Contains(h.Reasons, "container runtime status check may not have completed yet") {
		u.kind |= pending
	}
	return u
}

// separator stands between the reasons that a record lists.
const separator = "\x1f"

// value returns what a handle stands for; the zero value for the zero handle.
func value[T comparable](h unique.Handle[T]) T {
	if h == (unique.Handle[T]{}) {
		var zero T
		return zero
	}
	return h.Value()
}

// anchor is the record's time minus its age, in µs, on the clock that at is on.
func (h *unhealthy) anchor(at int64) int64 { return at - h.age/1000 }

// A mark is a record that can end an episode: proof that the sync loop runs, or that the node is ready.
type mark struct {
	timestamp
	clock int64 // as in unhealthy
	code  string
	host  string
	pid   int32
}

// A burstKey is what records must share to be counted together.
type burstKey struct {
	Code   string // of the signature
	PID    int32  // of the process that wrote them; 0: unknown
	source uint16
	side   int8 // of the range of time asked for; see collector.side
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
func (b *Burst) First() time.Time { return b.first.time() }

// Last is the time of the last record; zero where none is known.
func (b *Burst) Last() time.Time { return b.last.time() }

// Object is the object that the records name.
func (b *Burst) Object() Object { return value(b.object) }

// Call is what the records say beside their object.
func (b *Burst) Call() Call { return value(b.call) }

// of reports whether a burst belongs to a host, as far as it names one.
func (b *Burst) of(host string) bool { return b.host == host || b.host == "" || host == "" }

// An Object is what a record names: a container, a process, a file system. The zero Object is none.
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

// A Call is what a record holds beside its object, mostly of the call that failed.
type Call struct {
	RPC, Code, Text string // the method, gRPC's code, and the beginning of the error
	Size, Limit     int64  // bytes of a message that was too large, and what was allowed
	Sending         bool   // the sender refused it
	Role            Role   // of the unit that the record names, or of who wrote it where the words are anyone's
	Everywhere      bool   // the limit that was hit is the node's, not one process's
	Constraint      string // of a kill for memory: memcg or global
	Placed, Pods    bool   // the cgroup of the kill is named; it is of pods
	Owner           signature.Party
}

// Refused reports whether nothing listened on the runtime's socket.
func (c Call) Refused() bool {
	text := strings.ToLower(c.Text)
	for _, words := range []string{
		"connection refused", "no such file or directory", "cannot connect to the docker", "cannot connect to docker",
		"is the docker daemon running",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// Innocent reports whether a call failed before it came to the object that it names: on a socket where nothing listens,
// or something that does not speak CRI.
func (c Call) Innocent() bool {
	return c.Code == "Unavailable" && c.Refused() || c.Code == "Unimplemented" &&
		strings.Contains(strings.ToLower(c.Text), "unknown service")
}

// callOf is what a match holds beside its object.
func callOf(h *signature.Match, r *record) Call {
	c := Call{
		RPC: h.RPC, Code: h.GRPCCode, Text: h.ErrorText[:min(len(h.ErrorText), 100)], Size: h.Size, Limit: h.Limit,
		Sending: h.Sending,
		Role:    laneRole(h.Role), Constraint: h.Constraint, Owner: h.Owner,
		Placed: h.Constraint != "" && h.Path != "", Pods: h.Constraint != "" && strings.Contains(h.Path, "kubepods"),
	}
	switch h.Signature.Code {
	case signature.DiskFull, signature.FilesExhausted: // words that any program uses
		c.Role = senderRole(r)
		c.Everywhere = bytes.Contains(r.msg, []byte("too many open files in system")) // ENFILE; EMFILE has no more words
	}
	return c
}

// objectOf is the object that a match names, the most particular one first.
func objectOf(h *signature.Match) Object {
	o := Object{Namespace: h.Namespace, Pod: h.Pod, PodUID: h.PodUID}
	switch {
	case h.ContainerID != "":
		o.Kind, o.ID, o.Name = "Container", h.ContainerID, h.Container
	case h.SandboxID != "":
		o.Kind, o.ID = "PodSandbox", h.SandboxID
	case h.Process != "":
		o.Kind, o.Name = "Process", h.Process
		if h.PID != 0 {
			o.ID = strconv.Itoa(h.PID)
		}
	case h.Path != "":
		o.Kind, o.ID = "Filesystem", h.Path
	case h.Device != "":
		o.Kind, o.ID = "Device", h.Device
	case h.Unit != "":
		o.Kind, o.ID = "Unit", h.Unit
	case h.Pod != "" || h.PodUID != "":
		o.Kind, o.Name = "Pod", h.Container
	default:
		return Object{}
	}
	return o
}
