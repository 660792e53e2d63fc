package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/journal/klog"
)

// parseDescribe parses a row of kubectl describe node or kubectl get events: a condition, whole or without its first
// columns, or an event. The stamp is LastHeartbeatTime; the ages of events count from an unknown time.
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

// heartbeat begins a condition of a node in YAML: kubectl sorts the members of an object.
const heartbeat = "- lastHeartbeatTime: "

// nodeNames follows the lines of an object in YAML to its name.
type nodeNames struct {
	node   string // the last one
	within bool   // metadata
	indent int    // of "metadata:"
}

// read looks at a line that begins no record.
func (y *nodeNames) read(line []byte) {
	text := bytes.TrimLeft(line, " -")
	if string(bytes.TrimRight(text, " \r")) == "metadata:" {
		y.within, y.indent = true, len(line)-len(text)
		return
	}
	if !y.within || len(text) == 0 {
		return
	}
	switch in := len(line) - len(text); {
	case in <= y.indent:
		y.within = false
	case in == y.indent+2 && bytes.HasPrefix(text, []byte("name: ")):
		y.node, y.within = string(bytes.Trim(text[len("name: "):], "'\" \r")), false
	}
}

// indent returns the blanks in front of a line.
func indent(line []byte) int { return len(line) - len(trimBlanks(line)) }

// alone reports whether the open record ends before a line that begins none: it is a line without a beginning, or a
// condition in YAML, and the line is not indented more. A line without a beginning is continued only if it contains a
// literal, or is cut in one: otherwise it is prose.
func (s *scanner) alone(line []byte) bool {
	if s.cur.kind != kindBare && s.cur.kind != kindYAML {
		return false
	}
	rec := s.buf[s.cur.start:s.cur.end]
	trimmed := bytes.TrimSpace(line)
	switch {
	case len(trimmed) == 0:
		return s.cur.kind == kindBare
	case indent(line) <= indent(rec) || s.cur.end-s.cur.start+len(line) >= s.opts.MaxRecord:
		return true
	case s.cur.kind == kindYAML:
		return false
	case trimmed[0] == '-' || s.opts.Next == nil:
		return true
	case s.opts.Next(rec) >= 0:
		return false
	}
	_, _, cut := s.joinLiteral(bytes.TrimRight(rec, "\r"), trimmed, trimmed)
	return !cut
}

// condition takes a condition of a node in YAML.
func (p *peeling) condition(b []byte) (rest []byte, name string, more bool) {
	when, _ := cut(b[len(heartbeat):])
	if s, ok := writtenTime(string(bytes.Trim(when, "'\""))); ok {
		p.stamp(s)
	}
	return b, "yaml", false
}

// nameNode gives a condition the name of its node, which precedes it: kubectl prints YAML and indented JSON in parts.
func (s *scanner) nameNode(k kind, p *peeling) {
	if k != kindPretty && k != kindYAML && k != kindBare {
		return
	}
	if k == kindPretty && bytes.Contains(p.Raw, []byte(`"metadata"`)) {
		if name := nodeName(klog.Field{Value: string(p.Raw), Kind: '{'}, 0); name != "" {
			s.yaml.node = name
		}
	}
	if p.Host == "" && bytes.Contains(p.Raw, []byte("lastHeartbeatTime")) {
		p.Host = s.yaml.node
	}
}

// nodeName returns the name of the first node in a value of JSON.
func nodeName(f klog.Field, depth int) string {
	if depth == 3 {
		return ""
	}
	if f.Kind == '[' {
		for e := range klog.Elements([]byte(f.Value)) {
			if name := nodeName(e, depth+1); name != "" {
				return name
			}
		}
		return ""
	}
	if f.Kind != '{' {
		return ""
	}
	fields, _, _ := klog.ParseObject([]byte(f.Value))
	if _, name := about(fields); name != "" {
		return name
	}
	for _, member := range fields {
		if name := nodeName(member, depth+1); name != "" {
			return name
		}
	}
	return ""
}
