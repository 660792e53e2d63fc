//go:build e2e

package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// TestEndToEndAgentMemory runs the agent with the memory that the DaemonSet gives it, on the nodes that take most: it
// makes its archive, and goes on. The logs grow by 5,000 lines a second. The pages of its program count, too.
func TestEndToEndAgentMemory(t *testing.T) {
	manifest := e2etest.Read(t, "../../../deploy/kubernetes/daemonset.yaml")
	most := regexp.MustCompile(`limits:\n(?:.*\n)*?\s+memory: (\d+M)i\n`).FindStringSubmatch(manifest)
	for scenario, cause := range map[string]string{"exited-flood": "TooManyExited", "list-too-large": "ListTooLarge"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			dir, group := t.TempDir(), e2etest.MakeCgroup(t, "memory", "kdiag-agent-"+scenario)
			e2etest.Must(t, os.WriteFile(group+"/memory.limit_in_bytes", []byte(most[1]), 0o644))
			e2etest.Must(t, os.Mkdir(dir+"/log", 0o755))
			flood(t, dir+"/log/syslog")
			socket := filepath.Join(dir, "cri.sock")
			e2etest.Start(t, nil, "runtime", "serve", "--simulate", scenario, "--listen", socket)
			e2etest.Eventually(t, "the runtime", func() bool {
				_, err := os.Stat(socket)
				return err == nil
			})
			args := append(e2etest.InMounts("echo $$ >"+group+"/cgroup.procs && mount --bind "+dir+"/log /var/log && cp "+
				e2etest.Program(t)+" "+dir+"/kdiag"), dir+"/kdiag", "agent", "-r", socket, "--data-dir", dir+"/data",
				"--listen", "", "--textfile-dir", dir)
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			var log strings.Builder
			cmd.Stderr = &log
			e2etest.Must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			looks := map[string]bool{} // by their time, since the archive is there
			e2etest.Eventually(t, "an archive and three more looks", func() bool {
				select {
				case err := <-ended:
					t.Fatalf("the agent ended: %v\n%s", err, log.String())
				default:
				}
				if archives, _ := filepath.Glob(dir + "/data/captures/*-" + cause + ".tar.zst"); len(archives) > 0 {
					metrics, _ := os.ReadFile(dir + "/kdiag.prom")
					looks[regexp.MustCompile(`(?m)^kdiag_last_run.*`).FindString(string(metrics))] = true
				}
				return len(looks) > 3
			})
			t.Logf("at most %s", e2etest.Read(t, group+"/memory.max_usage_in_bytes"))
			e2etest.Must(t, cmd.Process.Signal(os.Interrupt))
			e2etest.Must(t, <-ended)
		})
	}
}

// flood writes a minute of a log, and goes on until the test ends.
func flood(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	e2etest.Must(t, err)
	const perSecond = 5000
	write := func(lines int) {
		var text strings.Builder
		for i := range lines {
			now := time.Now().UTC()
			_, _ = fmt.Fprintf(&text, "%s node kubelet[8]: E%s 8 pod_workers.go:1301] \"Error syncing pod, skipping\" "+
				"err=\"failed to \\\"StartContainer\\\" for \\\"app-%d\\\" with CrashLoopBackOff\" pod=\"shop/web-%d\"\n",
				now.Format(time.Stamp), now.Format("0102 15:04:05.000000"), i, i)
		}
		_, err := f.WriteString(text.String())
		e2etest.Must(t, err)
	}
	write(60 * perSecond)
	e2etest.Behind(t, func(ctx context.Context) {
		for tick := time.NewTicker(time.Second / 50); ctx.Err() == nil; <-tick.C {
			write(perSecond / 50)
		}
		e2etest.Must(t, f.Close())
	})
}
