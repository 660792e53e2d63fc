package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/journal/klog"
)

// heartbeat begins a condition of a node in YAML: kubectl sorts the members of an object.
const heartbeat = "- lastHeartbeatTime: "

// yamlName follows the lines of an object in YAML to its name.
type yamlName struct {
	node   string // the last one
	within bool   // metadata
	indent int    // of "metadata:"
}

// read looks at a line that begins no record.
func (y *yamlName) read(line []byte) {
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
// condition in YAML, and the line does not stand further right. Such a line, too, must bear a literal, or be cut in one, to
// be continued: else it is prose.
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
	_, _, cut := s.whole(bytes.TrimRight(rec, "\r"), trimmed, trimmed)
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

// ofNode gives a condition the name of its node, which stands before it: kubectl's YAML and indented JSON come in parts.
func (s *scanner) ofNode(k kind, p *peeling) {
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
