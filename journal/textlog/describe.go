package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/journal/klog"
)

// parseDescribe parses a row of kubectl describe node or kubectl get events: a condition, whole or without its first
// columns, or an event. The stamp is LastHeartbeatTime; the ages of events count from a moment that nothing tells.
func parseDescribe(b []byte) (s klog.Stamp, ok bool) {
	b = trimBlanks(b)
	if len(b) == 0 || len(b) > 64<<10 {
		return s, false
	}
	if s, ok := conditionRow(b); ok {
		return s, true
	}
	return s, eventRow(b) || reasonRow(b)
}

// conditionRow parses `Ready  False  Fri, 28 Jun 2019 10:19:21 +0800  Thu, ...`.
func conditionRow(b []byte) (s klog.Stamp, ok bool) {
	for range 2 {
		word, rest := cut(b)
		switch string(word) {
		case "True", "False", "Unknown":
			const layout = "Mon, 02 Jan 2006 15:04:05 -0700"
			return parseDate(string(rest[:min(len(rest), len(layout))]), layout)
		}
		b = rest
	}
	return s, false
}

// cut returns the first word of b and what follows it.
func cut(b []byte) (word, rest []byte) {
	n := bytes.IndexAny(b, " \t")
	if n < 0 {
		return b, nil
	}
	return b[:n], trimBlanks(b[n:])
}

// eventRow reports whether a row is an event: its type stands beside its age, in either order.
func eventRow(b []byte) bool {
	aged := false
	for range 7 {
		var word []byte
		if word, b = cut(b); len(word) == 0 {
			return false
		}
		if string(word) == "Normal" || string(word) == "Warning" {
			if aged {
				return true
			}
			_, rest := cut(b) // the reason
			next, _ := cut(rest)
			return age(next)
		}
		aged = aged || age(word)
	}
	return false
}

// age reports whether a word is an age such as 3m11s or 4d20h.
func age(b []byte) bool {
	units := 0
	for len(b) > 0 {
		_, rest, ok := number(b)
		if !ok || len(rest) == 0 || bytes.IndexByte([]byte("smhdy"), rest[0]) < 0 {
			return string(b) == "<unknown>" || string(b) == "<invalid>"
		}
		b, units = rest[1:], units+1
	}
	return units > 0
}

// reasonRow reports whether a row is the end of a condition: a reason in CamelCase, wide blanks, the message.
func reasonRow(b []byte) bool {
	n := bytes.Index(b[:min(len(b), 64)], []byte("  "))
	if n < 6 || b[0] < 'A' || b[0] > 'Z' {
		return false
	}
	humps := 0
	for i, c := range b[:n] {
		if !letter(c) {
			return false
		}
		if i > 0 && c <= 'Z' && b[i-1] >= 'a' {
			humps++
		}
	}
	return humps > 0 && len(bytes.TrimSpace(b[n:])) > 0
}
