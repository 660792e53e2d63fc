package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// encodeJSON returns v as one indented document that ends with a newline. Characters that a terminal might act on are
// written as JSON escapes, so the document is safe to look at and has the same meaning.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeJSON(buf.Bytes()), nil
}

// escapeJSON escapes what encoding/json leaves as it is: DEL, the C1 controls, and everything else that does not
// print. Outside strings, JSON is plain ASCII, so no such character can stand there.
func escapeJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		switch {
		case r == '\n' || harmless(r):
			out = append(out, doc[:size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return out
}

// encodeYAML returns v as YAML, by way of its JSON form. YAML is read by eye as often as by a program, and its writer
// lets characters through that turn a terminal's text around; so it is cleaned as text is, except for line ends. So is
// the JSON before: the reader of YAML accepts the escapes, and not all the characters.
func encodeYAML(v any) ([]byte, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	c := cleaner{lines: true}
	doc, err = yaml.JSONToYAML([]byte(c.clean(string(doc))))
	return []byte(c.clean(string(doc))), err
}
