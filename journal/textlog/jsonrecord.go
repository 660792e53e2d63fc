package textlog

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// json opens one JSON object: of the journal, docker, klog, logrus, or of a collector that carries a line in a member.
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
		p.program(h)
		return structured(m), "klog-json", false
	}
	if text, ok := p.carried(fields, 0); ok {
		if len(p.lines) == 0 && !carries([]byte(text)) {
			return p.messageJSON(fields, text), "json", false
		}
		return p.inner(text), "json", true
	}
	p.list = list(nil, klog.Field{Value: string(b), Kind: '{'}, listed{}, 0)
	return b, "json", false
}

// objectWithin opens a JSON object that ends the text b and carries lines, as Ansible prints what a command wrote.
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

// journalValue returns a field's value: a string, an array of bytes if it is not text, or the first of several.
func journalValue(f klog.Field) string {
	switch f.Kind {
	case '"':
		return f.Value
	case '[':
		body := strings.TrimLeft(f.Value[1:], " \t\n")
		if strings.HasPrefix(body, `"`) {
			s, _, _ := klog.Unquote([]byte(body))
			return s
		}
		if strings.HasPrefix(body, "[") {
			return journalValue(klog.Field{Value: body, Kind: '['})
		}
		return byteArray(body)
	}
	if f.Value == "null" {
		return ""
	}
	return f.Value
}

// byteArray returns the bytes of "69,48,55]".
func byteArray(s string) string {
	out := make([]byte, 0, len(s)/3)
	for len(s) > 0 {
		n := strings.IndexAny(s, ",]")
		if n < 0 {
			n = len(s)
		}
		v, err := strconv.ParseUint(strings.TrimSpace(s[:n]), 10, 8)
		if err != nil {
			break
		}
		out = append(out, byte(v))
		if n == len(s) || s[n] == ']' {
			break
		}
		s = s[n+1:]
	}
	return string(out)
}

// dockerJSON takes a line of docker's json-file log. A line without its line feed is continued by the next.
func (p *peeling) dockerJSON(fields []klog.Field, log string) []byte {
	for _, f := range fields {
		switch f.Key {
		case "time", "@timestamp", "date":
			if s, ok := writtenTime(f.Value); ok {
				p.stamp(s)
			}
		case "stream":
			p.stream = f.Value
		}
	}
	p.split = []byte(log)
	p.partial = has(fields, "stream") && log != "" && !strings.HasSuffix(log, "\n")
	if p.partial {
		return []byte(log)
	}
	return p.inner(log)
}

// carried finds the member that carries a line, in the object or in objects within it, and takes its stamp.
func (p *peeling) carried(fields []klog.Field, depth int) (string, bool) {
	for _, f := range fields {
		if timeMember(f.Key) {
			if s, ok := writtenTime(f.Value); ok {
				p.stamp(s)
			}
		}
	}
	if p.Host == "" {
		p.Host = hostOf(fields)
	}
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

// messageJSON writes a record of a logger of JSON as klog would: the message, then what else it says.
func (p *peeling) messageJSON(fields []klog.Field, text string) []byte {
	m := klog.Message{Text: text}
	for _, f := range fields {
		switch f.Key {
		case "level", "severity":
			p.Severity = klog.SeverityOf(f.Value)
		case "message", "msg", "time", "ts", "timestamp", "@timestamp", "metadata":
		default:
			m.Pairs = append(m.Pairs, klog.Pair{Key: f.Key, Value: f.Value})
		}
	}
	return structured(m)
}

// structured writes a message as klog writes it in text. errCauses repeats what err says.
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
