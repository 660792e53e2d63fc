package textlog

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// json opens a JSON object of the journal, docker or klog. Of any other it takes time and host.
func (p *unwrapper) json(b []byte) (rest []byte, name string, more bool) {
	fields, ok := klog.ParseObject(b)
	if !ok {
		return b, "", false
	}
	if member(fields, "MESSAGE").Kind != 0 || member(fields, "__REALTIME_TIMESTAMP").Kind != 0 {
		return p.journalJSON(fields), "journal-json", true
	}
	if log := member(fields, "log"); log.Kind == '"' {
		return p.dockerJSON(fields, log.Value), "docker", true
	}
	if s, ok := klog.JSONStamp(fields); ok {
		if s.Known {
			p.Inner = s
		}
		return structured(fields), "klog-json", false
	}
	p.about(fields)
	return b, "json", false
}

// structured writes a record of klog's JSON as klog writes it in text. errCauses repeats err.
func structured(fields []klog.Field) []byte {
	out := strconv.AppendQuote(nil, member(fields, "msg").Value)
	for _, f := range fields {
		switch f.Key {
		case "msg", "ts", "caller", "level", "v", "errCauses":
			continue
		}
		value := f.Value
		if f.Kind == '{' { // an object of Kubernetes
			within, _ := klog.ParseObject([]byte(value))
			name, namespace := member(within, "name"), member(within, "namespace")
			if len(within) == 2 && namespace.Kind != 0 {
				value = namespace.Value + "/" + name.Value
			}
		}
		out = append(append(append(out, ' '), f.Key...), '=')
		if strings.HasPrefix(value, "{") || f.Kind == '[' {
			out = append(out, value...)
			continue
		}
		out = strconv.AppendQuote(out, value)
	}
	return out
}

// member returns the member of an object with a name; its Kind is 0 if there is none.
func member(fields []klog.Field, key string) klog.Field {
	for _, f := range fields {
		if f.Key == key {
			return f
		}
	}
	return klog.Field{}
}

// journalJSON takes the fields of an entry and returns its message.
func (p *unwrapper) journalJSON(fields []klog.Field) []byte {
	for _, f := range fields {
		p.field(f.Key, journalValue(f))
	}
	return stripColour([]byte(journalValue(member(fields, "MESSAGE"))))
}

// journalValue returns the value of a field: a string, an array of bytes if it is not text, or the first of several
// values.
func journalValue(f klog.Field) string {
	if f.Kind != '[' {
		return strings.TrimPrefix(f.Value, "null")
	}
	var codes []uint16
	if json.Unmarshal([]byte(f.Value), &codes) == nil {
		text := make([]byte, len(codes))
		for i, c := range codes {
			text[i] = byte(c)
		}
		return string(text)
	}
	var values []string
	if json.Unmarshal([]byte(f.Value), &values) == nil && len(values) > 0 {
		return values[0]
	}
	return ""
}

// dockerJSON takes a line of docker's json-file log. A line without its line feed is continued by the next.
func (p *unwrapper) dockerJSON(fields []klog.Field, log string) []byte {
	p.about(fields)
	p.Stream, p.split = member(fields, "stream").Value, []byte(log)
	p.partial = p.Stream != "" && log != "" && !strings.HasSuffix(log, "\n")
	return stripColour([]byte(strings.TrimRight(log, "\r\n")))
}

// about takes the first time and host that an object states.
func (p *unwrapper) about(fields []klog.Field) {
	var s klog.Stamp
	for _, f := range fields {
		switch f.Key {
		case "time", "ts", "timestamp", "@timestamp", "date", "lastHeartbeatTime":
			if !s.Known {
				s = klog.WrittenTime(f.Value)
			}
		case "host", "hostname", "node":
			if f.Kind == '"' {
				p.Host = cmp.Or(p.Host, f.Value)
			}
		}
	}
	p.stamp(s)
}
