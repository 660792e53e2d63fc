//go:build e2e

package faults

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// listenEnv makes the test binary a plugin that listens on the sockets which it names, separated by commas. It greets
// those who connect, and does nothing else.
const listenEnv = "KDIAG_TEST_LISTEN"

func servePlugins(paths string) {
	for path := range strings.SplitSeq(paths, ",") {
		lis, err := net.Listen("unix", path)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					panic(err)
				}
				_, _ = conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // no settings
			}
		}()
	}
	os.Stdout.WriteString("up\n")
	select {}
}

// TestEndToEndPlugins has plugins of containerd and of the kubelet that are stopped, that serve, and that are gone.
func TestEndToEndPlugins(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	snapshotter := r.Dir() + "/acme.sock"
	const gpu = "/var/lib/kubelet/device-plugins/gpu.sock"
	r.CheckControls(t, []fault{
		{Name: "they serve", Make: r.plugins(snapshotter, true, snapshotter, gpu)},
		{Name: "files of some that are gone, which nothing names", Make: r.leftSockets(gpu)},
		{Name: "one that is gone, which nothing uses", Make: r.plugins(snapshotter, false)},
	})
	r.CheckFile(t, "plugins.yaml", map[string]e2etest.Maker{
		"a stopped snapshotter":                r.stopped(r.plugins(snapshotter, true, snapshotter)),
		"a stopped snapshotter of some images": r.stopped(r.plugins(snapshotter, false, snapshotter)),
		"a snapshotter that is gone":           r.plugins(snapshotter, true),
		"a stopped device plugin":              r.stopped(r.plugins("", false, gpu)),
	})
}

// plugins configures a snapshotter, unless its path is empty, that all pods or none use, and starts a process that
// serves some sockets. It is the culprit.
func (r rig) plugins(snapshotter string, all bool, serves ...string) e2etest.Maker {
	return func(t *testing.T, at *place) {
		if len(serves) > 0 {
			for _, path := range serves {
				e2etest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				t.Cleanup(func() { _ = os.Remove(path) })
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), listenEnv+"="+strings.Join(serves, ","))
			e2etest.StartUntilUp(t, cmd)
			at.Culprit = strconv.Itoa(cmd.Process.Pid)
		}
		if snapshotter == "" {
			return
		}
		end := "[proxy_plugins.acme]\n  type = \"snapshot\"\n  address = " + strconv.Quote(snapshotter) + "\n"
		if all {
			end += "[plugins." + strconv.Quote(nodebox.PluginCRI) + ".containerd]\n  snapshotter = \"acme\"\n"
		}
		r.configure(t, "", end)
		e2etest.Must(t, r.Restart(t.Context()))
	}
}

// stopped stops the culprit of another fault.
func (r rig) stopped(make e2etest.Maker) e2etest.Maker {
	return func(t *testing.T, at *place) {
		make(t, at)
		pid, err := strconv.Atoi(at.Culprit)
		e2etest.Must(t, err)
		e2etest.Must(t, unix.Kill(pid, unix.SIGSTOP))
		e2etest.Eventually(t, "it has stopped", func() bool { return e2etest.ThreadHas(pid, "stat", ") T ") })
	}
}

// leftSockets makes the file of a socket that nobody serves.
func (r rig) leftSockets(path string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		e2etest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		e2etest.Must(t, err)
		lis.SetUnlinkOnClose(false)
		e2etest.Must(t, lis.Close())
		t.Cleanup(func() { e2etest.Must(t, os.Remove(path)) })
	}
}
