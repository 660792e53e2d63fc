package redact

import (
	"bytes"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

var (
	qualifiers = lazyregexp.New(`(?:base64|b64|data|value|hash|plain|prod|dev|old|new|[0-9])+$`)
	joined     = strings.NewReplacer("_", "", "-", "", ".", "")
)

// names reports whether a key is one of the rule.
func (r *Rule) names(key string) bool {
	key = strings.ToLower(joined.Replace(key))
	short := qualifiers.ReplaceAllString(key, "")
	if slices.Contains(r.Exact, key) || slices.Contains(r.Exact, short) {
		return true
	}
	return slices.ContainsFunc(r.Keys, func(k string) bool {
		return strings.HasSuffix(key, k) || strings.HasSuffix(short, k)
	})
}

// A shape is how a value is written, and so how its end is found.
type shape int

const (
	bare     shape = iota // a word: up to a blank, a quote, or the next pair
	line                  // up to the end of the line, or a quote
	quoted                // up to the quote that began it
	balanced              // brackets, and the text between them
)

// A key is one of a rule, in JSON, TOML, INI, logfmt, Go's %v and %+v, flags and the environment.
type key struct {
	*text
	rule   *Rule
	s, e   int    // where it is in the line
	quote  string // around it
	flag   bool   // it begins with a dash
	sign   byte   // behind it: = or : or , or a blank
	spaced bool   // a blank stands before the value
	begins bool   // it is the first of its line
}

var (
	pairSign = lazyregexp.New("^(\\\\*[\"'`])?([ \\t]*)([:=])[=>]*([ \\t]*)")
	flagSign = lazyregexp.New(`^(?:\\*["'])?[ \t]*([, \t\x00])[ \t]*`)
)

// keyed removes the value of the key that has a literal of a rule at s.
func (t *text) keyed(rule *Rule, s, e int) {
	b := t.line
	for ; s > 0 && e-s < 128 && keyByte(b[s-1]); s-- {
	}
	for ; e < len(b) && e-s < 256 && keyByte(b[e]); e++ {
	}
	if s > 0 && b[s-1] == '\\' && bytes.IndexByte([]byte("nrt"), b[s]) >= 0 {
		s++ // the end of an escaped line feed
	}
	name := string(b[s:e])
	if !rule.names(strings.TrimLeft(name, "-.")) {
		return
	}
	k := key{text: t, rule: rule, s: s, e: e, flag: name[0] == '-'}
	head := string(bytes.TrimRight(b[max(0, s-64):s], " \t#;-\"'"))
	k.begins = head == "" && t.fresh && s < 64 || slices.ContainsFunc([]string{"\x00", `\n`, "#012", "export", "<"},
		func(end string) bool { return strings.HasSuffix(head, end) })
	if v, ok := k.separator(b[e:min(e+256, len(b))]); ok {
		k.value(e + v)
	}
}

// separator reads the signs behind the key, and returns where the value begins.
func (k *key) separator(b []byte) (int, bool) {
	if m := pairSign.FindSubmatch(b); m != nil {
		k.quote, k.sign, k.spaced = string(m[1]), m[3][0], len(m[4]) > 0
		return len(m[0]), k.sign == ':' || !k.spaced || len(m[2]) > 0 || k.begins
	}
	m := flagSign.FindSubmatch(b)
	if !k.flag || m == nil {
		return 0, false
	}
	inQuotes := b[0] == '"' || b[0] == '\'' || b[0] == '\\'
	rest := b[len(m[0]):]
	if k.sign = m[1][0]; k.sign == ',' { // of a list of arguments
		return len(m[0]), inQuotes && len(rest) > 0 && bytes.IndexByte([]byte(`"'\`), rest[0]) >= 0
	}
	word, _, _ := bytes.Cut(rest, []byte(" "))
	return len(m[0]), !inQuotes && !slices.Contains(prose, string(word)) && !bytes.HasPrefix(word, []byte("-"))
}

// value removes the value that begins at i, unless it is none.
func (k *key) value(i int) {
	b := k.line
	if i == len(b) {
		return
	}
	s, from := k.shape(i)
	word := letterOrDigit(b[i]) && b[i] > '9'
	if s != quoted && !k.structured(word) && !k.suspicious(b[i:]) {
		return
	}
	e, next := from, dropper(nil)
	switch s {
	case quoted:
		e += closing(b[i:from], b[from:])
	case balanced:
		e, next = k.balanced(from)
	case line:
		e += lineEnd(b[from:])
	default:
		e += bareEnd(b[from:])
	}
	if next == nil && k.kept(s, string(b[from:e])) {
		return
	}
	quote := ""
	switch {
	case s == quoted:
		i = from
	case s == balanced && k.sign == '=' && k.begins:
		quote = `"`
	case k.sign == ':':
		quote = k.quote
	}
	k.drop = next
	k.remove(k.rule, i, e, quote)
}

var (
	openQuote   = lazyregexp.New("^\\\\*[\"'`]")
	openBracket = lazyregexp.New(`^(?:(?:\[\])?[*&]*(?:\w+\.)?\w*(?:map\[[^\]]*\]\w*)?\{|(?:map)?\[)`)
)

// shape returns how the value at i is written, and where it begins in its quotes or brackets.
func (k *key) shape(i int) (s shape, from int) {
	b := k.line[i:]
	if m := openQuote.Find(b); m != nil {
		return quoted, i + len(m)
	}
	if m := openBracket.Find(b[:min(len(b), 64)]); m != nil {
		return balanced, i + len(m) - 1
	}
	if k.begins && (k.sign == '=' || k.spaced) || k.rule.ID == "header" && k.sign != ' ' {
		return line, i
	}
	return bare, i
}

// closing returns where a string ends that began with a quote behind backslashes: before the next one with at most as
// many.
func closing(begin, b []byte) int {
	quote, most, n := begin[len(begin)-1], len(begin)-1, 0 // n backslashes are before i
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\\':
			n++
			continue
		case c == quote && (most == 0 && n%2 == 0 || most > 0 && n <= most):
			return i - n*min(most, 1)
		}
		n = 0
	}
	return len(b)
}

// balanced returns where the brackets end that begin at from. They go on over lines if nothing follows the first.
func (k *key) balanced(from int) (int, dropper) {
	b, until := k.line[from:], brackets(0)
	n, more := until(b)
	if more && (k.partial || len(bytes.TrimSpace(b)) == 1) {
		return from + n, until
	}
	return from + n, nil
}

// brackets returns what ends behind so many brackets that are open.
func brackets(depth int) dropper {
	return func(b []byte) (int, bool) {
		for i, c := range b {
			switch c {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth <= 0 {
					return i + 1, false
				}
			}
		}
		return len(b), true
	}
}

// bareEnd returns where a word ends.
func bareEnd(b []byte) int {
	for i, c := range b {
		switch next := b[i+1:]; {
		case c <= ' ' || c == '"' || c == '\'' || c == '`':
			return i
		case c == '\\':
			if next = bytes.TrimLeft(next, `\`); len(next) > 0 && bytes.IndexByte([]byte("nrtu\"'"), next[0]) >= 0 {
				return i
			}
		case (c == ',' || c == ';' || c == '&') && pairBegins.Match(next), bytes.IndexByte([]byte(")]}>"), c) >= 0 &&
			wordEnds.Match(next):
			return i
		}
	}
	return len(b)
}

var (
	pairBegins = lazyregexp.New(`^(?:[\w.-]+[:=]|[\s}\])"']|[\w.-]*$)`)
	lineStop   = lazyregexp.New("[\"'`\x00]|\\\\[nrt]|#012")
	wordEnds   = lazyregexp.New(`^(?:[\s,;:.)\]}>"'\\]|$)`)
)

// lineEnd returns where a value ends that takes a line: before a quote or an escaped line feed.
func lineEnd(b []byte) int {
	n := len(b)
	if m := lineStop.FindIndex(b); m != nil {
		n = m[0]
	}
	return len(bytes.TrimRight(b[:n], " \t\r\\,"))
}

// structured reports whether the key is one of a structure, not a word of a sentence. word is set if its value begins
// with a letter.
func (k *key) structured(word bool) bool {
	head := k.line[max(0, k.s-256):k.s]
	switch {
	case k.sign != ':', k.begins, k.quote != "" && !word:
		return true
	case k.rule.ID == "header" && k.line[k.s] < 'a', k.line[k.s]|0x20 == 'x' && k.line[k.s+1] == '-': // X-Vault-Token
		return true
	}
	return inStruct.Match(head) || inString.Match(head) && k.quote == "" && !k.rule.Prose ||
		!k.spaced && inMap.Match(head)
}

var (
	inStruct   = lazyregexp.New(`[{[,(&<]$`)
	inString   = lazyregexp.New(`["']$`)
	inMap      = lazyregexp.New(`(?:map\[|\{).* $`)
	likeSecret = lazyregexp.New(`^[^\s"'\\]*[0-9!@#$%^&*+=~][^\s"'\\]*`)
)

// suspicious reports whether the word behind a key in a sentence looks like a secret: it is no word, no number, and no
// part of an error.
func (k *key) suspicious(b []byte) bool {
	if !k.spaced && (k.rule.ID != "password" || k.s == 0 || k.line[k.s-1] != ' ') {
		return false
	}
	word := string(likeSecret.Find(b[:min(len(b), 64)]))
	if strings.HasSuffix(word, ":") || strings.Contains(word, "://") {
		return false
	}
	word = strings.TrimRight(word, ".,;)]}")
	return len(word) >= 5 && strings.Trim(word, "0123456789") != ""
}

var (
	reference = lazyregexp.New(`^[a-z0-9.-]+/[a-z0-9.-]+$`)
	keysOf    = lazyregexp.New(`([\w.-]+)\\*["']?\s*:(?:[\s"'\\\[{]|$|\d)`)
	knownPath = lazyregexp.New(
		`^(?:file://)?/(?:etc|var|run|opt|usr|home|root|proc|sys|tmp|srv|dev|mnt|data|lib|snap)/[\w./@:+-]*$`)
	variable = lazyregexp.New(`^(?:\$\{[^}]*\}?|\$\([^)]*\)?|\$[A-Z_]+|\{\{.*\}\}|%[a-z]|\.{1,2}/[\w./-]*|\.|` +
		`0x[0-9a-f]+|\*+|x{3,}|\(.*\)\(?nil\)?)$`)
	letIn      = lazyregexp.New(`^(?:token|(?:node )?certificate|read-only port)$`) // how the kubelet let kdiag in
	kindSecret = lazyregexp.New(`\bkind\\*["']?\s*:\s*\\*["']?Secret\b`)

	// places are the keys of an object that has no secret: a volume, or where a secret is.
	places = []string{
		"secretName", "name", "namespace", "key", "path", "items", "mode", "optional", "defaultMode", "audience",
		"expirationSeconds", "sources",
	}
	// nothing are values that are no secrets.
	nothing = []string{
		"", "null", "nil", "~", "true", "false", "none", "<nil>", "<none>", "{}", "[]", "no", "yes", "-", "|", ">",
		"REDACTED", "redacted", "<redacted>", "<masked>", "FILE",
	}
	// prose are words that follow the name of a flag in a sentence.
	prose = []string{
		"is", "was", "has", "flag", "must", "should", "and", "or", "not", "to", "in", "for", "cannot",
	}
)

// kept reports whether the value is no secret.
func (k *key) kept(s shape, v string) bool {
	name := string(k.line[k.s:k.e])
	if s != balanced {
		return k.rule.keeps(name, v) ||
			strings.EqualFold(name, "pass") && k.sign == ':' && k.quote == "" // PASS: of a test
	}
	switch {
	case strings.Trim(v, "{}[]|>+- \n\r\t") == "" || strings.HasPrefix(v, "[redacted:"):
		return true
	case k.rule.Whole:
		return k.rule.isData(name) && !k.ofSecret()
	}
	keys := keysOf.FindAllStringSubmatch(v, -1)
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(m []string) bool { return !slices.Contains(places, m[1]) })
}

// isData reports whether only objects of kind Secret have secrets below a key of the rule.
func (r *Rule) isData(key string) bool {
	return r.ID == "secret-data" && strings.EqualFold(key, "data")
}

// ofSecret reports whether the key is one of an object of kind Secret, near it in the line.
func (k *key) ofSecret() bool {
	const near = 4 << 10
	return kindSecret.Match(k.line[max(0, k.s-near):min(len(k.line), k.s+near)])
}

// keeps reports whether the word or string of a key is no secret: nothing, a path, a variable, a name.
func (r *Rule) keeps(key, v string) bool {
	v = strings.TrimSpace(v)
	word := strings.Trim(v, `"'\,`)
	if r.Whole || slices.Contains(nothing, word) || strings.HasPrefix(v, "[redacted:") ||
		knownPath.MatchString(word) || variable.MatchString(word) {
		return true
	}
	key = strings.ToLower(key)
	switch r.ID {
	case "token": // tokens: 10, of a rate
		return strings.HasSuffix(key, "s") && strings.Trim(word, "0123456789") == ""
	case "auth":
		return strings.Contains(word, " ") || len(word) < 8
	case "username":
		return strings.HasPrefix(word, "system:")
	case "secret":
		return reference.MatchString(word) // namespace/name
	case "credential":
		return letIn.MatchString(word)
	case "password": // the folder of a shell
		return strings.HasSuffix(key, "pwd") && strings.HasPrefix(word, "/")
	}
	return false
}
