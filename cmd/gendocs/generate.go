package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal/signature"
)

// manDate is fixed, so that the pages change only when the commands do.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// generate writes all generated pages below dir and removes those of commands that are gone.
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
	if err := os.WriteFile(filepath.Join(dir, "causes.md"), causePage(causes.Docs()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "signatures.md"), signaturePage(signature.Catalogue()), 0o644)
}

func causePage(list []checks.Definition) []byte {
	var b bytes.Buffer
	b.WriteString("# Causes\n\nWhat `kdiag explain` prints, made by `make generate`. " +
		"The root comes first in a report; what follows from it after.\n")
	for _, d := range list {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n", d.Code, sentenceCase(d.Title), d.Means)
		section(&b, "Confirm it", d.Confirm)
		section(&b, "Fix it, least first", d.Fix)
		fmt.Fprintf(&b, "\nMistaken for: %s\n", d.Mistaken)
		if len(d.RootOf) > 0 {
			fmt.Fprintf(&b, "\nRoot of: %s\n", strings.Join(d.RootOf, ", "))
		}
		section(&b, "Sources", d.Sources)
	}
	return b.Bytes()
}

func section(b *bytes.Buffer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", l)
	}
}

// sentenceCase makes a title, which is written to stand in the middle of a line, the beginning of one.
func sentenceCase(title string) string {
	if title == "" {
		return ""
	}
	return strings.ToUpper(title[:1]) + title[1:]
}

func signaturePage(list []signature.Signature) []byte {
	var b bytes.Buffer
	b.WriteString("# Signatures\n\nWhat `kdiag journal` looks for in the logs of a node, made by `make generate` " +
		"from journal/signature/catalogue. The code is what stands in its report.\n")
	lane := signature.Lane("")
	for _, s := range list {
		if s.Lane != lane {
			lane = s.Lane
			fmt.Fprintf(&b, "\n## %s\n", sentenceCase(string(lane)))
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s. %s\n\n    %s\n", s.Code, sentenceCase(s.Title), s.Means, s.Example)
		fmt.Fprintf(&b, "\nVersions: %s\n", s.Versions)
		if len(s.Implies) > 0 {
			fmt.Fprintf(&b, "\nPoints to: %s\n", strings.Join(s.Implies, ", "))
		}
		fmt.Fprintf(&b, "\nBegins with or contains: `%s`\n", strings.Join(s.Literals, "`, `"))
		fmt.Fprintf(&b, "\nSources: %s\n", strings.Join(s.Sources, ", "))
	}
	return b.Bytes()
}
