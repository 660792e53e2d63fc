package syncloop

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// folders makes folders, files where a name ends in a dot, below a new folder.
func folders(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, filepath.Dir(name))
		if !strings.HasSuffix(name, ".") {
			path = filepath.Join(root, name)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if path != filepath.Join(root, name) {
			if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// leaves lists the folders and files that hold nothing.
func leaves(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if below, _ := os.ReadDir(path); len(below) == 0 && name != "." {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A file stands for processes: like them it keeps its folder from being removed.
func TestForgetCgroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		runs []string // folders
		root string
		left []string
	}{
		{name: "version 1", root: "/lab", runs: []string{"memory/system", "memory/lab/kubepods/besteffort/podu1/c1", "cpu/lab/kubepods/podu2"}, left: []string{"cpu", "memory/system"}},
		{name: "slices", root: "/k-diag", runs: []string{"k_diag.slice/k_diag-kubepods.slice/k_diag-kubepods-podu_1.slice"}},
		{name: "the top is another's", root: "/", runs: []string{"kubepods/besteffort/podother"}, left: []string{"kubepods/besteffort/podother"}},
		{name: "processes", root: "lab", runs: []string{"lab/kubepods/podu1/proc.", "lab/kubepods/podu2"}, left: []string{"lab/kubepods/podu1/proc."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mount, rootDir := folders(t, tt.runs...), t.TempDir()
			if err := os.WriteFile(filepath.Join(rootDir, cgroupRootFile), []byte(tt.root), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := forgetCgroups(mount, rootDir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.left, leaves(t, mount)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if left := leaves(t, rootDir); len(left) > 0 {
				t.Errorf("the file is left: %v", left)
			}
		})
	}
}

func TestCgroupParent(t *testing.T) {
	for _, tt := range []struct {
		root    string
		systemd bool
		class   v1.PodQOSClass
		want    string
	}{
		{"", false, v1.PodQOSBestEffort, "/kubepods/besteffort/poda-b"},
		{"/kdiag", false, v1.PodQOSGuaranteed, "/kdiag/kubepods/poda-b"},
		{"/", true, v1.PodQOSBurstable, "kubepods-burstable-poda_b.slice"},
		{"/k-diag.slice", true, v1.PodQOSGuaranteed, "k_diag-kubepods-poda_b.slice"},
	} {
		if got := cgroupParent(tt.root, tt.systemd, tt.class, "a-b"); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
