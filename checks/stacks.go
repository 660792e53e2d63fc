package checks

import (
	"slices"
	"strings"
	"time"
)

// KindStacksReport is the kind of the document of kdiag stacks.
const KindStacksReport = "StacksReport"

// A StacksReport is what goroutine dumps show: who waits for what, since when, and who probably holds it.
type StacksReport struct {
	Header
	Sources []StackSource  `json:"sources"`
	Waits   []StackWait    `json:"waits"` // the largest group first; idle goroutines are left out
	Holders []StackHolder  `json:"holders"`
	Known   []KnownPicture `json:"known"`
}

// A StackSource is one dump, or the reason why a process has none.
type StackSource struct {
	Name       string     `json:"name,omitempty"`    // where it was read: a file, or how it was captured
	Process    string     `json:"process,omitempty"` // its program: containerd; empty when not known
	PID        int        `json:"pid,omitempty"`
	Role       string     `json:"role,omitempty"`     // runtime, shim, kubelet
	ObjectID   string     `json:"objectID,omitempty"` // the sandbox or container that a shim serves
	Goroutines int        `json:"goroutines"`
	Idle       int        `json:"idle"` // of these, wait for work as they should
	CapturedAt *time.Time `json:"capturedAt,omitempty"`
	Cut        string     `json:"cut,omitempty"`     // why the dump is not whole
	Problem    string     `json:"problem,omitempty"` // why there is no dump
	// Kernel are the stacks of its threads in the kernel: all that there is of a process too stuck to dump.
	Kernel []KernelStack `json:"kernel,omitempty"`
}

// A KernelStack is where threads of a process wait in the kernel.
type KernelStack struct {
	Threads int      `json:"threads"`
	State   string   `json:"state"` // as in /proc/PID/stat: S, D, T
	Wchan   string   `json:"wchan,omitempty"`
	Stack   []string `json:"stack,omitempty"` // the innermost function first; needs root
}

// A StackWait is a group of goroutines that wait at one place.
type StackWait struct {
	Source     int      `json:"source"` // index in Sources
	Count      int      `json:"count"`
	State      string   `json:"state"`                // as the Go runtime writes it: sync.Mutex.Lock, select, IO wait
	MinSeconds *float64 `json:"minSeconds,omitempty"` // dumps count whole minutes, from the first on
	MaxSeconds *float64 `json:"maxSeconds,omitempty"`
	On         string   `json:"on"`                   // an object, such as lock 0xc0004c61e0 of statusStorage
	WaitsFor   string   `json:"waitsFor,omitempty"`   // a word of the list in package stacks: ttrpc, runc, cni, bolt, ...
	Stack      []string `json:"stack"`                // the innermost function first
	Calls      []string `json:"calls"`                // RPCs that these goroutines serve: ContainerStatus
	Goroutines []int    `json:"goroutines,omitempty"` // ids, at most 20
	// Still counts the goroutines that stand at the same place in an older dump; absent without an older dump.
	Still *int `json:"still,omitempty"`
}

// Has reports whether a goroutine of a source is one of the group.
func (w StackWait) Has(source, goroutine int) bool {
	return w.Source == source && slices.Contains(w.Goroutines, goroutine)
}

// A StackHolder is a goroutine that probably holds what others wait for.
type StackHolder struct {
	Source     int      `json:"source"`
	Goroutine  int      `json:"goroutine"`
	Seconds    *float64 `json:"seconds,omitempty"`  // that it has waited itself
	Why        string   `json:"why"`                // it holds LOCK, and waits for THING
	Object     string   `json:"object,omitempty"`   // the object that it holds: statusStorage 0xc0004c61e0
	Blocks     int      `json:"blocks"`             // goroutines that wait for it, directly or through others
	WaitsFor   string   `json:"waitsFor,omitempty"` // a word of the list in package stacks: ttrpc, runc, cni, bolt, ...
	Call       string   `json:"call,omitempty"`     // the RPC that it serves
	Confidence float64  `json:"confidence"`         // 0 to 1; see Confidence
	Evidence   Evidence `json:"evidence"`
	Stack      []string `json:"stack"`
	Cycle      []int    `json:"cycle,omitempty"` // goroutines that wait for each other: a deadlock
	// Process is what it waits for, where one process on this host fits: the shim, runc, the CNI plugin. Subject is
	// the sandbox or container that this process serves.
	Process *Process `json:"process,omitempty"`
	Subject *Subject `json:"subject,omitempty"`
}

// Holds reports whether a group waits for the object that the goroutine holds.
func (h StackHolder) Holds(w StackWait) bool {
	return h.Source == w.Source && h.Object != "" && h.Object == w.On
}

// A KnownPicture is a documented way to hang that a dump shows.
type KnownPicture struct {
	Pattern    string   `json:"pattern"` // its id: container-status-lock
	Why        string   `json:"why"`
	Links      []string `json:"links"`
	Source     int      `json:"source"`
	Goroutines []int    `json:"goroutines"` // that show it, at most 20
	Causes     []string `json:"causes"`     // codes of causes that it supports
}

// Brief is the first sentence of Why without its title, to go on with; the rest stands in kdiag explain.
func (k KnownPicture) Brief() string {
	what, _, _ := strings.Cut(k.Why, ". ")
	if _, sentence, ok := strings.Cut(what, ": "); ok && sentence != "" {
		what = strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return what
}
