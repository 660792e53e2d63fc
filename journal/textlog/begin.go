package textlog

import (
	"bytes"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// A kind is the form in which a line begins a record.
type kind uint8

const (
	none kind = iota
	kindKlog
	kindSyslog // syslog and journalctl's short forms
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
	kindLed    // klog behind text that is not known
	kindRow    // of a table with commas, a time first
	kindYAML   // a condition of a node
	kindBare   // a line without a beginning
)

// maxLead is how far behind unknown text a klog header is looked for, in bytes.
const maxLead = 256

// quick is begin for the forms that logs are full of: a few comparisons. It may only tell none where begin has to look.
func quick(b []byte, last kind) kind {
	if len(b) < 22 {
		return none
	}
	switch last {
	case kindSyslog:
		if b[3] == ' ' && b[6] == ' ' && b[9] == ':' && b[12] == ':' && b[15] == ' ' && letter(b[0]) && digit(b[5]) && digit(b[7]) {
			return kindSyslog
		}
	case kindISO:
		if b[4] == '-' && b[7] == '-' && b[10] == 'T' && b[13] == ':' && b[16] == ':' && digit(b[0]) && digit(b[18]) {
			return kindISO
		}
	}
	if last == kindJSON {
		return none // the text of a wrapped object may begin like any record
	}
	if b[5] == ' ' && b[8] == ':' && b[11] == ':' && b[14] == '.' && digit(b[1]) && digit(b[4]) && digit(b[6]) && digit(b[15]) &&
		(b[0] == 'I' || b[0] == 'E' || b[0] == 'W' || b[0] == 'F') {
		return kindKlog
	}
	return none
}

// begin returns in which form a line begins a record, none if it does not. sure is false where a line in the middle of a
// wrapped record may look the same.
func begin(b []byte) (k kind, sure bool) {
	b = trimBlanks(b)
	if len(b) < 4 {
		if string(b) == "{" {
			return kindPretty, true
		}
		return none, false
	}
	switch {
	case known(b):
		return knownKind(b[0]), true
	case b[0] == 0x1e && len(b) > 8 && known(b[1:]), b[0] == 'd' && bytes.HasPrefix(b, []byte(`data: {"`)):
		return kindJSON, true
	case b[0] == '<':
		if rest, _, ok := parsePriority(b); ok {
			k, _ = begin(bytes.TrimPrefix(rest, []byte("1 "))) // the version of RFC 5424
			return k, k != none
		}
	case b[0] == '[':
		if _, _, ok := parseBracket(b); ok {
			return kindDmesg, true
		}
		if _, _, ok := bracketISO(b); ok {
			return kindISO, true
		}
		if objects(b) {
			return kindJSON, true
		}
	case b[0] == '"':
		if k, ok := beginQuoted(b); ok {
			return k, true
		}
	case b[0] == '-' && bytes.HasPrefix(b, []byte(heartbeat)):
		return kindYAML, true
	case b[0] == '_' && exportBegins(b):
		return kindExport, false
	case digit(b[0]):
		if k, sure, ok := beginDigit(b); ok {
			return k, sure
		}
	}
	if k, sure, ok := beginDate(b); ok {
		return k, sure
	}
	return beginOther(b)
}

// beginQuoted is begin for lines that begin with a quote: a row of a table, a line as a string, a member of JSON whose value
// is one.
func beginQuoted(b []byte) (kind, bool) {
	if sure, ok := beginRow(b); ok && sure {
		return kindRow, true
	}
	k, sure := begin(b[1:])
	if sure && k != kindQuoted && k != kindPretty {
		return kindQuoted, true
	}
	if value := fragment(b); len(value) > 0 {
		k, sure = begin(value[1:])
		return kindQuoted, sure && k != kindQuoted && k != kindPretty && k != kindDescribe
	}
	return none, false
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

// objects reports whether b begins a list of JSON objects.
func objects(b []byte) bool {
	rest := trimBlanks(b[1:])
	return len(rest) > 0 && rest[0] == '{' && jsonBegins(rest)
}

func knownKind(c byte) kind {
	switch c {
	case '{':
		return kindJSON
	case 't':
		return kindLogrus
	}
	return kindKlog
}

// beginDigit is begin for lines that begin with a digit. ok is false if the caller must look further.
func beginDigit(b []byte) (k kind, sure, ok bool) {
	if sure, ok := beginRow(b); ok {
		return kindRow, sure, true
	}
	if stamp, rest, ok := klog.ParseISO(b); ok {
		return beginISO(stamp, rest)
	}
	if _, rest, ok := parseUnix(b); ok {
		_, _, sure = parseSender(rest)
		return kindSyslog, sure, true
	}
	if len(b) > 8 && bytes.IndexByte(b[:min(len(b), 60)], ';') > 0 {
		if _, ok := Kmsg(b[:min(len(b), 200)]); ok {
			return kindKmsg, true, true
		}
	}
	return none, false, false
}

// beginISO is begin behind an ISO date.
func beginISO(stamp klog.Stamp, rest []byte) (k kind, sure, ok bool) {
	if _, _, _, ok := parseCRI(rest); ok {
		return kindCRI, true, true
	}
	if bytes.HasPrefix(rest, []byte(" +")) || bytes.HasPrefix(rest, []byte(" -")) || bytes.HasPrefix(rest, []byte(" UTC")) ||
		(len(rest) > 0 && rest[0] != ' ' && rest[0] != ':' && rest[0] != '\t' && rest[0] != ']') {
		return none, false, true // a date inside a text
	}
	rest = trimBlanks(rest)
	if _, _, sure = parseSender(rest); sure || level(rest) {
		return kindISO, true, true
	}
	return kindISO, stamp.Zone && len(rest) > 0, true
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

// beginDate is begin for lines that begin with a weekday or a month.
func beginDate(b []byte) (k kind, sure, ok bool) {
	if _, rest, ok := parseMonthDay(b); ok {
		_, _, sure = parseSender(rest)
		return kindSyslog, sure, true
	}
	if _, _, rest, ok := parseWeekday(b); ok {
		if bytes.HasPrefix(rest, []byte("[s=")) {
			return kindVerbose, true, true
		}
		_, _, sure = parseSender(rest)
		return kindSyslog, sure, true
	}
	return none, false, false
}

// beginOther is begin for what has no stamp in front.
func beginOther(b []byte) (k kind, sure bool) {
	if _, rest, ok := parseNode(b); ok {
		if rest[0] == '{' {
			return kindJSON, true
		}
		return kindLed, true
	}
	if _, rest, ok := parseFacility(b); ok && rest != nil {
		return kindDmesg, true
	}
	if _, _, _, ok := klog.ParseBareCaller(b); ok {
		return kindCaller, true
	}
	if klogWithin(b) > 0 {
		return kindLed, true
	}
	if _, ok := parseDescribe(b); ok {
		return kindDescribe, true
	}
	return none, false
}

// klogWithin returns where a whole klog header stands behind some text, 0 if there is none.
func klogWithin(b []byte) int {
	head := b[:min(len(b), maxLead)]
	for i := 0; ; {
		n := bytes.IndexAny(head[i:], " \t|]:\",;")
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
		if (i == 0 || tail[i-1] == ' ' || tail[i-1] == '"') && tail[i+5] == ' ' && bytes.IndexByte([]byte("IWEF"), tail[i]) >= 0 &&
			digit(tail[i+1]) && digit(tail[i+2]) && digit(tail[i+3]) && digit(tail[i+4]) {
			_, _, ok := klog.ParseHeader(tail[i:])
			return !ok
		}
	}
	return false
}
