package textlog

import (
	"bytes"
	"cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxLayers bounds how many things may be wrapped around a message.
const maxLayers = 6

// An unwrapper takes the layers off one record.
type unwrapper struct {
	*Record
	partial bool   // the rest of the message is in a record that follows
	split   []byte // the part of the message in this line of a container's log
	layers  int
}

// unwrapAll unwraps a text, from the outside in, and sets Message.
func (p *unwrapper) unwrapAll(text []byte) {
	for more := true; more && p.layers < maxLayers; p.layers++ {
		var name string
		text, name, more = p.unwrap(trimBlanks(text))
		if p.Format != "" && name != "" {
			p.Format += "+"
		}
		p.Format += name
	}
	p.Message = bytes.TrimRight(text, " \t\r\n")
	if p.Format == "" {
		p.Format = "bare"
	}
}

// unwrap takes one layer off b. more is false if the rest is the message.
func (p *unwrapper) unwrap(b []byte) (rest []byte, name string, more bool) {
	if len(b) == 0 {
		return b, "", false
	}
	h := parseHead(b)
	switch {
	case h.object:
		return p.json(b)
	case h.kind == kindDescribe && p.layers > 0:
		return b, "", false
	case h.kind == kindBehind && p.layers > 0:
		h.name = ""
	}
	p.facts(h)
	return h.rest, h.name, !h.last
}

// facts takes the facts that a layer states.
func (p *unwrapper) facts(h head) {
	p.stamp(h.stamp)
	p.Host = cmp.Or(h.sender.host, p.Host)
	p.Identifier = cmp.Or(h.sender.identifier, p.Identifier)
	p.PID = cmp.Or(h.sender.pid, p.PID)
	p.Kernel = p.Kernel || h.kernel || p.Identifier == "kernel" || h.name == "dmesg" && p.Identifier == ""
	if h.stream != "" {
		p.Stream, p.partial, p.split = h.stream, h.partial, h.rest
	}
	if h.inner.Known {
		p.Inner, p.InnerPID = h.inner, h.innerPID
	}
}

// Line takes the transport off one line of a log: the short forms of the journal or its JSON, syslog, the log of a
// container; or off an entry of the journal's export format. Message is the rest, as it stands: a line without a
// transport is all message, and one may be a piece of a record that its transport has split.
func Line(b []byte) Record {
	p := unwrapper{Record: &Record{Message: b}}
	if len(b) == 0 {
		return *p.Record
	}
	switch h, _ := stampedHead(b); h.kind {
	case kindExport:
		p.entry(b, h.kind)
		p.Message = p.Raw
	case kindSyslog, kindISO, kindCRI:
		p.facts(h)
		p.Message = h.rest
	case kindJSON:
		if rest, name, _ := p.json(h.rest); name == "docker" || name == "journal-json" {
			p.Message = rest
		}
	}
	return *p.Record
}

// stamp takes a stamp of a transport: the outermost counts, unless it only counts from the start of the machine.
func (p *unwrapper) stamp(s klog.Stamp) {
	switch {
	case !s.Known:
	case !p.Outer.Known || p.Outer.Monotonic && !s.Monotonic:
		p.Outer = s
	case !p.Inner.Known && !s.Monotonic:
		p.Inner = s
	}
}
