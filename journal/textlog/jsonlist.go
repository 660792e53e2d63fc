package textlog

import (
	"bytes"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxNesting bounds how deep records are looked for in lists of lists.
const maxNesting = 8

// A listed record is an element of a list of JSON, with what the objects around it say of it.
type listed struct {
	text  string // an object, or a line
	outer klog.Stamp
	host  string
}

// list collects the records in a value of JSON: of exports of CloudWatch, Elasticsearch, Loki, and of what kubectl writes.
// Each object that carries a line is one, each condition of a node, each pair of a time and a line, and each string
// that begins like a record.
func list(dst []listed, f klog.Field, about listed, depth int) []listed {
	if depth == maxNesting {
		return dst
	}
	if f.Kind == '[' {
		return listArray(dst, f, about, depth)
	}
	fields, _, _ := klog.ParseObject([]byte(f.Value))
	if recordObject(fields) {
		about.text = f.Value
		return append(dst, about)
	}
	if s, ok := timeOf(fields); ok {
		about.outer = s
	}
	if h := hostOf(fields); h != "" {
		about.host = h
	}
	for _, member := range fields {
		if member.Kind == '{' || member.Kind == '[' {
			dst = list(dst, member, about, depth+1)
		}
	}
	return dst
}

func listArray(dst []listed, f klog.Field, about listed, depth int) []listed {
	var first klog.Field
	i := 0
	for e := range klog.Elements([]byte(f.Value)) {
		switch {
		case e.Kind == '{' || e.Kind == '[':
			dst = list(dst, e, about, depth+1)
		case e.Kind == '"' && i == 1:
			if s, ok := writtenTime(first.Value); ok { // Loki's pairs
				return append(dst, listed{e.Value, s, about.host})
			}
			if carries([]byte(first.Value)) {
				dst = append(dst, listed{first.Value, about.outer, about.host})
			}
			fallthrough
		case e.Kind == '"' && i > 1:
			if carries([]byte(e.Value)) {
				dst = append(dst, listed{e.Value, about.outer, about.host})
			}
		case i == 0:
			first = e
		}
		i++
	}
	if i == 1 && first.Kind == '"' && carries([]byte(first.Value)) {
		dst = append(dst, listed{first.Value, about.outer, about.host})
	}
	return dst
}

// lineMembers are the names under which collectors keep a line.
func lineMembers() [14]string {
	return [...]string{"message", "msg", "line", "Message", "_raw", "text", "event", "body", "textPayload", "@message", "log", "MESSAGE", "stdout", "stderr"}
}

// recordObject reports whether an object is a record: one of them, or a condition of a node.
func recordObject(fields []klog.Field) bool {
	for _, name := range lineMembers() {
		if f, ok := member(fields, name); ok && (f.Kind == '"' || name == "MESSAGE") {
			return true
		}
	}
	return has(fields, "__REALTIME_TIMESTAMP")
}

// timeOf returns the first time that an object states.
func timeOf(fields []klog.Field) (klog.Stamp, bool) {
	for _, f := range fields {
		if timeMember(f.Key) {
			if s, ok := writtenTime(f.Value); ok {
				return s, true
			}
		}
	}
	return klog.Stamp{}, false
}

// timeMember reports whether a member of this name says when a record was written.
func timeMember(key string) bool {
	switch key {
	case "time", "ts", "timestamp", "@timestamp", "date", "_time", "lastHeartbeatTime", "lastTimestamp":
		return true
	}
	return false
}

// hostOf returns the host that an object names: its own member, or the name of a node. Other objects of Kubernetes have names, too.
func hostOf(fields []klog.Field) string {
	for _, f := range fields {
		switch {
		case f.Key == "host" || f.Key == "hostname" || f.Key == "node" || f.Key == "instance":
			if f.Kind == '"' {
				return f.Value
			}
			if name := nameIn(f); name != "" {
				return name
			}
		case f.Key == "metadata" && f.Kind == '{' && !has(fields, "involvedObject"):
			if kind, ok := member(fields, "kind"); !ok || kind.Value == "Node" {
				return nameIn(f)
			}
		}
	}
	return ""
}

// nameIn returns the name in an object.
func nameIn(f klog.Field) string {
	if f.Kind != '{' {
		return ""
	}
	within, _, _ := klog.ParseObject([]byte(f.Value))
	if name, ok := member(within, "name"); ok && name.Kind == '"' {
		return name.Value
	}
	return ""
}

// listed gives the records of a list. If none of them bears what the whole does, the whole is given.
func (s *scanner) listed(p *peeling, due bool) {
	if s.opts.Next != nil && s.found(p.Record) && !slices.ContainsFunc(p.list, func(l listed) bool {
		text := []byte(l.text)
		return s.opts.Next(text) >= 0 || s.unescaped(text)
	}) {
		s.offer(p.Record, due)
		return
	}
	base := *p.Record
	base.Message = nil
	for _, l := range p.list {
		if s.stop {
			return
		}
		r := base
		r.Raw = bytes.TrimRight([]byte(l.text), "\r\n")
		if strings.HasPrefix(l.text, "{") {
			r.Format = strings.TrimSuffix(strings.TrimSuffix(base.Format, "json"), "+")
		}
		inner := &peeling{Record: &r, layers: min(p.layers+1, maxLayers-2)}
		inner.peel(r.Raw)
		if l.outer.Known && !r.Outer.Known {
			r.Outer = l.outer
		}
		if r.Host == "" {
			r.Host = l.host
		}
		if inner.lines != nil {
			s.several(inner, due)
		} else {
			s.offer(&r, due)
		}
		due = false
	}
}
