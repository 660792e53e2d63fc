//go:build e2e

package recorder

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestEndToEndDiskHangs has the disk below a recorder hang, and come back. In between records wait, and then are lost;
// what is on the disk can be read. Afterwards those that waited are written.
func TestEndToEndDiskHangs(t *testing.T) {
	dir := loopMount(t, filepath.Join(t.TempDir(), "disk"))
	write(t, dir, 0)
	run(t, dir, "fsfreeze", "-f", ".")
	r := appender(t, dir)
	kept, noise := 1, make([]byte, 100<<10)
	for end := time.Now().Add(time.Minute); r.Lost() == 0 && time.Now().Before(end); kept++ {
		_, _ = rand.Read(noise) // does not compress
		r.Append(noon, KindSample, noise)
		time.Sleep(time.Millisecond)
	}
	hangs := func() bool { return strings.Contains(r.Problem(), "the disk hangs (no reply in ") }
	testkit.Eventually(t, "the problem", hangs)
	if got, damaged := read(t, dir); len(got) != 1 || len(damaged) > 0 {
		t.Errorf("%d records, damaged: %v", len(got), damaged)
	}
	if n, err := r.Room(t.Context(), 1<<20); n != 0 || err == nil {
		t.Errorf("room: %d, %v", n, err)
	}
	run(t, dir, "fsfreeze", "-u", ".")
	testkit.Eventually(t, "the problem to end", func() bool { return r.Problem() == "" && r.queued.Load() == 0 })
	if got, damaged := read(t, dir); len(got) != kept-r.Lost() || len(damaged) > 0 {
		t.Errorf("%d records, want %d; damaged: %v", len(got), kept-r.Lost(), damaged)
	}
}

// TestEndToEndOpenHangs opens a folder that cannot be made now, and closes it before it can.
func TestEndToEndOpenHangs(t *testing.T) {
	dir := loopMount(t, filepath.Join(t.TempDir(), "disk"))
	run(t, dir, "fsfreeze", "-f", ".")
	r := appender(t, dir+"/new")
	r.Append(noon, KindSample, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(ctx); err == nil {
		t.Error("closed on a disk that hangs, without an error")
	}
	run(t, dir, "fsfreeze", "-u", ".")
	finish(t, r)
	if got, damaged := read(t, dir+"/new"); len(got) != 1 || len(damaged) > 0 {
		t.Errorf("read %s, damaged: %v", got, damaged)
	}
}

// loopMount mounts a file with ext4, which it makes if it is not there.
func loopMount(t *testing.T, image string) (dir string) {
	t.Helper()
	if _, err := os.Stat(image); err != nil {
		run(t, "/", "truncate", "-s", "16M", image)
		run(t, "/", "mkfs.ext4", "-q", image)
	}
	dir = t.TempDir()
	run(t, "/", "mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", dir).Run() // where a test failed before
		must(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return dir
}

// run runs a command in a folder.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// powerCut ends a file system as a power cut does: nothing more is written to its disk.
func powerCut(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	const shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN and its flag, of linux/fs/ext4/ext4.h
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush))
}

// TestEndToEndPowerCut ends the file system below a recorder while it writes, without a last flush, and mounts what was
// on the disk then. All records that were written are there, in order; at most the one at work may be damaged.
func TestEndToEndPowerCut(t *testing.T) {
	for round := range 5 {
		image := filepath.Join(t.TempDir(), "disk")
		dir := loopMount(t, image)
		r, err := Open(dir, 0)
		must(t, err)
		var written atomic.Int64
		go func() {
			for n := 0; r.ctx.Err() == nil; time.Sleep(10 * time.Microsecond) {
				if r.queued.Load() == 0 {
					written.Store(int64(n))
					r.Append(noon, KindSample, n)
					n++
				}
			}
		}()
		testkit.Eventually(t, "records", func() bool { return written.Load() > int64(20+10*round) })
		want := int(written.Load())
		powerCut(t, dir)
		testkit.Eventually(t, "a problem", func() bool { return strings.Contains(r.Problem(), "input/output error") })
		if err := r.Close(t.Context()); err == nil {
			t.Error("closed on a dead disk, without an error")
		}
		after := image + ".after"
		run(t, "/", "cp", image, after)
		got, damaged := read(t, loopMount(t, after))
		for n, data := range got {
			if data != strconv.Itoa(n) {
				t.Fatalf("record %d is %s", n, data)
			}
		}
		if len(got) < want || len(damaged) > 1 {
			t.Errorf("%d records; %d were written; damaged: %v", len(got), want, damaged)
		}
	}
}
