package host

import (
	"context"
	"encoding/json"
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

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// TestStuckChildren has a child that is stuck, with its first thread dead, one that merely works, and a process of
// another namespace with the name of a child.
func TestStuckChildren(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	must(t, err)
	name := childName(verbSpace, "/b")
	if len(name) > commLen || name == childName(verbMount, "/b") || name == childName(verbSpace, "/c") {
		t.Errorf("the name %s is cut, or not the child's alone", name)
	}
	n := newNode(t)
	for pid, state := range map[int]byte{40: 'D', 50: 'S', 60: 'D'} {
		n.process(pid, 1, name, 'Z', "")
		n.write(proc(pid, "task/99/stat"), statLine(stat{pid: 99, comm: "kdiag", state: state}))
		if pid != 60 {
			n.link(proc(pid, "ns/pid"), own)
		}
	}
	got := n.people().stuckChildren()
	if len(got) != 1 || got[name] < time.Hour { // the fixture's boot was long ago
		t.Errorf("found %+v, want one", got)
	}
	n.write(proc(40, "task/99/stat"), statLine(stat{pid: 99, comm: "kdiag", state: 'S'}))
	if got := n.people().stuckChildren(); len(got) != 0 {
		t.Errorf("found %+v among those that work", got)
	}
}

func TestServe(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	defer os.WriteFile("/proc/self/comm", comm, 0)
	var out strings.Builder
	if code := Serve([]string{verbSpace, t.TempDir(), "/", "/none"}, &out); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got []reply
	for dec := json.NewDecoder(strings.NewReader(out.String())); dec.More(); {
		var r reply
		must(t, dec.Decode(&r))
		got = append(got, r)
	}
	if len(got) != 3 || got[1].Err != "" || got[1].Size == 0 || got[2].Err != "no such file or directory" {
		t.Errorf("wrote %+v", got)
	}
	for _, bad := range [][]string{nil, {verbSpace}, {"rm", "/", "/"}} {
		if code := Serve(bad, &out); code == 0 {
			t.Errorf("Serve(%q) succeeds", bad)
		}
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestProbeMountsReal mounts a dead fuse among mounts that answer. Each run names it, by the one child that the first
// run left.
func TestProbeMountsReal(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	dir := mount(t, "tmpfs", t.TempDir(), "kubelet", "tmpfs", "size=1m")
	dead, cut := mountDeadFuse(t, dir, "pods/"+uid+"/volumes/kubernetes.io~csi/a b/mount")
	var first []int
	for run := range 3 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		must(t, err)
		i := slices.IndexFunc(table.Probed, func(m Mount) bool { return m.Point == dead })
		if i < 0 {
			t.Fatalf("run %d: the mount is not among %+v", run, table.Probed)
		}
		got := table.Probed[i]
		if got.Waiting < patience || table.Kubelet != 2 || table.Left != 0 {
			t.Errorf("run %d: waiting for %s, %+v", run, got.Waiting, table)
		}
		got.Waiting = 0
		equal(t, "the dead mount", Mount{
			Point: dead, Type: "fuse.dead", Source: "dead.example:/bucket", Network: true, PodUID: uid,
			Driver: "kubernetes.io~csi", Asked: true, Hung: true,
		}, got)
		pids := left(t, dir)
		if run == 0 && len(pids) == 1 {
			first = pids
			holdsNothing(t, pids[0])
		}
		equal(t, "the children", first, pids)
	}
	cut()
	eventually(t, "the child is gone", func() bool { return syscall.Kill(first[0], 0) != nil })
}

// holdsNothing checks that a child that is left behind holds nothing of this process: the readers of kdiag's output
// would wait for the child's end too, and a terminal for its session's.
func holdsNothing(t *testing.T, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	own := map[string]bool{}
	for _, fd := range names("/proc/self/fd") {
		target, _ := os.Readlink("/proc/self/fd/" + fd)
		kind, _, _ := strings.Cut(target, ":")
		own[target] = kind == "pipe" || kind == "socket" || strings.HasPrefix(target, "/dev/pts/")
	}
	for _, fd := range names(dir + "fd") {
		target, err := os.Readlink(dir + "fd/" + fd)
		if err != nil || own[target] || (fd == "0" || fd == "2") && target != "/dev/null" {
			t.Errorf("descriptor %s of the child is %s, %v", fd, target, err)
		}
	}
	// The first thread may be dead already, and has no working directory then.
	if dir, err := os.Readlink(dir + "cwd"); err == nil && dir != "/" {
		t.Errorf("the child is in %s, which that keeps busy", dir)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the child is of session %d, %v", sid, err)
	}
}

// ownPIDs runs a test in its own PID namespace, apart from the children that the tests of another package leave behind.
// It reports whether this is there.
func ownPIDs(t *testing.T) bool {
	t.Helper()
	needsRoot(t)
	const mark = "KDIAG_TEST_OWN_PIDS"
	if os.Getenv(mark) != "" {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			nodebox.Need(t, fmt.Sprintf("mounting proc: %v", err))
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
	if !ownPIDs(t) {
		return
	}
	dir := t.TempDir()
	var cuts []func()
	for i := range maxChildren + 3 {
		_, cut := mountDeadFuse(t, dir, fmt.Sprintf("pods/uid/volumes/kubernetes.io~csi/v%02d/mount", i))
		cuts = append(cuts, cut)
	}
	for run := range 2 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		must(t, err)
		hung := 0
		for _, m := range table.Probed {
			if m.Hung && strings.HasPrefix(m.Point, dir) {
				hung++
			}
		}
		if stuck := len(left(t, dir)); hung != maxChildren || stuck != maxChildren || table.Left < 3 {
			t.Errorf("run %d: %d hang, %d children, %d not asked", run, hung, stuck, table.Left)
		}
	}
	for _, cut := range cuts {
		cut()
	}
	eventually(t, "the children are gone", func() bool { return len(left(t, dir)) == 0 })
}

// TestNoChild checks that without a child nothing is read that could hang.
func TestNoChild(t *testing.T) {
	dir, _ := mountDeadFuse(t, t.TempDir(), "kubelet")
	_, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, Child{})
	failed(t, "ProbeMounts", err, "no program")
	spaces, err := ReadSpaces(limited(t), "/", hostPeople(t), []Folder{{Path: dir}}, Child{})
	failed(t, "ReadSpaces", err, "no program")
	if len(spaces) != 1 || spaces[0].Err == "" {
		t.Errorf("ReadSpaces = %+v", spaces)
	}
	_, err = TimeWrites(limited(t), "/", hostPeople(t), Folder{Path: dir}, Child{})
	failed(t, "TimeWrites", err, "no program")
}

func TestTimeWritesReal(t *testing.T) {
	dir := t.TempDir()
	well := mount(t, "tmpfs", dir, "well", "tmpfs", "size=1m")
	full := mount(t, "tmpfs", dir, "full", "tmpfs", "size=64k")
	readOnly := mount(t, "tmpfs", dir, "ro", "tmpfs", "ro")
	_ = os.WriteFile(filepath.Join(full, "file"), make([]byte, 128<<10), 0o600) // as much as there is room for
	for _, tt := range []struct {
		folder string
		times  int
		err    string
	}{
		{well, 8, ""},
		{full, 0, "no space left on device"},
		{readOnly, 0, "read-only file system"},
		{filepath.Join(dir, "none"), 0, "there is no such folder"},
	} {
		w, err := TimeWrites(limited(t), "/", hostPeople(t), Folder{Path: tt.folder}, testChild(t))
		if err != nil || len(w.Times) != tt.times || w.Err != tt.err || w.Hung || slices.Min(append(w.Times, 1)) <= 0 {
			t.Errorf("TimeWrites(%s) = %+v, %v; want %d times and %q", tt.folder, w, err, tt.times, tt.err)
		}
	}
	equal(t, "left behind", 0, len(names(well)))
}

// TestReadSpacesReal has a full file system, one without inodes, one that does not answer, and a folder that is absent.
func TestReadSpacesReal(t *testing.T) {
	dir := t.TempDir()
	full := mount(t, "tmpfs", dir, "full", "tmpfs", "size=64k")
	inodes := mount(t, "tmpfs", dir, "inodes", "tmpfs", "nr_inodes=2")
	dead, _ := mountDeadFuse(t, dir, "dead")
	_ = os.WriteFile(filepath.Join(full, "file"), make([]byte, 128<<10), 0o600) // as much as there is room for
	_ = os.WriteFile(filepath.Join(inodes, "file"), nil, 0o600)
	must(t, os.Symlink(full, filepath.Join(dir, "link")))
	var folders []Folder
	for _, name := range []string{"full", "dead", "inodes", "link", "none"} {
		folders = append(folders, Folder{Path: filepath.Join(dir, name)})
	}
	for range 2 {
		spaces, err := ReadSpaces(limited(t), "/", hostPeople(t), folders, testChild(t))
		if err != nil || len(spaces) != 3 || spaces[1].Waiting < patience {
			t.Fatalf("ReadSpaces = %+v, %v, want three", spaces, err)
		}
		spaces[1].Waiting, spaces[0].Inodes, spaces[0].InodesFree, spaces[2].Size, spaces[2].Free = 0, 0, 0, 0, 0
		equal(t, "spaces", []Space{
			{Folders: []Folder{folders[0], folders[3]}, Mount: full, Type: "tmpfs", Source: "tmpfs", Size: 64 << 10},
			{Folders: folders[1:2], Mount: dead, Type: "fuse.dead", Source: "dead.example:/bucket", Hung: true},
			{Folders: folders[2:3], Mount: inodes, Type: "tmpfs", Source: "tmpfs", Inodes: 2},
		}, spaces)
		equal(t, "children", 1, len(left(t, dir)))
	}
}
