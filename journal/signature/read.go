package signature

import (
	"strconv"
	"strings"
)

// Bounds of the facts of a match.
const (
	maxName  = 253 // bytes of an id, a name or a path
	maxError = 300 // bytes of an error text
)

// A record is the text that is matched. The text is valid only while it is matched: facts are copies.
type record struct {
	text   string
	call   string // the CRI call that it names, once rpc has looked for it
	looked bool
}

// rpc returns the CRI call that the record names; empty if it names none.
func (r *record) rpc() string {
	if !r.looked {
		r.call, r.looked = rpcName(r.text), true
	}
	return r.call
}

// A reader takes one kind of facts out of a record. An entry of the catalogue names its readers.
type reader struct {
	name string
	read func(r *record, m *Match)
}

// readers are called in this order: a later one may overwrite a fact.
var readers = []reader{
	{"call", func(r *record, m *Match) { // RPC, gRPC code, text of the error
		m.RPC = r.rpc()
		m.GRPCCode, m.ErrorText = grpcError(r.text)
	}},
	{"object", readObjects},      // container, sandbox, pod
	{"driver", readDriver},       // the error from where it names a driver; the driver, where no pod is named
	{"unhealthy", readUnhealthy}, // age, threshold, reasons, condition
	{"task", readTask},           // kernel task: name, pid, seconds
	{"victim", readVictim},       // of the OOM killer: name, pid, constraint
	{"server", readServer},       // of a network file system
	{"device", readDevice},       // block device, network device, file system
	{"hardware", readHardware},   // memory module, CPU, GPU, network card; the process that a failed memory hit
	{"crash", readCrash},         // the process: name, pid
	{"path", readPath},           // file or cgroup
	{"unit", readUnit},           // systemd unit, its role, how it ended
	{"sizes", readSizes},
	{"took", readTook},
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// keep returns a copy of a name that does not hold on to its record; empty if it is too long to be one.
func keep(s string) string {
	if len(s) > maxName {
		return ""
	}
	return strings.Clone(s)
}

// after returns the text behind the first mark.
func after(s, mark string) (string, bool) {
	_, rest, ok := strings.Cut(s, mark)
	return rest, ok
}

// upTo returns the text before the first of some bytes, or all.
func upTo(s, stops string) string {
	if i := strings.IndexAny(s, stops); i >= 0 {
		return s[:i]
	}
	return s
}

// leadingInt reads the decimal number that s begins with; 0 if it begins with none, or with one too large.
func leadingInt(s string) int64 {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// field returns the value of a key, in any of these forms: key="value", key=value, key={...}, "key":"value", and the
// same inside a string that escapes its quotes. Escapes inside the value are left as they are.
func field(s, key string) string {
	for i := 0; ; {
		j := strings.Index(s[i:], key)
		if j < 0 {
			return ""
		}
		j += i
		i = j + len(key)
		if j > 0 && (isWord(s[j-1]) || s[j-1] == '-') {
			continue
		}
		rest := s[i:]
		if strings.HasPrefix(rest, "=") {
			return value(rest[1:])
		}
		rest, ok := strings.CutPrefix(strings.TrimLeft(rest, `\`), `"`)
		if !ok {
			continue
		}
		if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " "), ":"); ok {
			return value(strings.TrimLeft(rest, " "))
		}
	}
}

// value returns the value that s begins with: a quoted string at any level of escaping, an object in braces, or a
// bare word.
func value(s string) string {
	open := strings.TrimLeft(s, `\`)
	level := len(s) - len(open)
	if strings.HasPrefix(open, `"`) {
		body := open[1:]
		for i := 0; ; {
			j := strings.IndexByte(body[i:], '"')
			if j < 0 {
				return upTo(body, "\n")
			}
			i += j
			if n := escapes(body[:i]); n <= level {
				return body[:i-n]
			}
			i++
		}
	}
	if strings.HasPrefix(s, "{") {
		if i := strings.IndexByte(s, '}'); i >= 0 {
			return s[:i+1]
		}
		return s
	}
	return upTo(s, " ,;)]}\\\"\t\n")
}

// escapes counts the backslashes that s ends with.
func escapes(s string) int {
	return len(s) - len(strings.TrimRight(s, `\`))
}
