package textlog

import (
	"bytes"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxLayers bounds how many things may be wrapped around a message.
const maxLayers = 6

// A peeling takes the layers off one record.
type peeling struct {
	*Record
	partial bool   // the rest of the message is in a record that follows
	stream  string // of which output of a container it is a part
	split   []byte // what a container's log carries of the message
	lines   []byte // what was unescaped and holds several records
	list    []listed
	columns columns
	layers  int
}

// peel parses text, from the outside in, and sets Message.
func (p *peeling) peel(text []byte) {
	for ; p.layers < maxLayers; p.layers++ {
		rest, name, more := p.layer(trimBlanks(text))
		if name != "" {
			p.named(name)
		}
		if text = rest; !more {
			break
		}
	}
	p.Message = bytes.TrimRight(text, " \t\r\n")
	if p.Format == "" {
		p.Format = "bare"
	}
}

// named adds a layer to Format.
func (p *peeling) named(name string) {
	if p.Format != "" && name != "" {
		p.Format += "+"
	}
	p.Format += name
}

// layer takes one layer off b. more is false if what remains is the message.
func (p *peeling) layer(b []byte) (rest []byte, name string, more bool) {
	if len(b) == 0 {
		return b, "", false
	}
	if h, msg, ok := klog.ParseHeader(b); ok {
		p.program(h)
		return msg, "klog", false
	}
	switch b[0] {
	case '{':
		if jsonBegins(b) {
			return p.json(b)
		}
	case '[':
		if objects(b) {
			p.list = list(nil, klog.Field{Value: string(b), Kind: '['}, listed{}, 0)
			return b, "json", false
		}
	case '"':
		if s, rest, ok := rowStart(b); ok {
			return p.row(s, rest), "csv", true
		}
		return p.quoted(b)
	case '-':
		if bytes.HasPrefix(b, []byte(heartbeat)) {
			p.condition(b)
			return b, "yaml", false
		}
	case 't':
		if bytes.HasPrefix(b, []byte(`time="`)) {
			return p.logrus(b), "logrus", false
		}
	case 0x1e:
		return b[1:], "", true
	case 'd':
		if bytes.HasPrefix(b, []byte("data: {")) {
			return b[6:], "", true
		}
	}
	if digit(b[0]) {
		if s, rest, ok := rowStart(b); ok {
			return p.row(s, rest), "csv", true
		}
	}
	if rest, name, ok := p.dated(b); ok {
		return rest, name, true
	}
	return p.plain(b)
}

// dated takes a stamp and a sender off b.
func (p *peeling) dated(b []byte) (rest []byte, name string, ok bool) {
	if rest, pri, ok := parsePriority(b); ok {
		p.Kernel = p.Kernel || pri>>3 == 0
		if p.Severity == 0 {
			p.Severity = severityOfPriority(pri & 7)
		}
		if after, ok := bytes.CutPrefix(rest, []byte("1 ")); ok {
			return p.rfc5424(after), "rfc5424", true
		}
		return rest, "", true
	}
	if s, rest, ok := parseBracket(b); ok {
		p.stamp(s)
		if !p.sentFully(&rest) {
			p.Kernel = p.Kernel || p.Identifier == "" || p.Identifier == "kernel"
			return rest, "dmesg", true
		}
		return rest, "syslog", true
	}
	if s, rest, ok := bracketISO(b); ok {
		p.stamp(s)
		return rest, "dmesg", true
	}
	if s, rest, ok := klog.ParseISO(b); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" :\t]"), rest[0]) >= 0) {
		return p.iso(s, b, rest)
	}
	if s, rest, ok := parseUnix(b); ok {
		p.stamp(s)
		return p.sent(rest), "syslog", true
	}
	if s, rest, ok := parseMonthDay(b); ok {
		p.stamp(s)
		return p.sent(rest), "syslog", true
	}
	if s, _, rest, ok := parseWeekday(b); ok {
		p.stamp(s)
		return p.sent(rest), "syslog", true
	}
	return b, "", false
}

// iso takes what follows an ISO date off b.
func (p *peeling) iso(s klog.Stamp, b, rest []byte) ([]byte, string, bool) {
	p.stamp(s)
	if stream, partial, msg, ok := parseCRI(rest); ok {
		p.stream, p.partial, p.split = stream, partial, msg
		return msg, "cri", true
	}
	rest = trimBlanks(rest)
	if s.Zone && len(b) > 19 && b[19] == ',' { // dmesg --time-format=iso; nobody else writes a comma and a zone
		p.Kernel = true
		return rest, "dmesg", true
	}
	if level(rest) {
		return rest, "text", true
	}
	if after := p.sent(rest); len(after) < len(rest) {
		return after, "syslog", true
	}
	return rest, "text", true
}

// plain takes what is known without a stamp off b.
func (p *peeling) plain(b []byte) (rest []byte, name string, more bool) {
	if host, rest, ok := parseNode(b); ok {
		p.Host = host
		return rest, "", true
	}
	if sev, rest, ok := parseFacility(b); ok {
		p.Kernel, p.Severity = bytes.HasPrefix(b, []byte("kern")), sev
		return rest, "", true
	}
	if digit(b[0]) {
		if k, ok := Kmsg(b); ok {
			p.stamp(k.Outer)
			p.Kernel, p.Severity = k.Kernel, k.Severity
			return k.Message, "kmsg", false
		}
	}
	if file, line, msg, ok := klog.ParseBareCaller(b); ok {
		p.Caller = caller(file, line)
		return msg, "klog", false
	}
	if text, ok := p.objectWithin(b); ok {
		return text, "text", true
	}
	if n := klogWithin(b); n > 0 {
		if p.layers == 0 {
			p.named("text")
		}
		return b[n:], "", true
	}
	if p.layers == 0 {
		if s, ok := parseDescribe(b); ok {
			p.stamp(s)
			return b, "describe", false
		}
	}
	return b, "", false
}

// stamp takes a stamp of a transport: the outermost counts, unless it only counts from the start of the machine.
func (p *peeling) stamp(s klog.Stamp) {
	switch {
	case !s.Known:
	case s.Monotonic:
		p.Monotonic = s.Micros
		if !p.Outer.Known {
			p.Outer = s
		}
	case !p.Outer.Known || p.Outer.Monotonic:
		p.Outer = s
	case !p.Inner.Known:
		p.Inner = s
	}
}

// program takes a header of klog.
func (p *peeling) program(h klog.Header) {
	if h.Stamp.Known {
		p.Inner = h.Stamp
	}
	p.Severity, p.InnerPID = h.Severity, h.PID
	if h.File != "" {
		p.Caller = caller(h.File, h.Line)
	}
}

// sent takes the sender off b.
func (p *peeling) sent(b []byte) []byte {
	s, msg, sure := parseSender(b)
	if !sure {
		return b
	}
	if s.host != "" {
		p.Host = s.host
	}
	if s.identifier != "" {
		p.Identifier = s.identifier
		p.Kernel = p.Kernel || s.identifier == "kernel"
	}
	if s.pid != 0 {
		p.PID = s.pid
	}
	return msg
}

// sentFully takes the sender off b if it is there with its host: kernel messages begin with words and colons, too.
func (p *peeling) sentFully(b *[]byte) bool {
	s, _, sure := parseSender(*b)
	if !sure || s.pid == 0 && (s.host == "" || s.identifier != "kernel") {
		return false
	}
	*b = p.sent(*b)
	return s.host != ""
}

// logrus takes the stamp of a line of logrus and returns the pairs behind it.
func (p *peeling) logrus(b []byte) []byte {
	when, rest, closed := klog.Unquote(b[len("time="):])
	if !closed {
		return b
	}
	if s, _, ok := klog.ParseISO([]byte(when)); ok {
		p.Inner = s
	}
	rest = trimBlanks(rest)
	if level, ok := bytes.CutPrefix(rest, []byte("level=")); ok {
		word, _ := cut(level)
		p.Severity = klog.SeverityOf(string(word))
	}
	return rest
}

// quoted opens a string that holds a whole line.
func (p *peeling) quoted(b []byte) (rest []byte, name string, more bool) {
	if value := fragment(b); len(value) > 0 {
		b = value
	}
	s, after, closed := klog.Unquote(b)
	if closed && len(bytes.Trim(after, ", \t\r\n")) == 0 {
		if k, sure := begin([]byte(s)); sure && k != kindDescribe {
			return p.inner(s), "quoted", true
		}
	}
	return b, "", false
}

// inner returns unescaped text to go on with. If it holds several records, they are kept in lines.
func (p *peeling) inner(s string) []byte {
	text := []byte(strings.TrimRight(s, "\r\n"))
	if coloured(text) {
		text = stripColour(make([]byte, 0, len(text)), text)
	}
	for rest := text; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return text
		}
		rest = rest[i+1:]
		if k, sure := begin(rest); sure && k != kindDescribe && k != kindPretty {
			p.lines = text
			return nil
		}
	}
}
