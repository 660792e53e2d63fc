package signature

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds of a list of reasons.
const (
	maxReasons = 8
	maxReason  = 160 // bytes
)

// readUnhealthy reads the age and threshold of PLEG, and the other reasons, from a skip line or a node condition.
func readUnhealthy(r *record, m *Match) {
	s := r.text
	list, skipping := after(s, "kipping pod synchronization")
	if !skipping {
		list = s
		m.Condition = containsAny(s, []string{"ode became not ready", "KubeletNotReady", "Type:Ready"})
	}
	m.Reasons = reasons(reasonList(list, skipping))
	rest, ok := after(list, "last seen active ")
	if !ok {
		m.Never = strings.Contains(s, "pleg has yet to be successful")
		rest = list
	} else if age, ok := duration(rest); ok {
		if m.Never = age >= math.MaxInt64/time.Hour*time.Hour; !m.Never {
			m.Age, m.HasAge = age, true
		}
	}
	if rest, ok = after(rest, "threshold is "); ok {
		m.Threshold, _ = duration(rest)
	}
}

// duration reads the duration that s begins with, as Go prints it: 27h14m51.413818128s, 3m0s, 850ms. A duration whose
// last unit has been cut off is not read, unless the cut is in the fraction of its seconds, which costs little.
func duration(s string) (time.Duration, bool) {
	n := 0
	for n < len(s) && (isDigit(s[n]) || strings.IndexByte(".hmnsu\xc2\xb5", s[n]) >= 0) {
		n++
	}
	text := strings.TrimRight(s[:n], ".")
	if text != "" && isDigit(text[len(text)-1]) && strings.Contains(text, ".") {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || !strings.HasSuffix(text, "s") {
		return 0, false
	}
	return d, true
}

// knownReasons begin the reasons that the kubelet gives for standing still or being NotReady.
var knownReasons = []string{
	"PLEG is not healthy", "EventedPLEG is not healthy", "container runtime ", "Container runtime ",
	"runtime network not ready", "network state unknown", "CSINode is not yet initialized", "node is shutting down",
	"missing node capacity for resources",
}

// reasons returns the reasons that the kubelet lists beside PLEG, in order, each once. Lists are written in four ways:
//
//	[a b]      to 1.13
//	[a., b.]   1.14
//	[a, b]     from 1.15; a single one stands bare
//	a,b        in conditions to 1.13
func reasons(list string) (out []string) {
	for list != "" && len(out) < maxReasons {
		list = strings.TrimLeft(list, " ,.[]\t\r\n\\\"")
		n := reasonEnd(list)
		reason := strings.TrimRight(list[:n], " ,.]}\t\r\n\\\"")
		list = list[n:]
		if strings.HasPrefix(reason, "EventedPLEG") {
			reason, _, _ = strings.Cut(reason, ":")
		}
		if reason != "" && !strings.HasPrefix(reason, "PLEG is not") && !slices.Contains(out, reason) {
			out = append(out, strings.ToValidUTF8(strings.Clone(reason[:min(len(reason), maxReason)]), ""))
		}
	}
	return out
}

// reasonEnd returns where the first reason of a list ends: at a comma and a blank, or where a known reason begins.
func reasonEnd(list string) int {
	for i := 1; i+1 < len(list); i++ {
		if list[i] == ',' && list[i+1] == ' ' ||
			(list[i] == ' ' || list[i] == ',') && strings.IndexByte("PEcCrnm", list[i+1]) >= 0 &&
				slices.ContainsFunc(knownReasons, func(r string) bool { return strings.HasPrefix(list[i+1:], r) }) {
			return i
		}
	}
	return len(list)
}

// reasonList returns the part of a record that lists reasons; empty if it has none. Of a skip line s is what follows
// "skipping pod synchronization".
func reasonList(s string, skipping bool) string {
	if rest, ok := strings.CutPrefix(s, " - "); skipping && ok {
		return bracketed(rest)
	}
	if skipping {
		return field(s, "err")
	}
	for _, mark := range [...]string{"Message:", "KubeletNotReady "} {
		if rest, ok := after(s, mark); ok {
			return bracketed(rest)
		}
	}
	for _, key := range [...]string{"err", "message"} {
		v := field(s, key)
		if containsAny(v, []string{"PLEG is not healthy", "ontainer runtime ", "network not ready"}) {
			return v
		}
	}
	return ""
}

// bracketed returns the list that s begins with: up to its bracket; without one, to the end of the line or of the
// condition.
func bracketed(s string) string {
	s = strings.TrimLeft(s, " ")
	if strings.HasPrefix(s, "[") {
		return upTo(s[1:], "]")
	}
	return upTo(s, "}\n")
}
