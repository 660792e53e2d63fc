package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

var (
	inText   = regexp.MustCompile("`(?:kubectl )?kdiag ([^`]+)`")
	inShell  = regexp.MustCompile(`(?m)(?:^|[|;&(]|sudo |/)[ \t]*kdiag ([^|;&()>#'·\n]+)`)
	fenced   = regexp.MustCompile("(?ms)^```\n(.*?)^```")
	brackets = strings.NewReplacer("[", " ", "]", " ", "--help", "")
	// placeholder is what stands for a name.
	placeholder = regexp.MustCompile(`\b(SCENARIO|CAUSE|CODE|NAME)\b|\./`)
)

// TestDocuments has the commands of all documents accepted, with their flags, and runs those that need no node.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../../../docs/*.md")
	apptest.Must(t, err)
	files = append(files, "../../../README.md", "../../../CONTRIBUTING.md", "../../../CHANGELOG.md")
	var texts [][]byte
	for _, path := range files {
		text, err := os.ReadFile(path)
		apptest.Must(t, err)
		texts = append(texts, text)
	}
	t.Chdir(t.TempDir()) // kdiag bundle writes into the folder
	ran := map[string]bool{}
	for i, path := range files {
		text := texts[i]
		var lines []string
		for _, m := range inText.FindAllSubmatch(text, -1) {
			lines = append(lines, string(m[1]))
		}
		for _, block := range fenced.FindAllSubmatch(text, -1) {
			for _, m := range inShell.FindAllSubmatch(block[1], -1) {
				lines = append(lines, string(m[1]))
			}
		}
		for _, line := range lines {
			args := strings.Fields(brackets.Replace(line))
			cmd, rest, err := app.Root(cli.Env{}).Find(args)
			if err != nil || !cmd.HasParent() && args[0] != "help" && args[0] != "completion" {
				t.Errorf("%s: kdiag %s: no such command", path, line)
				continue
			}
			// A flag that is only mentioned has no value.
			if err := cmd.ParseFlags(placed(rest)); err != nil && !strings.Contains(err.Error(), "needs an argument") {
				t.Errorf("%s: kdiag %s: %v", path, line, err)
			}
			needsNoNode := args[0] == "explain" || args[0] != "agent" && slices.Contains(args, "--simulate") &&
				!slices.Contains(args, "-w") && !slices.Contains(args, "--watch") &&
				!slices.Contains(args, "--yes") // which removes 20,000 containers, for a minute
			if !needsNoNode || ran[line] || placeholder.MatchString(line) {
				continue
			}
			ran[line] = true
			if o := apptest.Kdiag(t.Context(), args...); o.Code == cli.ExitUnknown {
				t.Errorf("%s: kdiag %s: %s%s", path, line, o.Stdout, o.Stderr)
			}
		}
	}
	if len(ran) == 0 {
		t.Error("no command was run")
	}
}

// placed gives values to placeholders that flags would refuse.
func placed(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if i > 0 && slices.Contains([]string{"DURATION", "N", "PID"}, strings.TrimRight(a, ".…")) {
			out[i] = "5"
		}
	}
	return out
}
