package app_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
)

// notHere is what stands for a file, a node or an object, another node, and what this node's kubelet does not serve.
var notHere = regexp.MustCompile(`\b(NODE|FILE|ID|OLD|NEW|X)\b|worker-7|^stacks .*--kubelet`)

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
