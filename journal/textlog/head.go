package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/klog"
)

// A kind is the form in which a line begins a record.
type kind uint8

const (
	none kind = iota
	kindKlog
	kindSyslog // syslog and the short forms of journalctl
	kindISO    // an ISO date first
	kindCRI
	kindJSON
	kindPretty  // journalctl -o json-pretty
	kindVerbose // journalctl -o verbose
	kindExport  // journalctl -o export
	kindLogrus
	kindDmesg
	kindDescribe
	kindCaller // klog without its header
	kindBehind // klog behind text that is not known
	kindBare   // a line without a beginning
)

// A head is one wrapping around a message, as recognised at the beginning of a text, with the facts that it states.
type head struct {
	kind   kind // none if it may be unwrapped but does not begin a record
	sure   bool // a line in the middle of a wrapped record does not look the same
	name   string
	rest   []byte // the text without the wrapping
	last   bool   // rest is the message
	object bool   // rest is a JSON object, to be opened

	stamp    klog.Stamp // of the transport
	inner    klog.Stamp // of the program
	innerPID int
	sender   sender
	kernel   bool
	stream   string // of a container
	partial  bool   // the message continues in the next record of the stream
}

// quick is parseHead for the forms that logs are full of: a few comparisons. It returns none if parseHead has to look.
func quick(b []byte, last kind) kind {
	if len(b) < 22 {
		return none
	}
	switch last {
	case kindSyslog:
		if b[3] == ' ' && b[6] == ' ' && b[9] == ':' && b[12] == ':' && b[15] == ' ' &&
			letter(b[0]) && digit(b[5]) && digit(b[7]) {
			return kindSyslog
		}
	case kindISO, kindCRI:
		if b[4] == '-' && b[7] == '-' && b[10] == 'T' && b[13] == ':' && b[16] == ':' && digit(b[0]) && digit(b[18]) {
			return last
		}
	}
	if b[5] == ' ' && b[8] == ':' && b[11] == ':' && b[14] == '.' &&
		digit(b[1]) && digit(b[4]) && digit(b[6]) && digit(b[15]) &&
		(b[0] == 'I' || b[0] == 'E' || b[0] == 'W' || b[0] == 'F') {
		return kindKlog
	}
	return none
}

// parseHead recognises the outermost wrapping of a text that is not empty.
func parseHead(b []byte) head {
	if h, ok := stampedHead(b); ok {
		return h
	}
	return otherHead(b)
}

// stampedHead recognises texts that begin with a stamp, of a transport or a program, and JSON.
func stampedHead(b []byte) (h head, ok bool) {
	if known(b) {
		return programHead(b), true
	}
	switch c := b[0]; {
	case c == 0x1e && known(b[1:]): // journalctl -o json-seq
		return head{kind: kindJSON, sure: true, rest: b[1:]}, true
	case c == 'd' && bytes.HasPrefix(b, []byte(`data: {"`)): // journalctl -o json-sse
		return head{kind: kindJSON, sure: true, rest: b[6:]}, true
	case c == '<':
		if m := priority.FindSubmatch(b); m != nil {
			return priorityHead(b[len(m[1])+2:], string(m[1])), true
		}
	case c == '[':
		if s, rest, ok := parseBracket(b); ok {
			return bracketHead(s, rest), true
		}
	case c == '_' && exportBegins(b):
		return head{kind: kindExport, rest: b, last: true}, true
	case digit(c):
		if s, rest, ok := klog.ParseISO(b); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" :\t]"), rest[0]) >= 0) {
			return isoHead(s, rest), true
		}
		if s, rest, ok := parseUnix(b); ok {
			return head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest), true
		}
	}
	if s, rest, ok := parseMonthDay(b); ok {
		return head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest), true
	}
	if s, rest, ok := parseWeekday(b); ok {
		h := head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest)
		if bytes.HasPrefix(rest, []byte("[s=")) {
			h.kind, h.sure = kindVerbose, true
		}
		return h, true
	}
	return head{}, false
}

// programHead returns the head of a record for which known is true.
func programHead(b []byte) head {
	switch b[0] {
	case '{':
		return head{kind: kindJSON, sure: true, rest: b, object: true}
	case 't':
		h := head{kind: kindLogrus, sure: true, name: "logrus", rest: b, last: true}
		if s, rest, ok := klog.ParseISO(b[len(`time="`):]); ok {
			h.inner, h.rest = s, trimBlanks(bytes.TrimPrefix(rest, []byte(`"`)))
		}
		return h
	}
	h := head{kind: kindKlog, sure: true, rest: b, last: true}
	if stamp, pid, msg, ok := klog.ParseHeader(b); ok { // else it is cut
		h.name, h.rest, h.inner, h.innerPID = "klog", msg, stamp, pid
	}
	return h
}

// sent takes the sender off rest, which follows a stamp.
func (h head) sent(rest []byte) head {
	s, msg, sure := parseSender(rest)
	if h.rest, h.sure = rest, sure; sure {
		h.rest, h.sender = msg, s
	}
	return h
}

// priorityHead recognises the text behind "<30>" of syslog: the older form, or RFC 5424.
func priorityHead(rest []byte, pri string) head {
	h := head{rest: rest, kernel: pri < "8" && len(pri) == 1}
	after, version1 := bytes.CutPrefix(rest, []byte("1 "))
	if len(trimBlanks(after)) > 0 {
		h.kind = parseHead(trimBlanks(after)).kind
		h.sure = h.kind != none
	}
	if version1 {
		h.name = "rfc5424"
		h.stamp, h.sender, h.rest = rfc5424(after)
	}
	return h
}

// bracketHead recognises the text behind the stamp of dmesg or journalctl -o short-monotonic.
func bracketHead(s klog.Stamp, rest []byte) head {
	h := head{kind: kindDmesg, name: "dmesg", stamp: s}.sent(rest)
	// Messages of the kernel begin with words and colons, too.
	if by := h.sender; by.pid == 0 && (by.host == "" || by.identifier != "kernel") {
		h.sender, h.rest = sender{}, rest
	} else if by.host != "" {
		h.name = "syslog"
	}
	h.sure = true
	return h
}

// levelWord is the name of a level, as loggers write it behind their stamp.
var levelWord = lazyregexp.New(`^\[?(?i:info|warn|warning|error|debug|fatal)[]: ]`)

// isoHead recognises the text behind an ISO date.
func isoHead(s klog.Stamp, rest []byte) head {
	if m := criHead.FindSubmatch(rest); m != nil {
		return head{
			kind: kindCRI, sure: true, name: "cri", stamp: s,
			stream: string(m[1]), partial: m[2][0] == 'P', rest: rest[len(m[0]):],
		}
	}
	h := head{kind: kindISO, stamp: s}
	for _, zone := range [...]string{" +", " -", " UTC"} {
		if bytes.HasPrefix(rest, []byte(zone)) { // a date inside a text
			h.kind = none
		}
	}
	rest = trimBlanks(rest)
	level := levelWord.Match(rest)
	if h = h.sent(rest); level || len(h.rest) == len(rest) {
		h.name, h.rest, h.sender = "text", rest, sender{}
	} else {
		h.name = "syslog"
	}
	h.sure = h.kind != none && (h.sure || level || s.Zone && len(rest) > 0)
	return h
}

// otherHead recognises texts without a stamp in front.
func otherHead(b []byte) head {
	if host, rest, ok := parseNode(b); ok {
		h := head{kind: kindBehind, sure: true, sender: sender{host: host}, rest: rest}
		if rest[0] == '{' {
			h.kind = kindJSON
		}
		return h
	}
	if msg, ok := klog.CutBareCaller(b); ok {
		return head{kind: kindCaller, sure: true, name: "klog", rest: msg, last: true}
	}
	if n := klogWithin(b); n > 0 {
		return head{kind: kindBehind, sure: true, name: "text", rest: b[n:]}
	}
	if s, ok := parseDescribe(b); ok {
		return head{kind: kindDescribe, sure: true, name: "describe", rest: b, last: true, stamp: s}
	}
	return head{rest: b, last: true}
}

// klogWithin returns where a whole klog header is behind some text, 0 if there is none.
func klogWithin(b []byte) int {
	const maxLead = 256
	text := b[:min(len(b), maxLead)]
	for i := 0; ; {
		n := bytes.IndexAny(text[i:], " \t|]:\",;")
		if n < 0 || i+n+1 >= len(b) {
			return 0
		}
		i += n + 1
		if klog.Begins(b[i:]) {
			if _, _, _, ok := klog.ParseHeader(b[i:]); ok {
				return i
			}
		}
	}
}

// cutHeader matches a klog header, perhaps behind a prefix, that the end of the line cuts.
var cutHeader = lazyregexp.New(`(?:^|[ "])[IWEF]\d{4} [0-9:.]*(?: +\d*(?: +[^] ]*)?)?$`)
