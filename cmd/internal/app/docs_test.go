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
	// metavariable is what stands for a name.
	metavariable = regexp.MustCompile(`\b(SCENARIO|CAUSE|CODE|NAME)\b|\./`)
	// notHere is what stands for a file, a node or an object, another node, and what this node's kubelet does not serve.
	notHere = regexp.MustCompile(`\b(NODE|FILE|ID|OLD|NEW|X)\b|worker-7|^stacks .*--kubelet`)
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
	apptest.Must(t, err)
	files = append(files, "../../../README.md", "../../../CONTRIBUTING.md", "../../../CHANGELOG.md")
	for _, path := range files {
		text, err := os.ReadFile(path)
		apptest.Must(t, err)
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
			line, _, _ = strings.Cut(line, " > ")
			line = strings.TrimSpace(line)
			if slices.ContainsFunc(all, func(d documented) bool { return d.line == line }) {
				continue
			}
			args := strings.Fields(brackets.Replace(line))
			cmd, rest, err := app.Root(cli.Env{}).Find(args)
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
		if o := apptest.Kdiag(t.Context(), d.args...); o.Code == cli.ExitUnknown {
			t.Errorf("%s: kdiag %s: %s%s", d.path, d.line, o.Stdout, o.Stderr)
		}
	}
}

// desk makes the files and mounts on a node that the documents speak of, by the names that they have there.
const desk = `set -e
mkdir -p /desk/var/log /desk/pods /dead-disk /host /var/lib/kdiag/captures
cd /desk
mount --bind / /mnt && mount --bind / /mnt/dead-disk && mount --rbind / /host
journalctl -o short-precise --no-pager >kubelet.log && gzip -k kubelet.log && mv kubelet.log.gz kubelet.log.2.gz
cp kubelet.log var/log/syslog
echo '{"apiVersion":"v1","kind":"PodList","items":[]}' >pods.json
timeout 10 kdiag agent --interval 1s --listen '' >/dev/null 2>&1 || true
name=20261123T140512Z-RuntimeHung.tar.zst
kdiag bundle --no-stacks node.tar.zst >/dev/null || test $? -eq 1
cp node.tar.zst wedge.tar.zst && cp node.tar.zst $name && cp node.tar.zst /var/lib/kdiag/captures/$name
kill -USR1 $(pidof containerd)
for i in $(seq 50); do test -s /tmp/containerd.*.stacks.log && break; sleep 0.2; done
cp /tmp/containerd.*.stacks.log containerd.txt && cp containerd.txt before.txt`

// elsewhere are commands that have no place on this node: they need a cluster, are its kubelet, run as a unit, or make
// a node of their own.
var elsewhere = []string{"fleet", "help", "completion", "version", "agent", "proxy", "syncloop", "reproduce"}

// TestEndToEndDocuments runs on a node the commands of the documents that need one, other than those without end for a
// few seconds only.
func TestEndToEndDocuments(t *testing.T) {
	n := apptest.BootNode(t)
	n.Sh(t, desk)
	ran := 0
	for _, d := range documentedCommands(t) {
		if slices.Contains(elsewhere, d.args[0]) || d.needsNoNode() || d.mentioned || notHere.MatchString(d.line) {
			continue
		}
		ran++
		got := n.Sh(t, "cd /desk; timeout -k 5 25 kdiag "+strings.Join(d.args, " ")+" <containerd.txt >/tmp/out 2>&1; c=$?; "+
			"case $c in 0 | 1 | 124) ;; *) echo exit code $c; tail -n 3 /tmp/out ;; esac")
		if got != "" {
			t.Errorf("%s: kdiag %s: %s", d.path, d.line, got)
		}
	}
	t.Logf("%d commands", ran)
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
