//go:build e2e

package wholenode

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

var (
	inText   = regexp.MustCompile("`(?:kubectl )?kdiag ([^`]+)`")
	inShell  = regexp.MustCompile(`(?m)(?:^|[|;&(]|sudo |/)[ \t]*kdiag ([^|;&()>#'·\n]+)`)
	fenced   = regexp.MustCompile("(?ms)^```\n(.*?)^```")
	brackets = strings.NewReplacer("[", " ", "]", " ", "--help", "")
	// notHere is what stands for a file, a node or an object, another node, and what this node's kubelet does not serve.
	notHere = regexp.MustCompile(`\b(NODE|FILE|ID|OLD|NEW|URL|X)\b|worker-7|^stacks .*--kubelet`)
)

// elsewhere are commands that need no node, or have no place on this one: they need a cluster, are its kubelet, run as
// a unit, or make a node of their own.
var elsewhere = []string{
	"agent", "completion", "explain", "fleet", "help", "mcp", "proxy", "reproduce", "syncloop", "version",
}

// documented returns the commands in the documents that can be run on a node, each once. Those that are not complete,
// such as a flag without its value, are not among them; TestDocuments of package app checks all.
func documented(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../../docs/*.md")
	e2etest.Must(t, err)
	for _, path := range append(files, "../../../README.md", "../../../CONTRIBUTING.md", "../../../CHANGELOG.md") {
		text := e2etest.Read(t, path)
		lines := inText.FindAllStringSubmatch(text, -1)
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			lines = append(lines, inShell.FindAllStringSubmatch(block[1], -1)...)
		}
		for _, m := range lines {
			line, _, _ := strings.Cut(m[1], " > ")
			args := strings.Fields(brackets.Replace(line))
			cmd, rest, err := app.Root(cli.Env{}).Find(args)
			if err != nil || slices.Contains(elsewhere, args[0]) || slices.Contains(args, "--simulate") ||
				notHere.MatchString(line) || cmd.ParseFlags(rest) != nil {
				continue
			}
			all = append(all, strings.Join(args, " "))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// desk makes the files and mounts on a node that the documents speak of, by the names that they have there.
const desk = `set -e
mkdir -p /desk/var/log /desk/pods /dead-disk /host /var/lib/kdiag/captures
cd /desk
mount --bind --make-private / /mnt && mount --bind --make-private / /mnt/dead-disk
mount --rbind --make-rprivate / /host
journalctl -o short-precise --no-pager >kubelet.log && gzip -k kubelet.log && mv kubelet.log.gz kubelet.log.2.gz
cp kubelet.log var/log/syslog
echo '{"apiVersion":"v1","kind":"PodList","items":[]}' >pods.json
kdiag agent --interval 1s --listen '' >/dev/null 2>&1 &
until kdiag history >/dev/null 2>&1 || test $? -eq 1; do sleep 0.1; done
kill $! && wait $! || true
name=20261123T140512Z-RuntimeHung.tar.zst
kdiag bundle --no-stacks node.tar.zst >/dev/null || test $? -eq 1
cp node.tar.zst wedge.tar.zst && cp node.tar.zst $name && cp node.tar.zst /var/lib/kdiag/captures/$name
kill -USR1 $(pidof containerd)
until test -s /tmp/containerd.*.stacks.log; do sleep 0.1; done
cp /tmp/containerd.*.stacks.log containerd.txt && cp containerd.txt before.txt`

// clear takes away what desk and the commands made.
const clear = `umount -l /host && umount /mnt/dead-disk /mnt && rm -r /desk /dead-disk /host /var/lib/kdiag`

// runEach runs its arguments as commands of kdiag, four at a time, and those without end for some seconds only. Only
// one may remove at a time. It names those that the documents have wrong.
const runEach = `cd /desk
printf '%s\n' "$@" | xargs -d '\n' -n 1 -P 4 sh -c '
out=$(mktemp)
case $1 in gc-exited*) exec 9>/desk/removing && flock 9 ;; esac
timeout -k 5 15 sh -c "kdiag $1" <containerd.txt >$out 2>&1
code=$?
case $code in 0 | 1 | 124) ;; *) echo "kdiag $1: exit code $code: $(tail -n 3 $out)" ;; esac
rm $out' sh`

// documents runs the commands of the documents that need a node.
func documents(t *testing.T, n e2etest.Node) {
	n.Sh(t, desk)
	defer n.Sh(t, clear)
	all := documented(t)
	if len(all) == 0 {
		t.Fatal("no commands in the documents")
	}
	t.Logf("%d commands: %q", len(all), all)
	out, err := n.Box.Exec(t.Context(), append([]string{"sh", "-c", runEach, "sh"}, all...)...)
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
