// Command gendocs writes the pages that are made from the live command tree and the lists of causes, known bugs and
// signatures: docs/reference, docs/man, docs/schema, docs/actions.md, docs/advisories.md, docs/causes.md and
// docs/signatures.md.
package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/journal/signature"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendocs DIR")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// manDate is fixed, so that the pages change only when the commands do.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// generate writes all generated pages below dir and removes the pages of commands that are gone.
func generate(dir string) error {
	env := cli.System()
	env.Getenv = func(string) string { return "" }
	root := app.Root(env)
	root.Version = ""
	root.DisableAutoGenTag = true
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, sub := range []string{"reference", "man", "schema"} {
		path := filepath.Join(dir, sub)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	if err := doc.GenMarkdownTree(root, filepath.Join(dir, "reference")); err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	if err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Header: &doc.GenManHeader{Section: "1", Source: "kdiag", Manual: "kdiag", Date: &manDate},
		Path:   filepath.Join(dir, "man"), CommandSeparator: "-",
	}); err != nil {
		return fmt.Errorf("writing the man pages: %w", err)
	}
	if err := writeSchemas(filepath.Join(dir, "schema")); err != nil {
		return fmt.Errorf("writing the schemas: %w", err)
	}
	lanes := map[signature.Lane][]signature.Signature{}
	for _, s := range signature.Catalogue() {
		lanes[s.Lane] = append(lanes[s.Lane], s)
	}
	return cmp.Or(writePage(dir, "causes.md", causes.Docs()), writeActions(dir),
		writePage(dir, "advisories.md", advisories.All()), writePage(dir, "signatures.md", lanes))
}

// proofs are the proofs of actions, a line each, as the end-to-end tests write them (e2etest.Place). They are of the
// day on which they were made.
//
//go:embed actions.jsonl
var proofs string

// writeActions writes the page of actions: the program's own table, and what was tried.
func writeActions(dir string) error {
	page := struct {
		Causes []checks.Definition
		Proofs []proof
		Healed map[bool]int // proofs of controllers' actions, by whether they ended the fault
		Lesser int          // that ended it all the same
	}{causes.Docs(), nil, map[bool]int{}, 0}
	for line := range strings.Lines(proofs) {
		var p proof
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return fmt.Errorf("actions.jsonl: %w", err)
		}
		if p.Healed != "" && p.Healed != p.Action {
			page.Lesser++
		} else if len(p.Tried) > 0 && p.Tried[len(p.Tried)-1] == p.Action {
			page.Healed[p.Healed == p.Action]++
		}
		p.Fault = strings.ReplaceAll(p.Fault, "_", " ") // of the name of a test
		page.Proofs = append(page.Proofs, p)
	}
	return writePage(dir, "actions.md", page)
}

// A proof says which actions ended a real fault.
type proof struct {
	Fault, Cause   string
	Action, Healed string
	Tried          []string // the least first
}

// templates are the templates of the pages that lists are made into.
//
//go:embed *.md.tmpl
var templates embed.FS

// writePage writes a page that a template of its name makes of a list.
func writePage(dir, name string, list any) error {
	t, err := template.New("").Funcs(template.FuncMap{
		"join": func(sep string, words []string) string { return strings.Join(words, sep) },
		// sentence makes a title, which is written to stand in the middle of a line, the beginning of one.
		"sentence": func(title string) string { return strings.ToUpper(title[:1]) + title[1:] },
	}).ParseFS(templates, name+".tmpl")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := t.ExecuteTemplate(&page, name+".tmpl", list); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644)
}

// A schema is a JSON Schema, as far as kdiag's documents need one. encoding/json sorts its keys.
type schema map[string]any

// writeSchemas writes a JSON Schema for each kind of document.
func writeSchemas(dir string) error {
	for kind, doc := range render.Documents() {
		g := generator{defs: schema{}}
		root := g.object(reflect.TypeOf(doc))
		root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		root["$id"] = "https://raw.githubusercontent.com/kdiag/kdiag/main/docs/schema/" + kind + ".json"
		root["title"] = kind
		root["$defs"] = g.defs
		root["properties"].(schema)["apiVersion"] = schema{"const": checks.APIVersion}
		root["properties"].(schema)["kind"] = schema{"const": kind}
		data, err := json.MarshalIndent(root, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, kind+".json"), append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A generator makes the schema of one document out of its Go type.
type generator struct{ defs schema }

// object describes a struct. Fields may be added in later versions, so others are allowed.
func (g generator) object(t reflect.Type) schema {
	properties, required := schema{}, []string{}
	g.fields(t, properties, &required, true)
	return schema{"type": "object", "properties": properties, "required": required}
}

// fields adds the fields of a struct, and of those embedded in it: an outer one hides an inner one of its name. The
// fields of an embedded pointer may all be missing.
func (g generator) fields(t reflect.Type, properties schema, required *[]string, there bool) {
	var embedded []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			embedded = append(embedded, f)
			continue
		case name == "" || name == "-" || properties[name] != nil:
			continue
		}
		properties[name] = g.of(f.Type)
		if there && !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
	for _, f := range embedded {
		if f.Type.Kind() == reflect.Pointer {
			// The outermost pointer of a document is always there; only a census may be missing.
			g.fields(f.Type.Elem(), properties, required, there && f.Name != "Census" && f.Name != "Speed")
			continue
		}
		g.fields(f.Type, properties, required, there)
	}
}

// enums are the values of the types that have few.
func enums() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[checks.Verdict]():  {"healthy", "degraded", "unhealthy", "unknown"},
		reflect.TypeFor[checks.Severity](): {"critical", "warning"},
		reflect.TypeFor[checks.Status]():   {"ok", "warning", "critical", "unknown", "skipped"},
	}
}

// of describes a type. Structs stand in $defs, under their Go names.
func (g generator) of(t reflect.Type) schema {
	if values, ok := enums()[t]; ok {
		return schema{"type": "string", "enum": values}
	}
	if t == reflect.TypeFor[time.Time]() {
		return schema{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.of(t.Elem())
	case reflect.Struct:
		name := t.Name()
		if g.defs[name] == nil {
			g.defs[name] = true // while it is described, it may name itself
			g.defs[name] = g.object(t)
		}
		return schema{"$ref": "#/$defs/" + name}
	case reflect.Slice, reflect.Array:
		return schema{"type": "array", "items": g.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float64:
		return schema{"type": "number"}
	}
	return schema{"type": "integer"}
}
