package textlog

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxLayers bounds how many things may be wrapped around a message.
const maxLayers = 6

// A peeling takes the layers off one record.
type peeling struct {
	*Record
	partial bool     // the rest of the message is in a record that follows
	stream  string   // of which output of a container it is a part
	split   []byte   // what the log of a container has of the message
	list    []listed // the records, if there are several
	columns columns
	layers  int
}

// peel parses text, from the outside in, and sets Message.
func (p *peeling) peel(text []byte) {
	for ; p.layers < maxLayers; p.layers++ {
		rest, name, more := p.unwrap(trimBlanks(text))
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

// unwrap takes one layer off b. more is false if what remains is the message.
func (p *peeling) unwrap(b []byte) (rest []byte, name string, more bool) {
	if len(b) == 0 {
		return b, "", false
	}
	h := parseHead(b)
	switch {
	case h.open != nil:
		return h.open(p, b)
	case h.kind == none && h.last || h.kind == kindDescribe || h.kind == kindBehind && h.name != "":
		if text, ok := p.objectWithin(b); ok {
			return text, "text", true
		}
		if h.kind == kindDescribe && p.layers > 0 {
			return b, "", false
		}
		if h.kind == kindBehind && p.layers > 0 {
			h.name = ""
		}
	}
	p.apply(&h)
	return h.rest, h.name, !h.last
}

// apply takes the facts of a head.
func (p *peeling) apply(h *head) {
	p.stamp(h.stamp)
	p.Host = cmp.Or(h.sender.host, p.Host)
	p.Identifier = cmp.Or(h.sender.identifier, p.Identifier)
	p.PID = cmp.Or(h.sender.pid, p.PID)
	p.Kernel = p.Kernel || h.kernel || h.sender.identifier == "kernel" ||
		h.kind == kindDmesg && h.name == "dmesg" && (p.Identifier == "" || p.Identifier == "kernel")
	if h.stream != "" {
		p.stream, p.partial, p.split = h.stream, h.partial, h.rest
	}
	if h.program.Stamp.Known {
		p.Inner, p.InnerPID = h.program.Stamp, h.program.PID
	}
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

// logrus takes the stamp of a line of logrus and returns the pairs behind it.
func (p *peeling) logrus(b []byte) (rest []byte, name string, more bool) {
	when, rest, closed := klog.Unquote(b[len("time="):])
	if !closed {
		return b, "logrus", false
	}
	if s, _, ok := klog.ParseISO([]byte(when)); ok {
		p.Inner = s
	}
	return trimBlanks(rest), "logrus", false
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

// inner returns unescaped text to go on with. If it holds several records, they are kept in list.
func (p *peeling) inner(s string) []byte {
	text := stripColour([]byte(strings.TrimRight(s, "\r\n")))
	var records []listed
	for rest := text; ; {
		n := nextBeginning(rest)
		if n == len(rest) && records == nil {
			return text
		}
		records = append(records, listed{text: string(rest[:n])})
		if rest = rest[n:]; len(rest) == 0 {
			p.list = records
			return nil
		}
	}
}

// nextBeginning returns where the second record of a text begins.
func nextBeginning(b []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return len(b)
		}
		i += n + 1
		if k, sure := begin(b[i:]); sure && k != kindDescribe && k != kindPretty {
			return i
		}
	}
}
