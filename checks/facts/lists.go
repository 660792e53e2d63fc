package facts

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// deriveLists works out what the newest lists hold, and how large they are.
func deriveLists(f *Facts) {
	l := &f.Lists
	l.Objects = len(sandboxesOf(f)) + len(containersOf(f))
	l.Census = takeCensus(f)
	l.MessageLimit = crictl.DefaultMessageLimit
	if f.Summary != nil && f.Summary.ResponseLimitBytes > 0 {
		l.MessageLimit = f.Summary.ResponseLimitBytes
	}
	l.Size, l.SizeKnown = listSize(f)
	l.LargeEntries = MeanEntry(f, l.Size.RPC) > float64(f.Limits.LargeEntry)
	l.Streamed = f.Kubelet != nil && f.Kubelet.CRIListStreaming && f.Measurement != nil &&
		f.Measurement.Containers != nil && f.Measurement.Containers.Mode == crictl.ModeStream
}

// A PodCount counts the dead objects of one pod: dead containers of one name, or dead sandboxes.
type PodCount struct {
	Pod   crictl.Pod
	Name  string // the container's name; empty for sandboxes
	Count int
}

// A Census counts what no longer runs.
type Census struct {
	Exited        int
	ExitedBytes   int // of the exited containers' entries
	BeyondNewest  int // exited containers that are not the newest of their pod and name: the kubelet may remove them
	LastHour      int // exited containers created within the last hour
	DeadSandboxes int
	OldSandboxes  int        // dead sandboxes that are not the newest of their pod
	Containers    []PodCount // the largest first
	Sandboxes     []PodCount
}

// MostlyNewest reports whether most dead containers are the newest of their pod and name, which the kubelet keeps as
// long as the pod exists. Whether it does is in no list of the runtime.
func (c Census) MostlyNewest() bool {
	return c.BeyondNewest*2 < c.Exited && c.OldSandboxes*2 < max(c.DeadSandboxes, 1)
}

// NewestOf begins the sentence about that.
func (c Census) NewestOf() string {
	if c.BeyondNewest == 0 && c.OldSandboxes == 0 {
		return "each is the newest"
	}
	return fmt.Sprintf("each but %s is the newest", units.Number(c.BeyondNewest+c.OldSandboxes))
}

// takeCensus counts the exited containers and dead sandboxes of the newest lists.
func takeCensus(f *Facts) Census {
	var c Census
	// by pod UID and container name, as the kubelet's garbage collection does
	containers, sandboxes := map[PodCount]int{}, map[PodCount]int{}
	hourAgo := f.Now.Add(-time.Hour)
	for e := range Entries(f, RPCSandboxes, RPCContainers) {
		switch {
		case !e.Dead:
		case e.Kind == KindSandbox:
			c.DeadSandboxes++
			sandboxes[PodCount{Pod: e.Pod}]++
		default:
			c.Exited++
			c.ExitedBytes += int(e.Size)
			if time.Unix(0, e.CreatedAt).After(hourAgo) {
				c.LastHour++
			}
			containers[PodCount{Pod: e.Pod, Name: e.Name}]++
		}
	}
	c.BeyondNewest, c.OldSandboxes = c.Exited-len(containers), c.DeadSandboxes-len(sandboxes)
	c.Containers, c.Sandboxes = sorted(containers), sorted(sandboxes)
	if f.Summary != nil { // its counts hold where the lists are not whole
		if s := f.Summary.Containers; s != nil {
			c.Exited = max(c.Exited, s.Exited)
		}
		if s := f.Summary.Sandboxes; s != nil {
			c.DeadSandboxes = max(c.DeadSandboxes, s.NotReady)
		}
		if n := f.Summary.ExitedBeyondNewest; n != nil {
			c.BeyondNewest = *n
		}
	}
	return c
}

// sorted lists counts, the largest first; equal ones by name.
func sorted(counts map[PodCount]int) []PodCount {
	out := make([]PodCount, 0, len(counts))
	for k, n := range counts {
		k.Count = n
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b PodCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
			cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out
}

// PodOf is a pod that may be missing.
func PodOf(p *crictl.Pod) crictl.Pod {
	if p == nil {
		return crictl.Pod{}
	}
	return *p
}

// Label names the pod and the container: batch/report-28 (job).
func (p PodCount) Label() string {
	kind := KindContainer
	if p.Name == "" {
		kind = KindSandbox
	}
	return LabelOf(kind, "", p.Pod.Namespace, p.Pod.Name, p.Name)
}

// sizesInError finds the two sizes in gRPC's words: larger than max (26300000 vs. 16777216).
var sizesInError = lazyregexp.New(`larger than max \((\d{1,12}) vs\. (\d{1,12})\)`)

// IsTooLarge reports whether a call failed because its message was over a limit.
func IsTooLarge(c crictl.Call) bool {
	return c.Code == crictl.ResourceExhausted && Says(c.Err, "larger than max")
}

// A ListSize is the size of the larger list and its limit.
type ListSize struct {
	RPC     string
	Bytes   int // 0 when only the refusal is known
	Limit   int
	Refused *crictl.Call // the call that the limit stopped; nil when kdiag got the list
}

func listSize(f *Facts) (ListSize, bool) {
	s := ListSize{RPC: RPCContainers, Limit: f.Lists.MessageLimit}
	known := false
	if sum := f.Summary; sum != nil && sum.ResponseBytes != nil {
		s.RPC, s.Bytes = cmp.Or(sum.ResponseRPC, s.RPC), *sum.ResponseBytes
		known = true
	}
	calls := slices.Concat(f.RPC[RPCSandboxes].Calls, f.RPC[RPCContainers].Calls)
	if m := f.Measurement; m != nil && m.Sandboxes != nil {
		calls = append(calls, m.Sandboxes.Calls...)
	}
	if m := f.Measurement; m != nil && m.Containers != nil {
		calls = append(calls, m.Containers.Calls...)
	}
	i := slices.IndexFunc(calls, IsTooLarge)
	if i < 0 {
		return s, known
	}
	s.RPC, s.Refused = canonical(calls[i].Method), &calls[i]
	if m := sizesInError.FindStringSubmatch(calls[i].Err); m != nil {
		n, _ := strconv.Atoi(m[1])
		limit, _ := strconv.Atoi(m[2])
		s.Bytes, s.Limit = max(n, s.Bytes), min(s.Limit, cmp.Or(limit, s.Limit))
	}
	return s, true
}

// Over reports whether the kubelet cannot get the list any more.
func (s ListSize) Over() bool { return s.Refused != nil || s.Bytes > s.Limit }

// Share is the list's size as a share of the limit.
func (s ListSize) Share() float64 { return float64(s.Bytes) / float64(max(s.Limit, 1)) }

// MeanEntry is the mean size of the entries of a list, in bytes; 0 when it is not known.
func MeanEntry(f *Facts, rpc string) float64 {
	if rpc == RPCContainers {
		if f.Summary == nil || f.Summary.BytesPerContainer == nil {
			return 0
		}
		return *f.Summary.BytesPerContainer
	}
	n, sum := 0, 0.0
	for e := range Entries(f, rpc) {
		n, sum = n+1, sum+float64(e.Size)
	}
	return sum / float64(max(n, 1))
}

// A ListEntry is the entry of a container or sandbox in a list.
type ListEntry struct {
	Kind, ID, SandboxID, Name string
	Pod                       crictl.Pod
	Size                      uint32 // bytes
	CreatedAt                 int64  // Unix nanoseconds
	Runs                      bool   // running, or ready
	Dead                      bool   // exited, or not ready
}

// Label names the container or sandbox.
func (e ListEntry) Label() string { return LabelOf(e.Kind, e.ID, e.Pod.Namespace, e.Pod.Name, e.Name) }

// Entries yields what the newest lists of the RPCs hold, sandboxes first. They may be a hundred thousand, so no list of
// them is made.
func Entries(f *Facts, rpcs ...string) iter.Seq[ListEntry] {
	return func(yield func(ListEntry) bool) {
		for _, s := range sandboxesOf(f) {
			if slices.Contains(rpcs, RPCSandboxes) && !yield(ListEntry{
				Kind: KindSandbox, ID: s.ID, SandboxID: s.ID, Pod: PodOf(s.Pod), Size: s.Size, CreatedAt: s.CreatedAt,
				Runs: s.State == crictl.SandboxReady, Dead: s.State == crictl.SandboxNotReady,
			}) {
				return
			}
		}
		for _, c := range containersOf(f) {
			if slices.Contains(rpcs, RPCContainers) && !yield(ListEntry{
				Kind: KindContainer, ID: c.ID, SandboxID: c.SandboxID, Name: c.Name, Pod: PodOf(c.Pod), Size: c.Size,
				CreatedAt: c.CreatedAt, Runs: c.State == crictl.ContainerRunning, Dead: c.State == crictl.ContainerExited,
			}) {
				return
			}
		}
	}
}
