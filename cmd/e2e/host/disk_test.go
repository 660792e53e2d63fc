//go:build e2e

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// A disk is what a rig has its folder on.
type disk struct {
	rig
	point, device string
}

// TestEndToEndDisk has the runtime's folder on a disk that is slow, and then takes no write at all.
func TestEndToEndDisk(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "kdiag-") // a socket's path is short
	e2etest.Must(t, err)
	t.Cleanup(func() { e2etest.Must(t, os.RemoveAll(dir)) })
	point := filepath.Join(dir, "disk")
	e2etest.Must(t, os.Mkdir(point, 0o755))
	image := point + ".image"
	e2etest.Sh(t, "truncate -s 128M "+image+" && mkfs.ext4 -q "+image+" && mount -o loop "+image+" "+point)
	// A child that was killed holds its file open for a moment after it can be seen no more.
	t.Cleanup(func() { e2etest.Eventually(t, "unmounted", func() bool { return unix.Unmount(point, 0) == nil }) })
	d := disk{startRig(t, nodebox.Options{Parent: point}), point, e2etest.Sh(t, "mountpoint -d "+point)}
	d.CheckFile(t, "disk.yaml", map[string]e2etest.Maker{
		"slow for kdiag": d.slowHere,
		"throttled by the daemon's control group": d.throttleWrites("/" + filepath.Base(d.Dir()) + "/slow"),
		"frozen":                          d.freeze,
		"frozen while the kubelet writes": d.freezeKubelet,
	}, "${POINT}", point)
}

// slowHere has kdiag in a control group that writes hardly anything.
func (d disk) slowHere(t *testing.T, at *place) {
	group := e2etest.MakeCgroup(t, "blkio", "/"+filepath.Base(d.Folder))
	d.throttle(t, group)
	at.Inside = []string{"/bin/sh", "-c", "echo $$ > " + group + `/cgroup.procs; exec "$@"`, "sh"}
}

func (d disk) throttle(t *testing.T, group string) {
	t.Helper()
	e2etest.Must(t, os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), []byte(d.device+" 4"), 0))
}

// throttleWrites lets the daemon alone write hardly anything. What kdiag writes is quick.
func (d disk) throttleWrites(group string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		dir := e2etest.MakeCgroup(t, "blkio", group)
		d.throttle(t, dir)
		e2etest.Enter(t, dir, d.PID())
	}
}

func (d disk) freeze(t *testing.T, _ *place) {
	e2etest.Sh(t, "fsfreeze -f "+d.point)
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", d.point).Run() // it may be thawed
		e2etest.Eventually(t, "no child of kdiag's is left", func() bool { return e2etest.ProbesIn(d.point) == 0 })
	})
}

// freezeKubelet has a process with a kubelet's name write to its folder.
func (d disk) freezeKubelet(t *testing.T, at *place) {
	folder := d.point + "/kubelet"
	e2etest.Must(t, os.MkdirAll(folder, 0o755))
	cmd, stdin := e2etest.StartKubelet(t, "echo >"+folder+"/state", "--root-dir="+folder)
	d.freeze(t, at)
	_, err := stdin.Write([]byte("\n"))
	e2etest.Must(t, err)
	e2etest.Eventually(t, "it writes", func() bool { return e2etest.ThreadHas(cmd.Process.Pid, "stat", ") D ") })
}

// TestEndToEndFull takes the last byte, the last inode and the permission to write from the runtime's root folder.
func TestEndToEndFull(t *testing.T) {
	r := startRig(t, nodebox.Options{RootSize: 64 << 20})
	r.CheckFile(t, "full.yaml", map[string]e2etest.Maker{
		"no write is allowed": func(_ *testing.T, at *place) {
			// Only kdiag sees it: the daemon's own files are open for writing.
			at.Inside = e2etest.InMounts("mount -o remount,bind,ro " + r.Dir() + "/root")
		},
	})
}
