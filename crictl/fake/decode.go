package fake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxScenarioBytes bounds the text of a scenario. The largest built-in one has 6 KB.
const maxScenarioBytes = 4 << 20

// A lineError is a mistake in a scenario's text and where it is.
type lineError struct {
	line    int
	problem string
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.problem) }

func mistake(n *yaml.Node, format string, args ...any) error {
	return &lineError{line: n.Line, problem: fmt.Sprintf(format, args...)}
}

// decodeStrict reads one YAML or JSON document into the struct that into points at. Keys are those of the json tags.
// Unlike the decoders of the JSON and YAML packages it knows the line of every mistake, and calls an unknown or repeated key
// one.
func decodeStrict(data []byte, into any) error {
	if len(data) > maxScenarioBytes {
		return fmt.Errorf("%d bytes are too many: at most %d", len(data), maxScenarioBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the document is empty")
		}
		return oneLine(err)
	}
	var next yaml.Node
	if err := dec.Decode(&next); err == nil {
		return mistake(&next, "a second document begins; one is read")
	} else if !errors.Is(err, io.EOF) {
		return oneLine(err)
	}
	if len(doc.Content) == 0 {
		return errors.New("the document is empty")
	}
	return decodeNode(doc.Content[0], reflect.ValueOf(into).Elem())
}

// oneLine strips the YAML package's prefix and line breaks: its texts look like "yaml: line 3: ...".
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if strings.Contains(text, "unknown anchor") { // it would repeat what the file holds
		return errors.New("anchors and aliases are not read; write the value out")
	}
	return errors.New(strings.TrimPrefix(text, "yaml: "))
}

func decodeNode(n *yaml.Node, v reflect.Value) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return mistake(n, "anchors and aliases are not read; write the value out")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil
	case v.Type() == reflect.TypeFor[Duration]():
		return decodeDuration(n, v)
	}
	switch v.Kind() {
	case reflect.Struct:
		return decodeStruct(n, v)
	case reflect.Slice:
		return decodeSlice(n, v)
	case reflect.Map:
		return decodeMap(n, v)
	}
	return decodeScalar(n, v)
}

func decodeDuration(n *yaml.Node, v reflect.Value) error {
	if n.Kind != yaml.ScalarNode {
		return mistake(n, "expected a duration such as 250ms, found %s", kindOf(n))
	}
	d, err := parseDuration(n.Value)
	if err != nil {
		return mistake(n, "%v", err)
	}
	v.SetInt(int64(d))
	return nil
}

// fieldName is what the name of a field looks like. Anything else is not repeated: the file may be no scenario, but one of passwords
// that was named by mistake.
var fieldName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

func decodeStruct(n *yaml.Node, v reflect.Value) error {
	switch {
	case n.Kind == yaml.ScalarNode: // perhaps the whole of a file that is no scenario
		return mistake(n, "expected keys and values, found one value")
	case n.Kind != yaml.MappingNode:
		return mistake(n, "expected keys and values, found %s", kindOf(n))
	}
	fields := jsonFields(v.Type())
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		index, ok := fields[key.Value]
		switch {
		case !ok && !fieldName.MatchString(key.Value):
			return mistake(key, "what should be the name of a field is none")
		case key.Kind != yaml.ScalarNode || !ok:
			return mistake(key, "unknown field %q", key.Value)
		case seen[key.Value]:
			return mistake(key, "field %q is given twice", key.Value)
		}
		seen[key.Value] = true
		if err := decodeNode(value, v.Field(index)); err != nil {
			return within(key.Value, err)
		}
	}
	return nil
}

// within says to which field a mistake belongs, unless it already names one.
func within(field string, err error) error {
	var at *lineError
	if errors.As(err, &at) && strings.HasPrefix(at.problem, "expected") {
		return &lineError{line: at.line, problem: field + ": " + at.problem}
	}
	return err
}

// jsonFields maps the json names of a struct's fields to their indexes.
func jsonFields(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	return fields
}

func decodeSlice(n *yaml.Node, v reflect.Value) error {
	if n.Kind != yaml.SequenceNode {
		return mistake(n, "expected a list, found %s", kindOf(n))
	}
	slice := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if err := decodeNode(item, slice.Index(i)); err != nil {
			return err
		}
	}
	v.Set(slice)
	return nil
}

func decodeMap(n *yaml.Node, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return mistake(n, "expected keys and values, found %s", kindOf(n))
	}
	m := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" {
			return mistake(value, "expected a text for %q, found %s; put it in quotes", key.Value, kindOf(value))
		}
		if _, ok := m[key.Value]; ok {
			return mistake(key, "key %q is given twice", key.Value)
		}
		m[key.Value] = value.Value
	}
	v.Set(reflect.ValueOf(m))
	return nil
}

func decodeScalar(n *yaml.Node, v reflect.Value) error {
	if n.Kind != yaml.ScalarNode {
		return mistake(n, "expected one value, found %s", kindOf(n))
	}
	switch v.Kind() {
	case reflect.String:
		if n.ShortTag() != "!!str" {
			return mistake(n, "expected a text, found %s; put it in quotes", kindOf(n))
		}
		v.SetString(n.Value)
	case reflect.Bool:
		var b bool
		if n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
			return mistake(n, "expected true or false, found %s", kindOf(n))
		}
		v.SetBool(b)
	default:
		var i int
		if n.ShortTag() != "!!int" || n.Decode(&i) != nil {
			return mistake(n, "expected a whole number, found %s", kindOf(n))
		}
		v.SetInt(int64(i))
	}
	return nil
}

// kindOf names what a node is, quoted so that control characters stay harmless.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return strconv.QuoteToASCII(n.Value)
	}
	return "something else"
}
