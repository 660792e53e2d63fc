package redact

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

const (
	// jsonAhead is how far behind its data the kind of an object is searched.
	jsonAhead = 64 << 10
	// maxToken is the length of a string of JSON from which on all is taken for text.
	maxToken = 1 << 20
)

// A document is one or more documents of JSON. What has no secret is copied as it is written; lists and objects of
// secrets keep their form, so that programs can read them.
type document struct {
	text   *text
	src    *bufio.Reader
	err    error        // of src
	raw    bytes.Buffer // the input behind the last token
	levels []nesting
	secret bool // an object of kind Secret was seen
}

// A nesting is an object or a list that is open, or the level around all.
type nesting struct {
	object bool
	isKey  bool   // the next string is a key
	key    string // the last one; of a list, the last string
	rule   *Rule  // all in it is a secret of the rule
	named  *Rule  // of the string under "name" or "key": one under "value" is the secret
}

var errLong = errors.New("a string is too long")

// Read reads for the decoder, and refuses tokens that are too long.
func (d *document) Read(b []byte) (int, error) {
	if d.raw.Len() > maxToken {
		return 0, errLong
	}
	n, err := d.src.Read(b)
	d.raw.Write(b[:n])
	d.err = err
	return n, err
}

// copy copies JSON. From where it is none, or is cut, it goes on as text.
func (d *document) copy(src *bufio.Reader) error {
	d.src, d.levels = src, make([]nesting, 1)
	dec := json.NewDecoder(d)
	dec.UseNumber()
	done := int64(0)
	key := []byte(nil) // is written with its value: the rules of text need both
	for {
		token, err := dec.Token()
		if err != nil {
			break
		}
		end := dec.InputOffset()
		out := d.token(token, d.raw.Next(int(end-done)))
		done = end
		if at := &d.levels[len(d.levels)-1]; at.object && !at.isKey {
			key = slices.Clone(out)
			continue
		}
		if _, err := d.text.dst.Write(append(key, out...)); err != nil {
			return err
		}
		key = nil
	}
	if n := len(d.levels); d.levels[n-1].rule != nil {
		d.text.drop = brackets(n - 1)
	}
	rest := io.MultiReader(bytes.NewReader(key), &d.raw)
	if d.err == nil {
		rest = io.MultiReader(rest, src)
	}
	err := d.text.copy(rest)
	if err == nil && d.err != io.EOF {
		err = d.err
	}
	return err
}

// token returns the redacted token. raw ends in it, and begins behind the one before.
func (d *document) token(token json.Token, raw []byte) []byte {
	at := &d.levels[len(d.levels)-1]
	isKey := at.isKey
	at.isKey = at.object && !isKey
	was := ""
	switch v := token.(type) {
	case json.Delim:
		d.delim(v, at)
		return raw
	case json.Number:
		was = v.String()
	case string:
		was = v
		d.secret = d.secret || at.key == "kind" && v == "Secret"
	}
	is, rule := was, (*Rule)(nil)
	if isKey {
		at.key = was
	} else {
		rule = at.secret(was, d.text.level)
	}
	if _, isString := token.(string); rule != nil {
		d.text.count++
		is = "[redacted:" + rule.ID + "]"
	} else if isString {
		is = d.string(was)
	}
	if was == is {
		return raw
	}
	var b bytes.Buffer
	b.Write(raw[:len(raw)-len(bytes.TrimLeft(raw, " \t\r\n,:"))])
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(is) // a string has no errors
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// delim opens or closes an object or a list.
func (d *document) delim(v json.Delim, at *nesting) {
	if v == '}' || v == ']' {
		d.levels = d.levels[:len(d.levels)-1]
		d.secret = d.secret && len(d.levels) > 1
		return
	}
	inner := nesting{object: v == '{', isKey: v == '{', rule: at.rule}
	if at.object && inner.rule == nil {
		inner.rule = ruleOf(at.key, d.text.level)
		if inner.rule != nil && inner.rule.isData(at.key) && !d.ofSecret() {
			inner.rule = nil
		}
	}
	d.levels = append(d.levels, inner)
}

// ofSecret reports whether an object of kind Secret was seen, or follows.
func (d *document) ofSecret() bool {
	ahead, _ := d.src.Peek(jsonAhead)
	d.secret = d.secret || kindSecret.Match(slices.Concat(d.raw.Bytes(), ahead))
	return d.secret
}

// secret returns the rule of a string or a number that is a secret by its key or its place.
func (n *nesting) secret(value string, level Level) *Rule {
	if n.rule != nil {
		if slices.Contains(nothing, value) || strings.HasPrefix(value, "[redacted:") ||
			!n.rule.Whole && n.object && slices.Contains(places, n.key) {
			return nil
		}
		return n.rule
	}
	key := n.key
	if !n.object { // a list of arguments
		n.key = value
	}
	if !n.object && !strings.HasPrefix(key, "-") {
		return nil
	}
	rule := ruleOf(key, level)
	switch strings.ToLower(key) {
	case "name", "key":
		n.named = ruleOf(value, level)
	case "value":
		rule = n.named
	}
	if rule == nil || rule.keeps(key, value) {
		return nil
	}
	return rule
}

// ruleOf returns the rule of a key, nil for none.
func ruleOf(key string, level Level) *Rule {
	if matcher().first([]byte(key)) < 0 {
		return nil
	}
	key = strings.TrimLeft(key, "-.")
	for i := range Rules {
		if r := &Rules[i]; r.names(key) && (!r.Strict || level == Strict) {
			return r
		}
	}
	return nil
}

// string redacts a string: of JSON, or of lines.
func (d *document) string(s string) string {
	if matcher().first([]byte(s)) < 0 {
		return s
	}
	var b bytes.Buffer
	t := text{level: d.text.level, dst: &b}
	if strings.IndexAny(strings.TrimSpace(s), "{[") == 0 && json.Valid([]byte(s)) {
		inner := document{text: &t}
		_ = inner.copy(bufio.NewReader(strings.NewReader(s))) // neither end has errors
	} else {
		_ = t.copy(strings.NewReader(s))
	}
	d.text.count += t.count
	return b.String()
}
