//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// A rig is a private containerd with methods that break it. Each undoes what it did when the test ends.
type rig struct{ *e2etest.Rig }

// TestEndToEndDaemonFaults breaks a containerd as a whole.
func TestEndToEndDaemonFaults(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	r.CheckFile(t, "daemon.yaml", map[string]e2etest.Maker{
		"nothing":                                      e2etest.Nothing,
		"kdiag is not root":                            r.asNobody,
		"restarted four times":                         r.restart,
		"no network configuration":                     r.noNetwork,
		"two daemons in one folder":                    r.rival(false),
		"no processes are left":                        r.processesAtLimit("/" + filepath.Base(r.Dir()) + "/daemon"),
		"stopped by a signal":                          r.pause,
		"opens wait for a listener":                    r.watchRoot(),
		"the OCI runtime waits for a stopped listener": r.watchRuntime,
		"kdiag's children wait for a listener":         r.watchKdiag,
		"not running":                                  r.stop,
		"a socket that nobody serves": func(t *testing.T, at *place) {
			r.stop(t, at)
			r.leftSockets(r.Socket())(t, at)
		},
		"the CRI plugin is disabled": func(t *testing.T, _ *place) {
			r.configure(t, "disabled_plugins = ["+strconv.Quote(nodebox.PluginCRI)+"]\n", "")
			_ = r.Restart(t.Context()) // it does not answer as one that is well
		},
		"another process has the database": r.lockDatabase,
		"a stopped shim holds the start":   r.stoppedShim,
		"two daemons on one socket":        r.rival(true),
	})
}

func (r rig) asNobody(t *testing.T, at *place) {
	e2etest.Must(t, os.Chmod(r.Dir(), 0o755))
	e2etest.Must(t, os.Chmod(r.Socket(), 0o600))
	t.Cleanup(func() { e2etest.Must(t, os.Chmod(r.Socket(), 0o660)) })
	at.Inside = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"}
}

func (r rig) restart(t *testing.T, _ *place) {
	for range 4 {
		e2etest.Must(t, r.Restart(t.Context()))
	}
}

func (r rig) noNetwork(t *testing.T, at *place) {
	dir := filepath.Join(r.Dir(), "cni/net.d")
	t.Cleanup(func() { e2etest.Must(t, r.Restart(context.Background())) })
	r.Shell("mv "+dir+" "+dir+".away; mkdir "+dir, "rmdir "+dir+"; mv "+dir+".away "+dir)(t, at)
	e2etest.Must(t, r.Restart(t.Context()))
}

// rival starts a second daemon with the same folder, or, with another one, on the same socket.
func (r rig) rival(socket bool) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		dir, config := t.TempDir(), e2etest.Read(t, filepath.Join(r.Dir(), "config.toml"))
		if socket {
			t.Cleanup(func() { e2etest.Must(t, r.Restart(context.Background())) })
			config = strings.NewReplacer(r.Dir()+"/root", dir+"/root", r.Dir()+"/state", dir+"/state").Replace(config)
		}
		file := filepath.Join(dir, "config.toml")
		e2etest.Must(t, os.WriteFile(file, []byte(config), 0o600))
		cmd := exec.Command("containerd", "--config", file)
		e2etest.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		e2etest.Eventually(t, "it has its database or its socket", func() bool {
			if socket {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return crictl.Probe(ctx, r.Endpoint()).PeerPID == cmd.Process.Pid
			}
			links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
			return slices.ContainsFunc(links, func(name string) bool {
				target, _ := os.Readlink(name)
				return strings.HasSuffix(target, "/meta.db")
			})
		})
	}
}

// processesAtLimit gives the daemon a control group that others have all but filled. The last threads are left to it:
// it ends when it needs one more and gets none.
func (r rig) processesAtLimit(group string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		dir := e2etest.MakeCgroup(t, "pids", group)
		e2etest.Enter(t, dir, r.PID())
		e2etest.Crowd(t, dir, 180)
		// The sleepers, the shell and the daemon's own threads are over nine tenths of it.
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte("205"), 0))
	}
}

func (r rig) pause(t *testing.T, at *place) {
	e2etest.Must(t, r.Pause(t.Context()))
	t.Cleanup(func() { e2etest.Must(t, r.Resume()) })
	at.Culprit = strconv.Itoa(r.PID())
}

func (r rig) stop(t *testing.T, _ *place) {
	e2etest.Must(t, r.Stop(t.Context()))
	t.Cleanup(func() { e2etest.Must(t, r.Restart(context.Background())) })
}

// lockDatabase starts the daemon while this process has the lock of its database.
func (r rig) lockDatabase(t *testing.T, at *place) {
	e2etest.Must(t, r.Stop(t.Context()))
	db, err := os.OpenFile(filepath.Join(r.Dir(), "root/io.containerd.metadata.v1.bolt/meta.db"), os.O_RDWR, 0)
	e2etest.Must(t, err)
	e2etest.Must(t, unix.Flock(int(db.Fd()), unix.LOCK_EX))
	r.startsInVain(t, db.Close)
	at.Culprit = strconv.Itoa(os.Getpid())
}

// stoppedShim starts the daemon while the shim of a pod is stopped. It waits for a shim as long as the newest ones do.
func (r rig) stoppedShim(t *testing.T, at *place) {
	r.configure(t, "", "[timeouts]\n  \"io.containerd.timeout.shim.load\" = \"1h\"\n")
	e2etest.Must(t, r.Stop(t.Context()))
	e2etest.Must(t, r.FreezeShim(t.Context(), r.Pods[1].ID))
	r.startsInVain(t, func() error { return r.ThawShim(r.Pods[1].ID) })
	at.Culprit = r.SecondShim(t)
}

// startsInVain starts the daemon, which waits for something until the test ends.
func (r rig) startsInVain(t *testing.T, end func() error) {
	started := make(chan error, 1)
	go func() { started <- r.Restart(context.Background()) }()
	t.Cleanup(func() {
		e2etest.Must(t, end())
		e2etest.Must(t, <-started)
	})
	await(t, 1, 2*time.Second, r.Dir()+"/config.toml")
}

// configure adds something to the daemon's configuration, at the level of the file and at its end, until the test ends.
// The daemon has it when it is restarted.
func (r rig) configure(t *testing.T, top, end string) {
	t.Helper()
	name := filepath.Join(r.Dir(), "config.toml")
	text := e2etest.Read(t, name)
	t.Cleanup(func() {
		e2etest.Must(t, os.WriteFile(name, []byte(text), 0o644))
		e2etest.Must(t, r.Restart(context.Background()))
	})
	e2etest.Must(t, os.WriteFile(name, []byte(top+text+end), 0o644))
}

// await waits until so many processes with such arguments have run for so long.
func await(t *testing.T, least int, age time.Duration, words ...string) {
	t.Helper()
	e2etest.Eventually(t, fmt.Sprintf("%d %q have run for %s", least, words, age), func() bool {
		procs, err := procfs.AllProcs()
		e2etest.Must(t, err)
		n := 0
		for _, p := range procs {
			args, _ := p.CmdLine()
			line := strings.Join(args, " ")
			missing := func(word string) bool { return !strings.Contains(line, word) }
			stat, err := p.Stat()
			if err != nil || slices.ContainsFunc(words, missing) { // it may have ended
				continue
			}
			started, err := stat.StartTime()
			e2etest.Must(t, err)
			if time.Since(time.Unix(int64(started), 0)) > age+time.Second {
				n++
			}
		}
		return n >= least
	})
}
