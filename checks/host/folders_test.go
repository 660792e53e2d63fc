package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStateFolders(t *testing.T) {
	root, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	bundle := filepath.Join(state, taskDir, "k8s.io", "5f0e")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := func(name string) { t.Helper(); must(os.MkdirAll(name, 0o755)) }
	folder(bundle)
	for _, pid := range []string{"7", "8", "9", "10"} {
		folder(filepath.Join(root, "proc", pid))
	}
	people := Population{names: testNames, roles: map[int]Process{}}
	for pid, role := range map[int]Role{7: RoleShim, 8: RoleShim, 9: RoleRuntime, 10: RoleShim} {
		people.roles[pid] = Process{PID: pid, Role: role}
	}
	if got := stateFolders(root, people); len(got) != 0 {
		t.Errorf("nothing is there: %q", got)
	}
	folder(filepath.Join(root, "run/containerd"))
	if diff := cmp.Diff([]string{"/run/containerd"}, stateFolders(root, people)); diff != "" {
		t.Errorf("the usual place (-want +got):\n%s", diff)
	}
	must(os.Symlink(bundle, filepath.Join(root, "proc/7/cwd")))
	must(os.Symlink(bundle, filepath.Join(root, "proc/9/cwd")))
	must(os.Symlink("/", filepath.Join(root, "proc/10/cwd")))
	if diff := cmp.Diff([]string{"/run/containerd"}, stateFolders(root, people)); diff != "" {
		t.Errorf("a bundle that is another one here (-want +got):\n%s", diff)
	}
	folder(filepath.Join(root, filepath.Dir(bundle)))
	must(os.Symlink(bundle, filepath.Join(root, bundle)))
	if diff := cmp.Diff([]string{state}, stateFolders(root, people)); diff != "" {
		t.Errorf("where the shims are (-want +got):\n%s", diff)
	}
	want := Folder{Path: state, Role: FolderState}
	found := false
	for _, f := range Folders(root, people, "", "") {
		found = found || f == want
	}
	if !found {
		t.Error("it is none of the folders that matter")
	}
}
