package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestProbeMountsReal mounts a dead fuse among mounts that are well. It is named in each run, by the one child that the
// first run left.
func TestProbeMountsReal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubelet")
	const uid = "11111111-2222-3333-4444-555555555555"
	mountTmpfs(t, dir, "size=1m")
	dead := newDeadFuse(t, filepath.Join(dir, "pods", uid, "volumes/kubernetes.io~csi/a b/mount"))

	var pid int
	for run := range 3 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(table.Probed, func(m Mount) bool { return m.Point == dead.point })
		if i < 0 {
			t.Fatalf("run %d: the mount is not among %+v", run, table.Probed)
		}
		m := table.Probed[i]
		if !m.Asked || !m.Hung || m.PID == 0 || m.Waiting < patience || !m.Network ||
			m.PodUID != uid || m.Volume != "a b" || m.Driver != "kubernetes.io~csi" || m.Type != "fuse.dead" {
			t.Errorf("run %d says %+v", run, m)
		}
		if run == 0 {
			pid = m.PID
			holdsNothing(t, pid)
		}
		if m.PID != pid || table.Kubelet != 2 || table.Left != 0 {
			t.Errorf("run %d: process %d, want %d; %d mounts below the kubelet's folder, %d left", run, m.PID, pid, table.Kubelet, table.Left)
		}
		if all := left(t, dir); len(all) != 1 || all[0].pid != pid {
			t.Errorf("run %d leaves %+v, want process %d alone", run, all, pid)
		}
	}
	dead.cut()
	eventually(t, "the child is gone", func() bool { return !alive(pid) })
}

// holdsNothing wants a child that is left behind to hold nothing of this process's: whoever reads kdiag's output would wait
// for the child's end too, and a terminal for its session's.
func holdsNothing(t *testing.T, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	own := map[string]bool{}
	for _, fd := range names("/proc/self/fd") {
		target, _ := os.Readlink("/proc/self/fd/" + fd)
		own[target] = strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "/dev/pts/")
	}
	for _, fd := range names(dir + "fd") {
		target, err := os.Readlink(dir + "fd/" + fd)
		if err != nil || own[target] || (fd == "0" || fd == "2") && target != "/dev/null" {
			t.Errorf("descriptor %s of the child is %s, %v", fd, target, err)
		}
	}
	// The first thread may be dead already, and has none then.
	if dir, err := os.Readlink(dir + "cwd"); err == nil && dir != "/" {
		t.Errorf("the child is in %s, which that keeps busy", dir)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the child is of session %d, %v", sid, err)
	}
}

// apartFromChildren runs a test in a PID namespace of its own, where no child counts that another package's tests leave behind, and where
// none of this one's does for those. It reports whether this is there.
func apartFromChildren(t *testing.T) bool {
	t.Helper()
	needsRoot(t)
	const mark = "KDIAG_TEST_OWN_PIDS"
	if os.Getenv(mark) != "" {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			unavailable(t, "mounting proc: %v", err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestProbeMountsManyDead has more dead mounts than children may be.
func TestProbeMountsManyDead(t *testing.T) {
	if !apartFromChildren(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "kubelet")
	var all []*deadFuse
	for i := range maxChildren + 3 {
		all = append(all, newDeadFuse(t, filepath.Join(dir, fmt.Sprintf("pods/uid/volumes/kubernetes.io~csi/v%02d/mount", i))))
	}
	for run := range 2 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		if err != nil {
			t.Fatal(err)
		}
		var hung int
		for _, m := range table.Probed {
			if m.Hung && strings.HasPrefix(m.Point, dir) {
				hung++
			}
		}
		if hung != maxChildren || table.Left < 3 {
			t.Errorf("run %d: %d hang and %d are left, want %d and at least 3", run, hung, table.Left, maxChildren)
		}
		if in := left(t, dir); len(in) != maxChildren {
			t.Errorf("run %d leaves %+v, want %d", run, in, maxChildren)
		}
	}
	for _, f := range all {
		f.cut()
	}
	eventually(t, "the children are gone", func() bool { return len(left(t, dir)) == 0 })
}

// TestNoChild wants looks that need a child to say that they have none, and not to look themselves.
func TestNoChild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubelet")
	newDeadFuse(t, dir)
	if _, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, Child{}); err == nil {
		t.Error("ProbeMounts without a child succeeds")
	}
	spaces, err := ReadSpaces(limited(t), "/", hostPeople(t), []Folder{{Path: dir}}, Child{})
	if err == nil || len(spaces) != 1 || spaces[0].Err == "" {
		t.Errorf("ReadSpaces without a child = %+v, %v", spaces, err)
	}
	if _, err := TimeWrites(limited(t), "/", hostPeople(t), Folder{Path: dir}, Child{}); err == nil {
		t.Error("TimeWrites without a child succeeds")
	}
}

// TestTimeWritesReal writes where it goes well, where there is no room, where nobody may write, and where there is nothing.
func TestTimeWritesReal(t *testing.T) {
	dir := t.TempDir()
	well, full, readOnly := filepath.Join(dir, "well"), filepath.Join(dir, "full"), filepath.Join(dir, "ro")
	mountTmpfs(t, well, "size=1m")
	mountTmpfs(t, full, "size=64k")
	mountTmpfs(t, readOnly, "ro")
	_ = os.WriteFile(filepath.Join(full, "file"), make([]byte, 128<<10), 0o600) // as much as there is room for
	for _, tt := range []struct {
		folder string
		times  int
		err    string
	}{
		{well, 8, ""}, {full, 0, "no space left on device"}, {readOnly, 0, "read-only file system"}, {filepath.Join(dir, "none"), 0, "there is no such folder"},
	} {
		w, err := TimeWrites(limited(t), "/", hostPeople(t), Folder{Path: tt.folder}, testChild(t))
		if err != nil || len(w.Times) != tt.times || w.Err != tt.err || w.Hung {
			t.Errorf("TimeWrites(%s) = %+v, %v; want %d times and %q", tt.folder, w, err, tt.times, tt.err)
		}
		if slices.Min(append(w.Times, 1)) <= 0 {
			t.Errorf("a write took no time: %v", w.Times)
		}
	}
	if names := names(well); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestFrozenReal freezes a file system, as a backup does that then dies: a write hangs, a look does not.
func TestFrozenReal(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "frozen")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", "16M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, point}, {"fsfreeze", "-f", point},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			unavailable(t, "%v: %v: %s", args, err, out)
		}
		if args[0] == "mount" {
			// A child that was killed holds its file open for a moment after it can be seen no more.
			t.Cleanup(func() { eventually(t, "unmounted", func() bool { return unix.Unmount(point, 0) == nil }) })
		}
	}
	thaw := func() { _ = exec.Command("fsfreeze", "-u", point).Run() }
	t.Cleanup(thaw)

	folder := Folder{Path: point, Role: "runtime"}
	var waited time.Duration
	for run := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // it waits as long as it may; the child's start is part of that
		w, err := TimeWrites(ctx, "/", hostPeople(t), folder, testChild(t))
		cancel()
		if err != nil || !w.Hung || w.Waiting <= waited || w.Mount != point || len(w.Times) != 0 {
			t.Errorf("run %d: TimeWrites = %+v, %v", run, w, err)
		}
		waited = w.Waiting
		if n := len(left(t, dir)); n != 1 {
			t.Errorf("run %d leaves %d children, want 1", run, n)
		}
	}
	spaces, err := ReadSpaces(limited(t), "/", hostPeople(t), []Folder{folder}, testChild(t))
	if err != nil || len(spaces) != 1 || spaces[0].Hung || spaces[0].Size == 0 {
		t.Errorf("ReadSpaces = %+v, %v", spaces, err)
	}
	thaw()
	eventually(t, "the child is gone", func() bool { return len(left(t, dir)) == 0 })
	if names := names(point); !slices.Equal(names, []string{"lost+found"}) {
		t.Errorf("left behind: %v", names)
	}
}

// TestReadSpacesReal has a full file system, one without inodes, one that does not answer, and a folder that is not.
func TestReadSpacesReal(t *testing.T) {
	dir := t.TempDir()
	full, inodes, dead := filepath.Join(dir, "full"), filepath.Join(dir, "inodes"), filepath.Join(dir, "dead")
	mountTmpfs(t, full, "size=64k")
	mountTmpfs(t, inodes, "nr_inodes=2")
	newDeadFuse(t, dead)
	_ = os.WriteFile(filepath.Join(full, "file"), make([]byte, 128<<10), 0o600) // as much as there is room for
	for i := range 3 {
		_ = os.WriteFile(filepath.Join(inodes, fmt.Sprint(i)), nil, 0o600)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(full, link); err != nil {
		t.Fatal(err)
	}
	folders := []Folder{
		{Path: full, Role: "runtime"},
		{Path: dead, Role: "kubelet"},
		{Path: inodes, Role: "logs"},
		{Path: link, Role: "temporary"},
		{Path: filepath.Join(dir, "none"), Role: "root"},
	}
	for range 2 {
		spaces, err := ReadSpaces(limited(t), "/", hostPeople(t), folders, testChild(t))
		if err != nil || len(spaces) != 3 {
			t.Fatalf("ReadSpaces = %+v, %v, want three", spaces, err)
		}
		if s := spaces[0]; s.Mount != full || s.Type != "tmpfs" || s.Size != 64<<10 || s.Free != 0 || s.Err != "" || len(s.Folders) != 2 {
			t.Errorf("of the full one: %+v", s)
		}
		if s := spaces[1]; s.Mount != dead || !s.Hung || s.Waiting < patience {
			t.Errorf("of the dead one: %+v", s)
		}
		if s := spaces[2]; s.Inodes != 2 || s.InodesFree != 0 || s.Err != "" {
			t.Errorf("of the one without inodes: %+v", s)
		}
		if n := len(left(t, dir)); n != 1 {
			t.Errorf("%d children are left, want 1", n)
		}
	}
}
