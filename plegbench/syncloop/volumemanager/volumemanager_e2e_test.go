//go:build e2e

package volumemanager

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// TestEndToEndVolumes makes a volume of each kind with the kernel's mounts, and has something of the host mounted
// inside of one while the pod's folder is to be removed.
func TestEndToEndVolumes(t *testing.T) {
	h := newHarness(t)
	h.Manager.mounts = kernel{}
	pod := newPod(allKinds(t, t.TempDir())...)
	h.mount(t, pod)
	mounts := h.Mounts(pod.UID)
	inside, precious := filepath.Join(mounts["disk"].HostPath, "inside"), t.TempDir()
	t.Cleanup(func() { // a failure may leave mounts
		left, err := kernel{}.below(h.cfg.RootDir)
		if err != nil || len(left) > 0 {
			t.Errorf("left are mounts %v, %v", left, err)
		}
		for _, path := range left {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	})
	var st unix.Statfs_t
	if err := unix.Statfs(mounts["memory"].HostPath, &st); err != nil || int64(st.Blocks)*st.Bsize != 1<<20 {
		t.Errorf("%d blocks of %d bytes, %v, want 1 MiB", st.Blocks, st.Bsize, err)
	}
	looptest.Equal(t, "secret", map[string]string{"sub/pass": "-r--r----- word"}, visible(t, mounts["secret"].HostPath))
	looptest.Write(t, filepath.Join(precious, "file"), "x")
	looptest.Write(t, filepath.Join(inside, "hidden"), "x")
	if err := unix.Mount(precious, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := h.Unmount(pod)
	looptest.Equal(t, "error", "something is mounted at "+inside, looptest.Text(err))
	if err := unix.Unmount(inside, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Unmount(pod), h.CleanupOrphans(nil)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.podDir(pod.UID)); !errors.Is(err, fs.ErrNotExist) || !exists(filepath.Join(precious, "file")) {
		t.Errorf("the pod's folder is there, or what was mounted in it was emptied: %v", err)
	}
}
