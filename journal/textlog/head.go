package textlog

import (
	"bytes"
	"slices"
	"strings"

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
	kindKmsg
	kindDescribe
	kindQuoted
	kindCaller // klog without its header
	kindBehind // klog behind text that is not known
	kindRow    // of a table with commas, a time first
	kindYAML   // a condition of a node
	kindBare   // a line without a beginning
)

// A head is one wrapping around a message, as recognised at the beginning of a text, with the facts that it states.
type head struct {
	kind kind // none if it may be unwrapped but does not begin a record
	sure bool // a line in the middle of a wrapped record does not look the same
	name string
	rest []byte // the text without the wrapping
	last bool   // rest is the message

	// open, if set, unwraps what takes parsing, instead of rest and last.
	open func(p *peeling, b []byte) (rest []byte, name string, more bool)

	stamp   klog.Stamp
	sender  sender
	kernel  bool
	program klog.Header
	stream  string // of a container
	partial bool   // the message continues in the next record of the stream
}

// quick is begin for the forms that logs are full of: a few comparisons. It returns none if begin has to look.
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
	case kindISO:
		if b[4] == '-' && b[7] == '-' && b[10] == 'T' && b[13] == ':' && b[16] == ':' && digit(b[0]) && digit(b[18]) {
			return kindISO
		}
	case kindJSON:
		return none // the text of a wrapped object may begin like any record
	}
	if b[5] == ' ' && b[8] == ':' && b[11] == ':' && b[14] == '.' &&
		digit(b[1]) && digit(b[4]) && digit(b[6]) && digit(b[15]) &&
		(b[0] == 'I' || b[0] == 'E' || b[0] == 'W' || b[0] == 'F') {
		return kindKlog
	}
	return none
}

// begin returns in which form a line begins a record, none if it does not. sure is false where a line in the middle
// of a wrapped record may look the same.
func begin(b []byte) (k kind, sure bool) {
	if b = trimBlanks(b); len(b) < 4 {
		if string(b) == "{" {
			return kindPretty, true
		}
		return none, false
	}
	h := parseHead(b)
	return h.kind, h.sure
}

// carries reports whether a text begins like a record, and surely so.
func carries(b []byte) bool {
	k, sure := begin(b)
	return sure && k != kindDescribe
}

// parseHead recognises the outermost wrapping of a text that is not empty.
func parseHead(b []byte) head {
	if known(b) {
		return programHead(b)
	}
	switch c := b[0]; {
	case c == 0x1e && known(b[1:]): // journalctl -o json-seq
		return head{kind: kindJSON, sure: true, rest: b[1:]}
	case c == 'd' && bytes.HasPrefix(b, []byte(`data: {"`)): // journalctl -o json-sse
		return head{kind: kindJSON, sure: true, rest: b[6:]}
	case c == '<':
		if rest, pri, ok := parsePriority(b); ok {
			return priorityHead(rest, pri)
		}
	case c == '[':
		if h := bracketHead(b); h.kind != none {
			return h
		}
	case c == '"':
		return quotedHead(b)
	case c == '-' && bytes.HasPrefix(b, []byte(heartbeat)):
		return head{kind: kindYAML, sure: true, open: (*peeling).condition}
	case c == '_' && exportBegins(b):
		return head{kind: kindExport, rest: b, last: true}
	case digit(c):
		if h, ok := digitHead(b); ok {
			return h
		}
	}
	if s, rest, ok := parseMonthDay(b); ok {
		return head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest)
	}
	if s, _, rest, ok := parseWeekday(b); ok {
		h := head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest)
		if bytes.HasPrefix(rest, []byte("[s=")) {
			h.kind, h.sure = kindVerbose, true
		}
		return h
	}
	return otherHead(b)
}

// programHead recognises what known does.
func programHead(b []byte) head {
	switch b[0] {
	case '{':
		return head{kind: kindJSON, sure: true, open: (*peeling).json}
	case 't':
		return head{kind: kindLogrus, sure: true, open: (*peeling).logrus}
	}
	h := head{kind: kindKlog, sure: true, rest: b, last: true}
	if program, msg, ok := klog.ParseHeader(b); ok { // else it is cut
		h.name, h.rest, h.program = "klog", msg, program
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

// priorityHead recognises what follows "<30>" of syslog: the older form, or RFC 5424.
func priorityHead(rest []byte, pri int) head {
	h := head{rest: rest, kernel: pri>>3 == 0}
	after, version1 := bytes.CutPrefix(rest, []byte("1 "))
	if len(trimBlanks(after)) > 0 {
		h.kind = parseHead(trimBlanks(after)).kind
		h.sure = h.kind != none
	}
	if version1 {
		h.name = "rfc5424"
		h.stamp, h.sender, h.rest = rfc5424(after)
		h.kernel = h.kernel || h.sender.identifier == "kernel"
	}
	return h
}

// bracketHead recognises what begins with a bracket: dmesg, journalctl -o short-monotonic, and lists of JSON objects.
func bracketHead(b []byte) head {
	if s, rest, ok := parseBracket(b); ok {
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
	if s, rest, ok := bracketISO(b); ok {
		return head{kind: kindISO, sure: true, name: "dmesg", stamp: s, rest: rest}
	}
	if objects(b) {
		return head{kind: kindJSON, sure: true, open: (*peeling).objects}
	}
	return head{}
}

// objects reports whether b begins a list of JSON objects.
func objects(b []byte) bool {
	rest := trimBlanks(b[1:])
	return len(rest) > 0 && rest[0] == '{' && jsonBegins(rest)
}

// quotedHead recognises what begins with a quote: a row of a table, a line as a string, a member of JSON with such a
// value.
func quotedHead(b []byte) head {
	if s, rest, ok := rowStart(b); ok {
		return rowHead(b, s, rest)
	}
	h := head{kind: kindQuoted, open: (*peeling).quoted}
	k, sure := begin(b[1:])
	if h.sure = sure && k != kindQuoted && k != kindPretty; h.sure {
		return h
	}
	if value := fragment(b); len(value) > 0 {
		k, sure = begin(value[1:])
		h.sure = sure && !slices.Contains([]kind{kindQuoted, kindPretty, kindDescribe}, k)
		return h
	}
	other := otherHead(b)
	h.kind, h.sure = other.kind, other.sure
	return h
}

// fragment returns the string, with its quote, that is the value of a member of JSON at the beginning of b.
func fragment(b []byte) []byte {
	n := bytes.IndexByte(b[1:min(len(b), 64)], '"')
	if n < 1 {
		return nil
	}
	rest, ok := bytes.CutPrefix(b[n+2:], []byte(":"))
	if rest = trimBlanks(rest); !ok || len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	return rest
}

// digitHead recognises what begins with a digit.
func digitHead(b []byte) (h head, ok bool) {
	if s, rest, ok := rowStart(b); ok {
		return rowHead(b, s, rest), true
	}
	if s, rest, ok := klog.ParseISO(b); ok {
		return isoHead(b, s, rest)
	}
	if s, rest, ok := parseUnix(b); ok {
		return head{kind: kindSyslog, name: "syslog", stamp: s}.sent(rest), true
	}
	if len(b) > 8 && bytes.IndexByte(b[:min(len(b), 60)], ';') > 0 {
		if r, ok := Kmsg(b); ok {
			return head{
				kind: kindKmsg, sure: true, name: "kmsg", rest: r.Message, last: true,
				stamp: r.Outer, kernel: r.Kernel,
			}, true
		}
	}
	return head{}, false
}

// isoHead recognises what follows an ISO date.
func isoHead(b []byte, s klog.Stamp, rest []byte) (h head, ok bool) {
	if stream, partial, msg, ok := parseCRI(rest); ok {
		return head{kind: kindCRI, sure: true, name: "cri", stamp: s, stream: stream, partial: partial, rest: msg}, true
	}
	if len(rest) > 0 && bytes.IndexByte([]byte(" :\t]"), rest[0]) < 0 {
		return head{}, true
	}
	h = head{kind: kindISO, stamp: s}
	for _, zone := range [...]string{" +", " -", " UTC"} {
		if bytes.HasPrefix(rest, []byte(zone)) { // a date inside a text
			h.kind = none
		}
	}
	rest = trimBlanks(rest)
	if h = h.sent(rest); len(h.rest) < len(rest) {
		h.name = "syslog"
	} else {
		h.name = "text"
	}
	if level(rest) {
		h.name, h.rest, h.sender, h.sure = "text", rest, sender{}, true
	}
	if s.Zone && len(b) > 19 && b[19] == ',' { // dmesg --time-format=iso; no other program writes a comma and a zone
		h.name, h.kernel, h.rest, h.sender = "dmesg", true, rest, sender{}
	}
	h.sure = h.kind != none && (h.sure || s.Zone && len(rest) > 0)
	return h, true
}

// level reports whether b begins with the name of a level, as loggers write it behind their stamp.
func level(b []byte) bool {
	word, _ := cut(b)
	switch strings.ToUpper(string(bytes.Trim(word, "[]:"))) {
	case "INFO", "WARN", "WARNING", "ERROR", "DEBUG", "FATAL", "CRIT", "CRITICAL", "TRACE":
		return true
	}
	return false
}

// otherHead recognises what has no stamp in front.
func otherHead(b []byte) head {
	if host, rest, ok := parseNode(b); ok {
		h := head{kind: kindBehind, sure: true, sender: sender{host: host}, rest: rest}
		if rest[0] == '{' {
			h.kind = kindJSON
		}
		return h
	}
	if rest, ok := parseFacility(b); ok {
		return head{kind: kindDmesg, sure: true, rest: rest, kernel: bytes.HasPrefix(b, []byte("kern"))}
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

// maxLead is how far behind unknown text a klog header is looked for, in bytes.
const maxLead = 256

// klogWithin returns where a whole klog header is behind some text, 0 if there is none.
func klogWithin(b []byte) int {
	text := b[:min(len(b), maxLead)]
	for i := 0; ; {
		n := bytes.IndexAny(text[i:], " \t|]:\",;")
		if n < 0 || i+n+1 >= len(b) {
			return 0
		}
		i += n + 1
		if klog.Begins(b[i:]) {
			if _, _, ok := klog.ParseHeader(b[i:]); ok {
				return i
			}
		}
	}
}

// cutHeader reports whether a record begins with a klog header, or one behind a prefix, that the end of the line cuts.
func cutHeader(line []byte) bool {
	tail := line[max(0, len(line)-80):]
	for i := 0; i+6 < len(tail); i++ {
		first := i == 0 || tail[i-1] == ' ' || tail[i-1] == '"'
		if first && tail[i+5] == ' ' && bytes.IndexByte([]byte("IWEF"), tail[i]) >= 0 &&
			digit(tail[i+1]) && digit(tail[i+2]) && digit(tail[i+3]) && digit(tail[i+4]) {
			_, _, ok := klog.ParseHeader(tail[i:])
			return !ok
		}
	}
	return false
}
