package facts

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/crictl"
)

// SizesInError finds the two sizes in gRPC's words: larger than max (26300000 vs. 16777216).
var SizesInError = regexp.MustCompile(`larger than max \((\d{1,12}) vs\. (\d{1,12})\)`)

// messageLimit is the largest message that the kubelet receives.
func messageLimit(f *Facts) int {
	if f.Summary != nil && f.Summary.ResponseLimitBytes > 0 {
		return f.Summary.ResponseLimitBytes
	}
	return crictl.DefaultMessageLimit
}

// IsTooLarge reports whether a call failed because its message was over a limit.
func IsTooLarge(c crictl.Call) bool {
	return c.Code == crictl.ResourceExhausted && ContainsAny(c.Err, []string{"larger than max"})
}

// refusedList returns the list call that a message limit stopped.
func refusedList(f *Facts) (crictl.Call, bool) {
	m := f.Measurement
	calls := slices.Concat(f.RPC[RPCSandboxes].Calls, f.RPC[RPCContainers].Calls)
	if m != nil && m.Sandboxes != nil {
		calls = append(calls, m.Sandboxes.Calls...)
	}
	if m != nil && m.Containers != nil {
		calls = append(calls, m.Containers.Calls...)
	}
	i := slices.IndexFunc(calls, IsTooLarge)
	if i < 0 {
		return crictl.Call{}, false
	}
	return calls[i], true
}

// A listSize is how large the larger list is, against the limit that applies.
type ListSize struct {
	RPC     string
	Bytes   int // 0 when only the refusal is known
	Limit   int
	Refused *crictl.Call // the call that the limit stopped; nil when kdiag got the list
	AtLeast bool         // part of the list is missing
}

func listSize(f *Facts) (ListSize, bool) {
	s := ListSize{Limit: f.Lists.MessageLimit}
	known := false
	if sum := f.Summary; sum != nil && sum.ResponseBytes != nil {
		s.RPC, s.Bytes, s.AtLeast, known = sum.ResponseRPC, *sum.ResponseBytes, sum.ResponseTruncated, true
	}
	if c, refused := refusedList(f); refused {
		s.RPC, s.Refused, known = canonical(c.Method), &c, true
		if n, limit := ErrorSizes(c); n > 0 {
			s.Bytes, s.AtLeast = max(n, s.Bytes), false
			if limit > 0 {
				s.Limit = min(s.Limit, limit)
			}
		}
	}
	if s.RPC == "" {
		s.RPC = RPCContainers
	}
	return s, known
}

// Over reports whether the kubelet cannot get the list any more.
func (s ListSize) Over() bool { return s.Refused != nil || s.Bytes > s.Limit }

// Share is the list's size as a share of the limit.
func (s ListSize) Share() float64 { return float64(s.Bytes) / float64(max(s.Limit, 1)) }

// largeEntries reports whether the entries of the larger list, and not their number, make it large.
func largeEntries(f *Facts) bool {
	s, _ := f.Lists.Size, f.Lists.SizeKnown
	return f.Limits.LargeEntry > 0 && MeanEntry(f, s.RPC) > float64(f.Limits.LargeEntry)
}

// MeanEntry is the mean size of the entries of a list, in bytes; 0 when it is not known.
func MeanEntry(f *Facts, rpc string) float64 {
	if rpc == RPCContainers {
		if f.Summary == nil || f.Summary.BytesPerContainer == nil {
			return 0
		}
		return *f.Summary.BytesPerContainer
	}
	all, sum := Entries(f, rpc), 0.0
	for _, e := range all {
		sum += float64(e.Size)
	}
	return sum / float64(max(len(all), 1))
}

// kubeletStreams reports whether the kubelet itself gets the lists as streams, to which the limit does not apply.
func kubeletStreams(f *Facts) bool {
	return f.Kubelet != nil && f.Kubelet.CRIListStreaming && f.Measurement != nil &&
		f.Measurement.Containers != nil && f.Measurement.Containers.Mode == crictl.ModeStream
}

// ErrorSizes returns the size of the message and the limit that gRPC's error names, 0 where it names none.
func ErrorSizes(c crictl.Call) (n, limit int) {
	if m := SizesInError.FindStringSubmatch(c.Err); m != nil {
		n, _ = strconv.Atoi(m[1])
		limit, _ = strconv.Atoi(m[2])
	}
	return n, limit
}

// A listEntry is what a list holds of one container or sandbox.
type ListEntry struct {
	Kind, ID, Name string
	Pod            crictl.Pod
	Size           uint32 // bytes
}

func (e ListEntry) Label() string { return LabelOf(e.Kind, e.ID, e.Pod.Namespace, e.Pod.Name, e.Name) }

// Entries returns what a list holds.
func Entries(f *Facts, rpc string) []ListEntry {
	var out []ListEntry
	m := f.Measurement
	switch {
	case m == nil:
	case rpc == RPCSandboxes && m.Sandboxes != nil:
		for _, s := range m.Sandboxes.Sandboxes {
			out = append(out, ListEntry{KindSandbox, s.ID, "", PodOf(s.Pod), s.Size})
		}
	case rpc == RPCContainers && m.Containers != nil:
		for _, c := range m.Containers.Containers {
			out = append(out, ListEntry{KindContainer, c.ID, c.Name, PodOf(c.Pod), c.Size})
		}
	}
	return out
}
