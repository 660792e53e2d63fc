package journal

import (
	"bytes"
	"slices"
	"strings"
)

const (
	wildcard = "<*>"
	// maxTemplate bounds a template, in bytes. Of a longer message only the beginning tells it from others.
	maxTemplate = 300
)

// template returns the text that a message shares with others that differ in numbers, ids, names, paths and times
// alone: each of these is <*>, and a list of them is one. docs/adr/0023 has the reasons for the rules.
func template(message []byte) string {
	out := make([]byte, 0, min(len(message), maxTemplate))
	for i := 0; i < len(message) && len(out) < maxTemplate; {
		if separates(message[i]) {
			out = append(out, message[i])
			i++
			continue
		}
		end := i
		for end < len(message) && !separates(message[end]) {
			end++
		}
		if word := message[i:end]; !variable(word, message[:i], message[end:]) {
			out = append(out, word...)
		} else if n := listed(out); n >= 0 {
			out = out[:n]
		} else {
			out = append(out, wildcard...)
		}
		i = end
	}
	if len(out) > maxTemplate { // a word at the end may be long
		out = out[:maxTemplate]
	}
	return strings.TrimSpace(Clean(string(out), maxTemplate))
}

// separates reports whether a byte stands between words.
func separates(c byte) bool { return c <= ' ' || strings.IndexByte("\"'`\\,;:=()[]{}<>|", c) >= 0 }

// listed returns the length of a text up to a wildcard at its end that only blanks, commas and colons follow; -1
// without one.
func listed(out []byte) int {
	n := len(bytes.TrimRight(out, " ,:"))
	if bytes.HasSuffix(out[:n], []byte(wildcard)) {
		return n
	}
	return -1
}

// variable reports whether a word between two texts is a number, an id, a name, a path or a time.
func variable(word, before, after []byte) bool {
	slashes := bytes.Count(word, []byte("/"))
	switch {
	case bytes.ContainsAny(word, "0123456789"), slashes > 1, word[0] == '/' && len(word) > 1,
		slashes == 1 && bytes.ContainsAny(word, ".-_~"),
		bytes.IndexByte(word, '_') > 0 && bytes.HasPrefix(after, []byte("(")): // name_namespace(uid)
		return true
	}
	begin := bytes.TrimRight(before, `\`)
	if len(begin) == 0 {
		return false
	}
	quoted := begin[len(begin)-1] == '"' && bytes.HasPrefix(bytes.TrimLeft(after, `\`), []byte(`"`))
	if quoted { // a name, unless it is a constant of the program or the whole of an error
		return !constant(word) && !says(bytes.TrimRight(begin[:len(begin)-1], `\`))
	}
	switch begin[len(begin)-1] {
	case '=': // key=value
		return !says(begin)
	case ':': // Name:value of a structure that Go printed
		key := begin[bytes.LastIndexAny(begin[:len(begin)-1], " ,{(\"")+1:]
		return len(before) == len(begin) && key[0] >= 'A' && key[0] <= 'Z'
	}
	return false
}

// constant reports whether a word is CamelCase without anything else, as the reasons of Kubernetes are.
func constant(word []byte) bool {
	return word[0] >= 'A' && word[0] <= 'Z' && bytes.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

// says reports whether a text ends with a key whose value is words of the program.
func says(before []byte) bool {
	return slices.ContainsFunc([]string{"err=", "error=", "msg=", "level=", "reason="}, func(key string) bool {
		return bytes.HasSuffix(before, []byte(key))
	})
}
