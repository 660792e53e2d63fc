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

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// A rig is a private containerd with methods that break it. Each undoes what it did when the test ends.
type rig struct{ *e2etest.Rig }

// TestEndToEndDaemonFaults breaks a containerd as a whole.
func TestEndToEndDaemonFaults(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	hung := []string{"--rpc-timeout", "2s"}
	lab := "/" + filepath.Base(r.Dir()) + "/lab"
	full := "/" + filepath.Base(r.Dir()) + "/daemon"
	plugins := r.Dir() + "/cni/bin"
	r.Check(t, []fault{
		{Name: "nothing", Make: e2etest.Nothing, Want: want{Results: healthy(), Only: "node"}},
		{Name: "kdiag is not root", Make: r.asNobody, Want: want{Unknown: true, Problems: []string{"run with sudo"}}},
		{Name: "restarted four times", Make: r.restart, Want: want{}},
		{Name: "no network configuration", Make: r.noNetwork, Want: want{
			Codes: []string{"NetworkNotReady"}, Severity: checks.Critical,
			Steps: []string{"ls -l " + r.Dir() + "/cni/net.d"},
		}},
		{Name: "the bridge plugin is missing", Make: r.away(plugins + "/bridge"), Want: missing(plugins, "bridge")},
		{
			Name: "the loopback plugin is missing", Make: r.away(plugins + "/loopback"),
			Want: missing(plugins, "loopback"),
		},
		{Name: "the OCI runtime is missing", Make: r.away(r.Folder + "/fastrun"), Want: want{
			Codes: []string{"RuntimeNotReady"}, Severity: checks.Critical, Lines: []string{"is missing"},
			Steps: []string{"/usr/bin/runc"},
		}},
		{Name: "the root folder is moved away", Make: r.away(r.Dir() + "/root"), Want: movedAway},
		{Name: "the state folder is moved away", Make: r.away(r.Dir() + "/state"), Want: movedAway},
		{Name: "two daemons in one folder", Make: r.rival(false), Want: want{
			Codes: []string{"RuntimeNotReady"}, Severity: checks.Warning, Steps: []string{"ps -o pid,ppid,lstart,args"},
		}},
		{Name: "no files are left", Make: r.Shell("prlimit --pid $pid --nofile=$(ls /proc/$pid/fd | wc -l):",
			"prlimit --pid $pid --nofile=20000:"), Want: want{
			Codes: []string{"FilesExhausted"}, Among: true, Severity: checks.Critical, Culprits: []string{"CULPRIT"},
			Steps:  []string{"ls -l /proc/CULPRIT/fd"},
			Repair: []string{"prlimit --pid CULPRIT --nofile="}, Flags: hung,
		}},
		{Name: "no processes are left", Make: r.processesAtLimit(full), Want: want{
			Codes: []string{"PIDsExhausted"}, Severity: checks.Critical, Culprits: []string{full},
			Steps:  []string{"grep . '/sys/fs/cgroup/pids" + full},
			Repair: []string{"echo max > '/sys/fs/cgroup/pids" + full + "/pids.max'"},
		}},
		{Name: "frozen in a group that is no unit", Make: r.freeze("$pid", lab), Want: want{
			Codes: []string{"CgroupFrozen", "RuntimeHung"}, Severity: checks.Critical, Culprits: []string{lab},
			Steps:  []string{"cat '/sys/fs/cgroup/freezer" + lab},
			Repair: []string{"echo THAWED > '/sys/fs/cgroup/freezer" + lab + "/freezer.state'"}, Flags: hung,
		}},
		{Name: "stopped by a signal", Make: r.pause, Want: want{
			Codes: []string{"RuntimeHung"}, Severity: checks.Critical, Culprits: []string{"CULPRIT"}, Flags: hung,
			Steps: []string{"kill -CONT CULPRIT"}, Repair: []string{"kill -CONT CULPRIT"},
			Stacks: []string{
				`goroutine dump: containerd \(pid CULPRIT\) is stopped`, `threads of it in state T.*do_signal_stop`,
			},
		}},
		{Name: "opens wait for a listener", Make: r.watchRoot(), Want: want{
			Codes: []string{"OpensIntercepted"}, Among: true, Severity: checks.Critical, Culprits: []string{"CULPRIT"},
			Lines: []string{`^critical .* containerd \(pid \d+\).* waits for exe \(pid CULPRIT\) to permit`},
			Steps: []string{"fdinfo", "kill -KILL CULPRIT"}, Repair: []string{"kill -KILL CULPRIT"},
		}},
		{Name: "the OCI runtime waits for a stopped listener", Make: r.watchRuntime, Want: want{
			Codes: []string{"OpensIntercepted"}, Among: true, Severity: checks.Critical, Culprits: []string{"CULPRIT"},
			Lines: []string{`waits for exe \(pid CULPRIT\), which is stopped,`, "PLEG is fine, but containers cannot start"},
			Steps: []string{"fdinfo", "kill -CONT CULPRIT"}, Repair: []string{"kill -KILL CULPRIT"},
		}},
		{Name: "kdiag's children wait for a listener", Make: r.watchKdiag, Want: want{
			Results: []string{"host.writes unknown .*(the child ended early|no answer in time)"}, Only: "node",
		}},
		{Name: "not running", Make: r.stop, Want: want{
			Codes: []string{"RuntimeDown"}, Severity: checks.Critical, Steps: []string{"kdiag pleg", "ss -xlp"},
		}},
		{Name: "a socket that nobody serves", Make: func(t *testing.T, at *place) {
			r.stop(t, at)
			r.leftSockets(r.Socket())(t, at)
		}, Want: want{
			Codes: []string{"RuntimeDown"}, Severity: checks.Critical, Lines: []string{"connecting to it is refused"},
			Steps: []string{"ss -xlp", "ls -l " + r.Socket()},
		}},
		{Name: "the CRI plugin is disabled", Make: func(t *testing.T, _ *place) {
			r.configure(t, "disabled_plugins = ["+strconv.Quote(nodebox.PluginCRI)+"]\n", "")
			_ = r.Restart(t.Context()) // it does not answer as one that is well
		}, Want: want{Codes: []string{"RuntimeUnsupported"}, Only: "pleg"}},
		{Name: "another process has the database", Make: r.lockDatabase, Want: want{
			Codes: []string{"RuntimeDown"}, Severity: checks.Critical, Only: "pleg", Culprits: []string{"CULPRIT"},
			Lines: []string{`the start of containerd \(pid \d+\) waits for \S+ \(pid CULPRIT\)`},
			Steps: []string{"ps -o pid,ppid,stat,lstart,comm -p CULPRIT"}, Stacks: []string{
				`goroutine \d+ of containerd waits for the lock of the database .*/meta.db: \S+ \(pid CULPRIT\)`,
			},
		}},
		{Name: "a stopped shim holds the start", Make: r.stoppedShim, Want: want{
			Codes: []string{"ShimStuck", "RuntimeDown"}, Severity: checks.Critical, Culprits: []string{"CULPRIT"},
			Lines: []string{`containerd-shim \(pid CULPRIT\).* is stopped`},
			Steps: []string{"State|TracerPid' /proc/CULPRIT/", "kill -CONT CULPRIT"}, Repair: []string{"kill -CONT CULPRIT"},
		}},
		{Name: "two daemons on one socket", Make: r.rival(true), Want: want{ // the last: it takes the socket with it
			Codes: []string{"RuntimeNotReady"}, Severity: checks.Critical,
			Steps: []string{"ps -o pid,ppid,lstart,args"},
		}},
	})
}

// healthy are the results of a node on which nothing is broken.
func healthy() (results []string) {
	for _, id := range []string{"connect", "version", "status", "network", "lists", "inspect"} {
		results = append(results, "runtime."+id+" ok ")
	}
	for _, id := range []string{"memory", "clock", "mounts", "writes", "tasks", "cgroups"} {
		results = append(results, "host."+id+" (ok|warning|critical|skipped)")
	}
	return results
}

// missing is what is wanted where a CNI plugin is missing.
func missing(dir, plugin string) want {
	return want{
		Codes: []string{"NetworkNotReady"}, Severity: checks.Critical, Culprits: []string{dir},
		Lines: []string{"^critical .*" + plugin, "^PLEG is fine"}, Steps: []string{dir},
	}
}

var movedAway = want{
	Codes: []string{"RuntimeNotReady"}, Severity: checks.Critical, Culprits: []string{"CULPRIT"},
	Steps: []string{"ls -l /proc/CULPRIT/fd"},
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

// away moves away a file or a folder.
func (r rig) away(name string) e2etest.Maker {
	return r.Shell("mv "+name+" "+name+".away", "mv "+name+".away "+name)
}

// freeze freezes a process in a group of its own.
func (r rig) freeze(pid, group string) e2etest.Maker {
	const top = "/sys/fs/cgroup/freezer"
	dir := top + group
	return r.Shell("mkdir "+dir+"; echo "+pid+" >"+dir+"/cgroup.procs; echo FROZEN >"+dir+"/freezer.state",
		"echo THAWED >"+dir+"/freezer.state; echo "+pid+" >"+top+"/cgroup.procs; rmdir "+dir)
}

// rival starts a second daemon with the same folder, or, with another one, on the same socket.
func (r rig) rival(socket bool) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		text := e2etest.Read(t, filepath.Join(r.Dir(), "config.toml"))
		dir := t.TempDir()
		config := string(text)
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
		e2etest.Must(t, os.WriteFile(name, text, 0o644))
		e2etest.Must(t, r.Restart(context.Background()))
	})
	e2etest.Must(t, os.WriteFile(name, []byte(top+string(text)+end), 0o644))
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
