// Package redact removes secrets from what kdiag packs: from configurations, command lines, logs and reports. Its rules
// are data. With Strict it also replaces addresses and names by pseudonyms that stay the same within one Redactor.
// docs/redaction.md lists the rules, what stays, and what no rule can find.
package redact

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// A Level is how much is removed.
type Level string

// The levels.
const (
	Standard Level = "standard" // secrets
	Strict   Level = "strict"   // also IP addresses, and names of hosts, namespaces, pods, containers, images
)

// A Format is the form of a text, which decides where its secrets may stand.
type Format string

// The formats.
const (
	Text Format = "text" // logs, dumps, command lines, tables; TOML and INI too
	JSON Format = "json" // also one document a line
	YAML Format = "yaml" // one document
)

// A Redactor removes secrets. It may be used by several goroutines.
type Redactor struct {
	level Level
	names *names // for Strict
}

// New returns a Redactor. Strict replaces these names besides the names that it recognises: of the host, namespaces,
// pods, containers, images. A pseudonym begins with the kind of the field where a name first stands, else with name;
// KIND=NAME sets it: host, ns, pod, container, image, user.
func New(level Level, names []string) *Redactor {
	return &Redactor{level: level, names: newNames(names)}
}

// Copy copies src to dst without secrets, and returns how many it removed. Valid JSON stays valid, and each line of
// text stays one line. YAML is parsed and written anew, so that its comments and the order of its keys are lost; YAML
// that cannot be parsed becomes a comment with the reason. Memory is constant but for a string of JSON and for YAML, of
// which at most 2 MiB are read. The error is that of src or dst.
func (r *Redactor) Copy(dst io.Writer, src io.Reader, format Format) (int, error) {
	if r.level != Strict {
		return r.secrets(dst, src, format)
	}
	w := &pseudonymizer{dst: dst, names: r.names, yaml: format == YAML}
	n, err := r.secrets(w, src, format)
	if werr := w.replace(len(w.buf)); err == nil {
		err = werr
	}
	return n + w.count, err
}

// secrets is Copy at the standard level.
func (r *Redactor) secrets(dst io.Writer, src io.Reader, format Format) (int, error) {
	if format == YAML {
		return r.yaml(dst, src)
	}
	br := bufio.NewReaderSize(src, jsonAhead)
	begin, _ := br.Peek(64) // Read returns the error again
	begin = bytes.TrimLeft(begin, " \t\r\n")
	t := text{level: r.level, dst: dst}
	if format != JSON || len(begin) > 0 && bytes.IndexByte([]byte(`{["`), begin[0]) < 0 {
		err := t.copy(br)
		return t.count, err
	}
	bw := bufio.NewWriterSize(dst, jsonAhead)
	t.dst = bw
	err := (&document{text: &t}).copy(br)
	return t.count, cmp.Or(bw.Flush(), err)
}

// yaml redacts a document of YAML as JSON.
func (r *Redactor) yaml(dst io.Writer, src io.Reader) (int, error) {
	const most = 2 << 20 // more than the kubelet's configuration ever has
	doc, readErr := io.ReadAll(io.LimitReader(src, most+1))
	var out bytes.Buffer
	n, err := 0, error(nil)
	if len(doc) > most {
		err = errors.New("it has more than 2 MiB")
	} else {
		doc, err = yaml.YAMLToJSON(doc)
	}
	if err == nil {
		n, _ = r.secrets(&out, bytes.NewReader(doc), JSON) // neither end has errors
		doc, err = yaml.JSONToYAML(out.Bytes())
	}
	if err != nil {
		reason, _ := r.String(strings.ReplaceAll(err.Error(), "\n", " "))
		n, doc = 1, []byte("# [redacted:yaml]: "+reason+"\n")
	}
	_, err = dst.Write(doc)
	return n, cmp.Or(err, readErr)
}

// String redacts one short text, such as a command line.
func (r *Redactor) String(s string) (string, int) {
	var b strings.Builder
	n, _ := r.Copy(&b, strings.NewReader(s), Text) // neither end has errors
	return b.String(), n
}
