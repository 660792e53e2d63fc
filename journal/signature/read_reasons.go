package signature

import (
	"slices"
	"strings"
)

// Bounds of a list of reasons.
const (
	maxReasons = 8
	maxReason  = 160 // bytes
)

const plegReason = "PLEG is not healthy"

// knownReason returns the reason that a list begins with, empty if it begins with none that the kubelet is known to
// give, and whether that is all of it that matters: what follows only repeats or varies.
func knownReason(list string) (reason string, whole bool) {
	if list == "" || strings.IndexByte("cEPrCnm", list[0]) < 0 {
		return "", false
	}
	for _, r := range [...]struct {
		text  string
		whole bool
	}{
		{plegReason, false},
		{"container runtime is down", true},
		{"container runtime status check may not have completed yet", true},
		{"EventedPLEG is not healthy", true},
		{"container runtime not ready", false},
		{"Container runtime not ready", false},
		{"container runtime network not ready", false},
		{"runtime network not ready", false},
		{"network state unknown", false},
		{"CSINode is not yet initialized", false},
		{"node is shutting down", false},
		{"missing node capacity for resources", false},
	} {
		if strings.HasPrefix(list, r.text) {
			return r.text, r.whole
		}
	}
	return "", false
}

// reasons returns what the kubelet lists beside PLEG as reasons for standing still or being NotReady, in order, each
// once. Lists are written in four ways:
//
//	[a b]      to 1.13
//	[a., b.]   1.14
//	[a, b]     from 1.15; a single one stands bare
//	a,b        in conditions to 1.13
func reasons(list string) []string {
	var out []string
	for list != "" && len(out) < maxReasons {
		list = strings.TrimLeft(list, " ,.[]\t\r\n\\\"")
		known, whole := knownReason(list)
		n := reasonEnd(list, max(len(known), 1))
		reason := list[:n]
		list = list[n:]
		if whole {
			if !slices.Contains(out, known) {
				out = append(out, known)
			}
			continue
		}
		reason = strings.TrimRight(reason, " ,.]}\t\r\n\\\"")
		if reason == "" || strings.HasPrefix(reason, plegReason) || slices.Contains(out, reason) {
			continue
		}
		out = append(out, strings.ToValidUTF8(strings.Clone(reason[:min(len(reason), maxReason)]), ""))
	}
	return out
}

// reasonEnd returns where the first reason of a list ends, at or after an offset: at a comma and a blank, or where a
// known reason begins.
func reasonEnd(list string, from int) int {
	for i := from; i < len(list); i++ {
		if list[i] != ' ' && list[i] != ',' {
			continue
		}
		if strings.HasPrefix(list[i:], ", ") {
			return i
		}
		if known, _ := knownReason(list[i+1:]); known != "" {
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
		if v := field(s, key); containsAny(v, []string{plegReason, "ontainer runtime ", "network not ready"}) {
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
