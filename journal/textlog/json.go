package textlog

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// json opens one JSON object: of the journal, docker, klog, or of a collector that has a line in a member.
func (p *peeling) json(b []byte) (rest []byte, name string, more bool) {
	fields, _, ok := klog.ParseObject(b)
	if !ok {
		return b, "", false
	}
	if has(fields, "MESSAGE") || has(fields, "__REALTIME_TIMESTAMP") {
		return p.journalJSON(fields), "journal-json", true
	}
	if log, ok := member(fields, "log"); ok && log.Kind == '"' {
		return p.dockerJSON(fields, log.Value), "docker", true
	}
	if h, m, ok := klog.ParseJSON(b); ok {
		if h.Stamp.Known {
			p.Inner = h.Stamp
		}
		return structured(m), "klog-json", false
	}
	if text, ok := p.carried(fields, 0); ok {
		if len(p.list) == 0 && !carries([]byte(text)) {
			return p.messageJSON(fields, text), "json", false
		}
		return p.inner(text), "json", true
	}
	return p.objects(b)
}

// objects opens an object or a list of objects that holds records.
func (p *peeling) objects(b []byte) (rest []byte, name string, more bool) {
	p.list = list(nil, klog.Field{Value: string(b), Kind: b[0]}, listed{}, 0)
	return b, "json", false
}

// objectWithin opens a JSON object at the end of the text b that contains lines, as Ansible prints the output of a
// command.
func (p *peeling) objectWithin(b []byte) (text []byte, ok bool) {
	n := bytes.Index(b[:min(len(b), maxLead)], []byte(` {"`))
	if n < 0 {
		return nil, false
	}
	fields, size, ok := klog.ParseObject(b[n+1:])
	if !ok || len(bytes.TrimSpace(b[n+1+size:])) > 0 {
		return nil, false
	}
	within := &peeling{Record: &Record{}}
	line, ok := within.carried(fields, 0)
	if !ok || !carries([]byte(line)) {
		return nil, false
	}
	p.stamp(within.Outer)
	if p.Host == "" {
		p.Host = within.Host
	}
	return p.inner(line), true
}

func has(fields []klog.Field, key string) bool {
	_, ok := member(fields, key)
	return ok
}

func member(fields []klog.Field, key string) (klog.Field, bool) {
	for _, f := range fields {
		if f.Key == key {
			return f, true
		}
	}
	return klog.Field{}, false
}

// journalJSON takes the fields of an entry and returns its message.
func (p *peeling) journalJSON(fields []klog.Field) []byte {
	message := ""
	for _, f := range fields {
		if f.Key == "MESSAGE" {
			message = journalValue(f)
			continue
		}
		p.field(f.Key, journalValue(f))
	}
	return p.inner(message)
}

// journalValue returns the value of a field: a string, an array of bytes if it is not text, or the first of several
// values.
func journalValue(f klog.Field) string {
	switch {
	case f.Kind == '[':
		var text []byte
		for e := range klog.Elements([]byte(f.Value)) {
			if e.Kind != '0' {
				return journalValue(e)
			}
			n, err := strconv.ParseUint(e.Value, 10, 8)
			if err != nil {
				break
			}
			text = append(text, byte(n))
		}
		return string(text)
	case f.Kind == '0' && f.Value == "null":
		return ""
	}
	return f.Value
}

// dockerJSON takes a line of docker's json-file log. A line without its line feed is continued by the next.
func (p *peeling) dockerJSON(fields []klog.Field, log string) []byte {
	s, _ := about(fields)
	p.stamp(s)
	stream, ok := member(fields, "stream")
	p.stream, p.split = stream.Value, []byte(log)
	p.partial = ok && log != "" && !strings.HasSuffix(log, "\n")
	if p.partial {
		return []byte(log)
	}
	return p.inner(log)
}

// carried finds the member that contains a line, in the object or in objects within it, and takes its stamp.
func (p *peeling) carried(fields []klog.Field, depth int) (string, bool) {
	s, host := about(fields)
	p.stamp(s)
	p.Host = cmp.Or(p.Host, host)
	for _, key := range lineMembers() {
		if f, ok := member(fields, key); ok && f.Kind == '"' {
			return f.Value, true
		}
	}
	if depth == 3 {
		return "", false
	}
	for _, f := range fields {
		if f.Kind != '{' {
			continue
		}
		if within, _, ok := klog.ParseObject([]byte(f.Value)); ok {
			if text, ok := p.carried(within, depth+1); ok {
				return text, true
			}
		}
	}
	return "", false
}

// messageJSON writes a record of a JSON logger as klog would: the message, then the other members.
func (p *peeling) messageJSON(fields []klog.Field, text string) []byte {
	m := klog.Message{Text: text}
	for _, f := range fields {
		switch f.Key {
		case "level", "severity", "message", "msg", "time", "ts", "timestamp", "@timestamp", "metadata":
		default:
			m.Pairs = append(m.Pairs, klog.Pair{Key: f.Key, Value: f.Value})
		}
	}
	return structured(m)
}

// structured writes a message as klog writes it in text. errCauses repeats err.
func structured(m klog.Message) []byte {
	_, err := m.Get("err")
	out := strconv.AppendQuote(make([]byte, 0, 256), m.Text)
	for _, pair := range m.Pairs {
		if pair.Key == "errCauses" && err || pair.Key == "v" {
			continue
		}
		out = append(append(append(out, ' '), pair.Key...), '=')
		if v := pair.Value; len(v) > 1 && (v[0] == '{' || v[0] == '[' && strings.IndexByte(`"{[]`, v[1]) >= 0) {
			out = append(out, pair.Value...)
			continue
		}
		out = strconv.AppendQuote(out, pair.Value)
	}
	return out
}

// maxNesting bounds how deep records are looked for in lists of lists.
const maxNesting = 8

// A listed record is one of several in a text, with the time and host of the objects around it.
type listed struct {
	text  string // an object, or a line
	outer klog.Stamp
	host  string
}

// list appends the records in a value of JSON: of exports of CloudWatch, Elasticsearch, Loki, and of what kubectl
// writes. Each object that contains a line is one, each condition of a node, each pair of a time and a line, and each
// string that begins like a record. around has the time and host of the objects around the value.
func list(dst []listed, f klog.Field, around listed, depth int) []listed {
	if depth == maxNesting {
		return dst
	}
	if f.Kind == '[' {
		var texts []string
		for e := range klog.Elements([]byte(f.Value)) {
			if e.Kind == '{' || e.Kind == '[' {
				dst = list(dst, e, around, depth+1)
			} else {
				texts = append(texts, e.Value)
			}
		}
		if len(texts) > 1 {
			if s, ok := writtenTime(texts[0]); ok { // Loki's pairs
				return append(dst, listed{texts[1], s, around.host})
			}
		}
		for _, text := range texts {
			if carries([]byte(text)) {
				dst = append(dst, listed{text, around.outer, around.host})
			}
		}
		return dst
	}
	fields, _, _ := klog.ParseObject([]byte(f.Value))
	if recordObject(fields) {
		around.text = f.Value
		return append(dst, around)
	}
	s, host := about(fields)
	if s.Known {
		around.outer = s
	}
	around.host = cmp.Or(host, around.host)
	for _, member := range fields {
		if member.Kind == '{' || member.Kind == '[' {
			dst = list(dst, member, around, depth+1)
		}
	}
	return dst
}

// lineMembers are the members in which collectors have a line.
func lineMembers() [14]string {
	return [...]string{
		"message", "msg", "line", "Message", "_raw", "text", "event", "body", "textPayload", "@message", "log", "MESSAGE",
		"stdout", "stderr",
	}
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

// about returns the first time that an object states, and the host that it names: one of its members, or the name of
// a node. Other objects of Kubernetes have names, too.
func about(fields []klog.Field) (s klog.Stamp, host string) {
	for _, f := range fields {
		switch f.Key {
		case "time", "ts", "timestamp", "@timestamp", "date", "_time", "lastHeartbeatTime", "lastTimestamp":
			if !s.Known {
				s, _ = writtenTime(f.Value)
			}
		case "host", "hostname", "node", "instance":
			if f.Kind == '"' {
				host = cmp.Or(host, f.Value)
			}
			host = cmp.Or(host, nameIn(f))
		case "metadata":
			if kind, ok := member(fields, "kind"); (!ok || kind.Value == "Node") && !has(fields, "involvedObject") {
				host = cmp.Or(host, nameIn(f))
			}
		}
	}
	return s, host
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
