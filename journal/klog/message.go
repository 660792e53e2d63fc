package klog

import (
	"bytes"
	"strings"
)

// A Message is what a record says: a text and what was said of it in pairs.
type Message struct {
	Text  string // without quotes and escapes if the message is structured
	Pairs []Pair // in the order in which they were written
	Rest  string // what follows the last pair and is none: nothing, unless the record was cut, pasted or joined badly
}

// A Pair is a key and its value: strings without quotes and escapes, anything else as written.
type Pair struct{ Key, Value string }

// maxPairs bounds the pairs of one message.
const maxPairs = 1024

// Get returns the value of a key; of several, the last, as klog says.
func (m Message) Get(key string) (string, bool) {
	for i := len(m.Pairs) - 1; i >= 0; i-- {
		if m.Pairs[i].Key == key {
			return m.Pairs[i].Value, true
		}
	}
	return "", false
}

// ParseMessage parses what follows a header. A structured message is a quoted text, then key=value pairs whose values are
// quoted, blocks of lines between =< and >, JSON, Go's %+v with braces, or bare words. A text that does not begin with a
// quote, or whose quote is not closed before the pairs, is unstructured: it is the whole Text.
func ParseMessage(msg []byte) Message {
	msg = bytes.TrimRight(msg, " \t\r\n")
	if len(msg) == 0 || msg[0] != '"' {
		return Message{Text: string(msg)}
	}
	text, rest, closed := Unquote(msg)
	if !closed {
		return Message{Text: string(msg)}
	}
	m := Message{Text: text}
	for len(m.Pairs) < maxPairs {
		var p Pair
		var ok bool
		if p, rest, ok = parsePair(rest); !ok {
			break
		}
		m.Pairs = append(m.Pairs, p)
	}
	rest = bytes.TrimSpace(rest)
	if len(rest) > 0 && len(m.Pairs) == 0 {
		return Message{Text: string(msg)} // a quotation at the beginning of a sentence
	}
	m.Rest = string(rest)
	return m
}

// parsePair parses one key=value. Blanks before it may be missing.
func parsePair(b []byte) (p Pair, rest []byte, ok bool) {
	b = bytes.TrimLeft(b, " \t\r\n")
	n := keyLength(b)
	if n == 0 || n == len(b) || b[n] != '=' {
		return Pair{}, b, false
	}
	p.Key = string(b[:n])
	b = b[n+1:]
	switch {
	case len(b) == 0:
	case b[0] == '"':
		p.Value, b, _ = Unquote(b)
	case bytes.HasPrefix(b, []byte("<\n")):
		p.Value, b = parseBlock(b[2:])
	case b[0] == '{' || b[0] == '[' || bytes.HasPrefix(b, []byte("map[")) || b[0] == '&':
		n := balanced(b)
		p.Value, b = string(b[:n]), b[n:]
	default:
		n := bareLength(b)
		p.Value, b = string(bytes.TrimRight(b[:n], " \n")), b[n:]
	}
	return p, b, true
}

// keyLength returns the length of a key at the beginning of b, 0 if none is there.
func keyLength(b []byte) int {
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c >= 0x80:
		case i > 0 && (digit(c) || c == '.' || c == '-' || c == '/'):
		default:
			return i
		}
		if i == 200 {
			return 0
		}
	}
	return len(b)
}

// bareLength returns the length of a value without quotes: up to the next blank that a key and "=" follow.
func bareLength(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\n' {
			continue
		}
		if n := keyLength(b[i+1:]); n > 0 && i+1+n < len(b) && b[i+1+n] == '=' {
			return i
		}
	}
	return len(b)
}

// parseBlock parses the lines between "=<" and ">", each behind a tab.
func parseBlock(b []byte) (value string, rest []byte) {
	var lines []string
	for len(b) > 0 {
		line, after, _ := bytes.Cut(b, []byte("\n"))
		if bytes.HasPrefix(line, []byte(" >")) {
			return strings.Join(lines, "\n"), b[2:]
		}
		lines = append(lines, string(bytes.TrimPrefix(line, []byte("\t"))))
		b = after
	}
	return strings.Join(lines, "\n"), nil
}

// balanced returns the length of a value that begins with a brace or bracket, or a word before one: to the brace that
// closes it, quoted strings skipped. A value that is not closed goes to the end.
func balanced(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n, _ := quotedLength(b[i:])
			i += n - 1
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth--; depth <= 0 {
				return i + 1
			}
		case ' ':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}
