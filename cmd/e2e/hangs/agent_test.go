//go:build e2e

package hangs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// looks is how often the agent looks at a node of which almost everything hangs.
const looks = 40

// TestEndToEndAgentOnHungPaths has an agent look again and again while the folders that it reads hang and the file
// system of its records is frozen. It must stay alive, and take no more threads the longer it runs.
func TestEndToEndAgentOnHungPaths(t *testing.T) {
	c := node(t)
	hang(t, c.Dir()+"/cni/net.d", "/var/lib/kubelet", "/etc/kubernetes", "/var/log")
	data := frozen(t) // until before no child may be left
	address := fmt.Sprintf("127.0.0.1:%d", e2etest.FreePort(t))
	agent := e2etest.Start(t, nil, "agent", "--interval", "1s", "--data-dir", data, "--listen", address,
		"--runtime-endpoint", c.Endpoint())
	t.Cleanup(func() { _ = agent.Process.Kill() }) // it ends when nothing hangs any more
	get := func(path string) string {
		code, body, _ := e2etest.Get(t.Context(), "http://"+address+path, "")
		return strconv.Itoa(code) + " " + body
	}
	var last checks.Report
	look := func(n int) {
		t.Helper()
		for range n {
			seen := last.GeneratedAt
			e2etest.Eventually(t, "another look", func() bool {
				_, body, _ := strings.Cut(get("/report"), " ")
				return json.Unmarshal([]byte(body), &last) == nil && last.GeneratedAt.After(seen)
			})
			if got := get("/healthz"); got != "200 ok\n" {
				t.Errorf("/healthz is %q", got)
			}
		}
	}
	threads := func() int {
		p, err := procfs.NewProc(agent.Process.Pid)
		e2etest.Must(t, err)
		stat, err := p.Stat()
		e2etest.Must(t, err)
		return stat.NumThreads
	}
	look(looks / 2)
	first := threads()
	look(looks / 2)
	if n := threads(); n > first+looks/8 {
		t.Errorf("%d threads after %d looks, %d after %d", first, looks/2, n, looks)
	}
	if !slices.Contains(e2etest.Codes(&last), "FilesystemHung") {
		t.Errorf("the causes are %v, without FilesystemHung", e2etest.Codes(&last))
	}
}

// frozen returns a folder on a file system that takes no writes until the end of the test.
func frozen(t *testing.T) string {
	t.Helper()
	image, point := filepath.Join(t.TempDir(), "image"), t.TempDir()
	e2etest.Sh(t, "truncate -s 64M "+image+" && mkfs.ext4 -q "+image+" && mount -o loop "+image+" "+point)
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	e2etest.Must(t, os.Mkdir(point+"/data", 0o700))
	e2etest.Sh(t, "fsfreeze -f "+point)
	t.Cleanup(func() { _ = exec.Command("fsfreeze", "-u", point).Run() })
	return point + "/data"
}
