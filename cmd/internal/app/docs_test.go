package app

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/internal/testkit"
)

var (
	inText   = regexp.MustCompile("`(?:kubectl )?kdiag ([^`]+)`")
	inShell  = regexp.MustCompile(`(?m)(?:^|[|;&(]|sudo |/)[ \t]*kdiag ([^|;&()>#'·\n]+)`)
	fenced   = regexp.MustCompile("(?ms)^```\n(.*?)^```")
	brackets = strings.NewReplacer("[", " ", "]", " ", "--help", "")
	// metavariable is what stands for a name.
	metavariable = regexp.MustCompile(`\b(SCENARIO|CAUSE|CODE|NAME)\b|\./`)
)

// A documented command stands in a document.
type documented struct {
	path, line string
	args       []string
	mentioned  bool // a flag stands there without its value
}

// documentedCommands returns the commands of all documents, each once, and fails the test for those that do not exist.
func documentedCommands(t *testing.T) (all []documented) {
	files, err := filepath.Glob("../../../docs/*.md")
	must(t, err)
	files = append(files, "../../../README.md", "../../../CONTRIBUTING.md", "../../../CHANGELOG.md")
	for _, path := range files {
		text := testkit.Read(t, path)
		var lines []string
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			for _, m := range inShell.FindAllStringSubmatch(block[1], -1) {
				lines = append(lines, m[1])
			}
		}
		for _, line := range lines {
			line, _, _ = strings.Cut(line, " > ")
			line = strings.TrimSpace(line)
			if slices.ContainsFunc(all, func(d documented) bool { return d.line == line }) {
				continue
			}
			args := strings.Fields(brackets.Replace(line))
			cmd, rest, err := Root(cli.Env{}).Find(args)
			if err != nil || !cmd.HasParent() && args[0] != "help" && args[0] != "completion" {
				t.Errorf("%s: kdiag %s: no such command", path, line)
				continue
			}
			err = cmd.ParseFlags(placed(rest))
			mentioned := err != nil && strings.Contains(err.Error(), "needs an argument")
			if err != nil && !mentioned {
				t.Errorf("%s: kdiag %s: %v", path, line, err)
			}
			all = append(all, documented{path, line, args, mentioned})
		}
	}
	if len(all) == 0 {
		t.Fatal("no commands in the documents")
	}
	return all
}

// needsNoNode reports whether a command can be run anywhere.
func (d documented) needsNoNode() bool {
	return d.args[0] == "explain" || d.args[0] != "agent" && slices.Contains(d.args, "--simulate") &&
		!slices.Contains(d.args, "-w") && !slices.Contains(d.args, "--watch") &&
		!slices.Contains(d.args, "--yes") // which removes 20,000 containers, for a minute
}

// TestDocuments has the commands of all documents accepted, with their flags, and runs those that need no node.
func TestDocuments(t *testing.T) {
	all := documentedCommands(t)
	t.Chdir(t.TempDir()) // kdiag bundle writes into the folder
	for _, d := range all {
		if !d.needsNoNode() || d.mentioned || metavariable.MatchString(d.line) {
			continue
		}
		inFakeTime(t, func(t *testing.T, kdiag func(args ...string) outcome) {
			if o := kdiag(d.args...); o.code == cli.ExitUnknown {
				t.Errorf("%s: kdiag %s: %s%s", d.path, d.line, o.stdout, o.stderr)
			}
		})
	}
}

var (
	heading = regexp.MustCompile(`(?m)^(#+) `)
	inCode  = regexp.MustCompile("`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// A skeleton is what a page and its translation have in common.
type skeleton struct{ Headings, Blocks, Code, Links []string }

// skeletonOf reads a page. A link to a translation counts as one to the page that it translates.
func skeletonOf(t *testing.T, name string) skeleton {
	raw := testkit.Read(t, name)
	s := skeleton{Blocks: fenced.FindAllString(raw, -1)}
	text := fenced.ReplaceAllString(raw, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		s.Headings = append(s.Headings, m[1])
	}
	s.Code = inCode.FindAllString(text, -1)
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		to := m[1]
		if page, _, _ := strings.Cut(to, "#"); page != "" && !strings.Contains(to, "://") {
			_, err := os.Stat(filepath.Join(filepath.Dir(name), page))
			must(t, err)
			to = strings.Replace(filepath.Join(filepath.Dir(name), to), "/zh-CN/", "/", 1)
		}
		s.Links = append(s.Links, to)
	}
	slices.Sort(s.Code)
	slices.Sort(s.Links)
	return s
}

// TestTranslations compares the Chinese pages with those that they translate: as many headings, the same blocks of
// commands, the same code in the text, the same links but one to the other language.
func TestTranslations(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/zh-CN/*.md")
	must(t, err)
	pairs := map[string]string{"../../../README.zh-CN.md": "../../../README.md"}
	for _, page := range pages {
		pairs[page] = strings.Replace(page, "/zh-CN/", "/", 1)
	}
	for page, of := range pairs {
		want, got := skeletonOf(t, of), skeletonOf(t, page)
		other := func(links []string) []string {
			return slices.DeleteFunc(links, func(to string) bool { return to == of || to == page })
		}
		want.Links, got.Links = other(want.Links), other(got.Links)
		testkit.Equal(t, page+" beside "+of, want, got)
	}
}

// placed gives values to metavariables that flags would refuse.
func placed(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if i > 0 && slices.Contains([]string{"DURATION", "N", "PID"}, strings.TrimRight(a, ".…")) {
			out[i] = "5"
		}
	}
	return out
}

// TestInstalledAdvisories has the file that is read without --advisories. None of these may be added, since that is for
// the whole process; the script advisories has files that are.
func TestInstalledAdvisories(t *testing.T) {
	const row = "- {id: x-1, component: runc, title: t, affected: [<1], causes: [A], symptom: s, fix: f, checked: 2020-01-02}"
	for _, c := range []struct{ text, warning string }{
		{row, ""},
		{"- {id: x, colour: red}", "unknown field"},
		{"- {id: x-1}", "x-1 is not complete: not used"},
	} {
		name := filepath.Join(t.TempDir(), "advisories.yaml")
		must(t, os.WriteFile(name, []byte(c.text), 0o600))
		var warnings strings.Builder
		cmd := &cobra.Command{}
		cmd.SetErr(&warnings)
		cli.AddAdvisories(cmd)
		err := addAdvisories(cmd, name)
		if _, added := advisories.Lookup("x-1"); err != nil || added || c.warning == "" && warnings.Len() > 0 ||
			!strings.Contains(warnings.String(), c.warning) {
			t.Errorf("%s: %v, %v, %s", c.text, err, added, &warnings)
		}
	}
}
