package textlog

import (
	"bytes"
	"cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

// maxLayers bounds how many things may be wrapped around a message.
const maxLayers = 6

// A peeling takes the layers off one record.
type peeling struct {
	*Record
	partial bool   // the rest of the message is in a record that follows
	stream  string // the output of a container that the message is from
	split   []byte // what the log of a container has of the message
	layers  int
}

// peel parses text, from the outside in, and sets Message.
func (p *peeling) peel(text []byte) {
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

// unwrap takes one layer off b. more is false if what remains is the message.
func (p *peeling) unwrap(b []byte) (rest []byte, name string, more bool) {
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
	p.stamp(h.stamp)
	p.Host = cmp.Or(h.sender.host, p.Host)
	p.Identifier = cmp.Or(h.sender.identifier, p.Identifier)
	p.PID = cmp.Or(h.sender.pid, p.PID)
	p.Kernel = p.Kernel || h.kernel || p.Identifier == "kernel" || h.name == "dmesg" && p.Identifier == ""
	if h.stream != "" {
		p.stream, p.partial, p.split = h.stream, h.partial, h.rest
	}
	if h.inner.Known {
		p.Inner, p.InnerPID = h.inner, h.innerPID
	}
	return h.rest, h.name, !h.last
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
