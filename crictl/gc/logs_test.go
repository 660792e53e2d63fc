package gc

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func tree(t *testing.T, dir string) []string {
	t.Helper()
	out := []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLogs(t *testing.T) {
	st := &crictl.ContainerStatus{ID: "x", Name: "app", Attempt: 3, Pod: crictl.Pod{Namespace: "ns", Name: "web", UID: "u"}}
	all := []string{
		"outside/3.log",
		"pods/ns_web_u/app/2.log", "pods/ns_web_u/app/3.log", "pods/ns_web_u/app/3.log.20260101-000000",
		"pods/ns_web_u/app/3.log.20260101-000000.gz", "pods/ns_web_u/app/33.log", "pods/ns_web_u/link",
	}
	rest := []string{"outside/3.log", "pods/ns_web_u/app/2.log", "pods/ns_web_u/app/33.log", "pods/ns_web_u/link"}
	tests := []struct {
		name string
		path string // of the status; DIR stands for the folder
		want []string
		err  string
	}{
		{name: "by convention", want: rest},
		{name: "by the status", path: "DIR/ns_web_u/app/3.log", want: rest},
		{name: "not there", path: "DIR/ns_web_u/none/3.log", want: all},
		{name: "outside", path: "DIR/../outside/3.log", want: all, err: "is not below"},
		{name: "elsewhere", path: "/etc/passwd", want: all, err: "is not below"},
		{name: "relative", path: "ns_web_u/app/3.log", want: all, err: "is not below"},
		{name: "not deep enough", path: "DIR/3.log", want: all, err: "is not below"},
		{name: "through a link", path: "DIR/ns_web_u/link/3.log", want: all, err: "is no folder"},
		{name: "doubled slash", path: "DIR/ns_web_u//app/3.log", want: all, err: "is not below"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for _, name := range all {
				if !strings.HasSuffix(name, "link") {
					write(t, filepath.Join(root, name), "log")
				}
			}
			if err := os.Symlink("../../outside", filepath.Join(root, "pods/ns_web_u/link")); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(root, "pods")
			l := &Logs{Dir: dir}
			named := *st
			named.LogPath = strings.Replace(tt.path, "DIR", dir, 1)
			err := l.remove(t.Context(), &named)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, tree(t, root)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
	evil := *st
	evil.Pod.Name = "../../outside"
	if err := (&Logs{Dir: t.TempDir()}).remove(t.Context(), &evil); err == nil {
		t.Error("a pod's name leads out of the folder")
	}
	if err := (&Logs{Dir: "/no/such"}).remove(t.Context(), st); err != nil {
		t.Errorf("no logs at all: %v", err)
	}
}

// TestLogIsLink removes a log that is a symbolic link, as Docker's are: the link goes, what it names stays.
func TestLogIsLink(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "outside"), "log")
	write(t, filepath.Join(root, "pods/ns_web_u/app/0.log.1"), "log")
	if err := os.Symlink("../../../outside", filepath.Join(root, "pods/ns_web_u/app/0.log")); err != nil {
		t.Fatal(err)
	}
	st := &crictl.ContainerStatus{Name: "app", Pod: crictl.Pod{Namespace: "ns", Name: "web", UID: "u"}}
	if err := (&Logs{Dir: filepath.Join(root, "pods")}).remove(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"outside"}, tree(t, root)); diff != "" {
		t.Error(diff)
	}
}
