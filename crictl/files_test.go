package crictl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHostFiles has links that lead out of the root, and a file in the host's root that the root of a process lacks.
func TestHostFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	root := host{
		"data/target": "inside", "data/large": strings.Repeat("x", 2<<20+1),
		"proc/7/root/data/target": "the process's own", "proc/7/cwd/relative": "where it works",
		"data/absolute": "-> /data/target", "data/up": "-> ../../../../../../data/target",
		"data/out": "-> " + outside, "data/loop": "-> /data/loop",
	}.root(t)
	must(t, unix.Mkfifo(filepath.Join(root, "data/fifo"), 0o600))
	for pid, names := range map[int]map[string]string{
		0: {
			"/data/target": "inside", "/data/absolute": "inside", "/data/up": "inside", "/data/out": Absent,
			"/data/loop": "too many levels of symbolic links", "/data/large": "is larger than 2097152 bytes",
			"/data/fifo": "is not a regular file", "/data": "is not a regular file", "/data/target/x": Absent,
			"": Absent,
		},
		7: {"/data/target": "the process's own", "/data/absolute": "inside", "relative": "where it works"},
	} {
		for name, want := range names {
			data, err := SeenBy(root, pid).Read(name)
			got := string(data)
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%d reads %q as %.60q, want %q", pid, name, got, want)
			}
		}
	}
}
