// Command gendocs writes the pages that are made from the live command tree and the lists of causes, known bugs and
// signatures: docs/reference, docs/man, docs/schema, docs/actions.md, docs/advisories.md, docs/causes.md and
// docs/signatures.md.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
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
	if err := writePage(dir, "causes.md", causes.Docs()); err != nil {
		return err
	}
	if err := writePage(dir, "actions.md", causes.Docs()); err != nil {
		return err
	}
	if err := writePage(dir, "advisories.md", advisories.All()); err != nil {
		return err
	}
	lanes := map[signature.Lane][]signature.Signature{}
	for _, s := range signature.Catalogue() {
		lanes[s.Lane] = append(lanes[s.Lane], s)
	}
	return writePage(dir, "signatures.md", lanes)
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
