package redact

import (
	"bytes"
	"slices"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// apply looks at a literal of the rule, at line[s:e].
func (r *Rule) apply(t *text, s, e int) {
	switch {
	case r.find != nil:
		r.find(t, r, s)
	case r.Pattern == "":
		t.keyed(r, s, e)
	default:
		t.pattern(r, s)
	}
}

// pattern removes the match of a rule's pattern at s.
func (t *text) pattern(rule *Rule, s int) {
	const most = 1 << 10 // a longer match ends where a word does
	b := t.line[s:]
	if rule.Alone && !t.wordBegins(s) {
		return
	}
	m := rule.re.FindSubmatchIndex(b[:min(most, len(b))])
	if m == nil {
		return
	}
	from, to := m[0], m[1]
	for i := 2; i < len(m); i += 2 {
		if m[i] >= 0 {
			from, to = m[i], m[i+1]
		}
	}
	if to == most {
		to += bareEnd(b[to:])
	}
	t.remove(rule, s+from, s+to, "")
}

var inWord = lazyregexp.New(`(?:^|[^A-Za-z0-9]|\\[nrt]|#012|\\u[0-9a-f]{4})$`)

// wordBegins reports whether i is not in the middle of a word.
func (t *text) wordBegins(i int) bool {
	return i == 0 || !letterOrDigit(t.line[i-1]) || inWord.Match(t.line[max(0, i-6):i])
}

var (
	keyBegin  = lazyregexp.New(`^-----BEGIN [A-Z ]*PRIVATE KEY`)
	certBegin = lazyregexp.New(`^-----BEGIN CERTIFICATE`)
	keyInLine = lazyregexp.New(`^[^"]*?-----END[A-Z ]*(?:-----)?`)
	keyRest   = lazyregexp.New(`^(?:\\+[nr]|#012|[A-Za-z0-9+/=. :,-])*`)
	keyLine   = lazyregexp.New(`^[\s|]*[A-Za-z0-9+/=]*[\s"',]*$|[\s|][A-Za-z0-9+/=]{32,}[\s"',]*$|` +
		`Proc-Type:|DEK-Info:`)
	keyEnd = lazyregexp.New(`-----END[A-Z ]*-----`)
)

// pem removes a private key, or a certificate, with the lines of it that follow, also behind the head of a log line.
func (t *text) pem(rule *Rule, s int) {
	b, begin := t.line[s:], keyBegin
	if rule.Strict {
		begin = certBegin
	}
	if !begin.Match(b) {
		return
	}
	if n := len(keyInLine.Find(b)); n > 0 {
		t.remove(rule, s, s+n, "")
		return
	}
	n := len(keyRest.Find(b))
	t.remove(rule, s, s+n, "")
	if n == len(b) {
		t.drop = armour
	}
}

// armour takes the lines of a key, up to its end.
func armour(b []byte) (int, bool) {
	if m := keyEnd.FindIndex(b); m != nil {
		return m[1], false
	}
	if keyLine.Match(b) {
		return len(b), true
	}
	return 0, false
}

// ordinary are variables of units that are no secrets: of the kubelet, the runtimes, Go and the shell. Passwords in
// their values are found by other rules.
var ordinary = lazyregexp.New(
	`^(?:(?:KUBE|CONTAINERD|CRIO|CONMON|XDG_|LC_)\w*|(?i:https?_proxy|no_proxy|all_proxy)|` +
		`GO(?:GC|MAXPROCS|TRACEBACK|DEBUG|MEMLIMIT)|PATH|HOME|USER|SHELL|LANG|TZ|TERM|TMPDIR|HOSTNAME|LOGNAME|` +
		`ETCD_NAME|OPTIONS|NOTIFY_SOCKET|LD_LIBRARY_PATH)$`)

// assignment matches a variable and its value, in quotes or between them.
var assignment = lazyregexp.New(`^[ \t]*(?:\\*["']([\w.]+)=([^"'\\]*)|([\w.]+)=\\*["']([^"'\\]*)|` +
	`([\w.]+)=([^\s"'\\]*))\\*["']?`)

// environment removes the values of the variables of a unit, in its file and as systemctl shows them.
func (t *text) environment(rule *Rule, s int) { t.variables(rule, s+len("environment=")) }

// variables removes the values of the variables from i on.
func (t *text) variables(rule *Rule, i int) {
	for {
		m := assignment.FindSubmatchIndex(t.line[i:])
		if m == nil {
			break
		}
		g := 2
		for m[g] < 0 {
			g += 4
		}
		name, s, e := string(t.line[i+m[g]:i+m[g+1]]), i+m[g+2], i+m[g+3]
		if !ordinary.MatchString(name) && !slices.Contains(nothing, string(t.line[s:e])) {
			t.remove(rule, s, e, "")
		}
		i += m[1]
	}
	if string(bytes.TrimSpace(t.line[i:])) == `\` {
		t.unit = rule
	}
}

var tomlValue = lazyregexp.New(`^[ \t]*["']?[\w.-]+["']?[ \t]*=[ \t]*(\S.*?)[ \t\r]*$`)

// header begins a section of TOML with secrets.
func (t *text) header(rule *Rule, _ int) {
	if len(bytes.TrimSpace(t.line)) > 0 && bytes.TrimSpace(t.line)[0] == '[' {
		t.section = rule
	}
}

// value removes the value in a line of a section.
func (t *text) value() {
	if b := bytes.TrimSpace(t.line); len(b) > 0 && b[0] == '[' {
		t.section = nil
		return
	}
	m := tomlValue.FindSubmatchIndex(t.line)
	if m == nil {
		return
	}
	t.remove(t.section, m[2], m[3], `"`)
	if t.line[m[2]] == '[' {
		k := key{text: t}
		_, t.drop = k.balanced(m[2])
	}
}
