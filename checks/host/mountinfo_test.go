package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMountLine(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       mountLine
		err        string
	}{
		{
			"no optional field", "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n",
			mountLine{device: "0:28", root: "/", point: "/sys/fs/cgroup", kind: "tmpfs", source: "tmpfs", options: "rw,mode=755"},
			"",
		},
		{
			"two optional fields", "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue",
			mountLine{device: "98:0", root: "/mnt1", point: "/mnt2", kind: "ext3", source: "/dev/root", options: "rw,errors=continue"},
			"",
		},
		{
			"escapes", `36 35 0:44 / /a\040b\011c\012d\134e\043f rw - fuse.x\040y a\040b rw`,
			mountLine{device: "0:44", root: "/", point: "/a b\tc\nd\\e#f", kind: "fuse.x y", source: "a b", options: "rw"},
			"",
		},
		{
			"no escape", `36 35 0:44 / /a\9b\04 rw - nfs x rw`,
			mountLine{device: "0:44", root: "/", point: `/a\9b\04`, kind: "nfs", source: "x", options: "rw"},
			"",
		},
		{
			"no source", "36 35 0:44 / /a rw - fuse.s3fs  rw",
			mountLine{device: "0:44", root: "/", point: "/a", kind: "fuse.s3fs", options: "rw"},
			"",
		},
		{
			"read-only mount", "36 35 0:44 / /a ro,nosuid - nfs x rw",
			mountLine{device: "0:44", root: "/", point: "/a", kind: "nfs", source: "x", options: "rw", readOnly: true},
			"",
		},
		{
			"read-only file system", "36 35 0:44 / /a rw - ext4 x ro,errors=remount-ro",
			mountLine{device: "0:44", root: "/", point: "/a", kind: "ext4", source: "x", options: "ro,errors=remount-ro", readOnly: true},
			"",
		},
		{"errors=remount-ro", "36 35 0:44 / /a rw - ext4 x rw,errors=remount-ro", mountLine{device: "0:44", root: "/", point: "/a", kind: "ext4", source: "x", options: "rw,errors=remount-ro"}, ""},
		{"nothing", "", mountLine{}, "no separator"},
		{"cut", "36 35 0:44 / /a rw - ext4 x", mountLine{}, "too few"},
		{"cut before", "36 35 0:44 / /a - ext4 x rw", mountLine{}, "too few"},
		{"relative", "36 35 0:44 / a rw - ext4 x rw", mountLine{}, "is none"},
		{"no device", "36 35 44 / /a rw - ext4 x rw", mountLine{}, "is none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMountLine(tt.line)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(mountLine{})); diff != "" {
				t.Error(diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func FuzzParseMountLine(f *testing.F) {
	for _, name := range []string{"mountinfo", "mountinfo-kubelet"} {
		b, err := os.ReadFile(filepath.Join("testdata/node", name))
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parseMountLine(line)
		if err != nil {
			return
		}
		if !filepath.IsAbs(m.point) || m.kind == "" {
			t.Errorf("parsed to %+v", m)
		}
		volumeOf(m.point, "/var/lib/kubelet")
	})
}

func fixtureTable(t *testing.T, name string) mountTable {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata/node", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := parseMounts(f)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestMountOf(t *testing.T) {
	table := fixtureTable(t, "mountinfo-kubelet")
	for name, want := range map[string]string{
		"/":                      "ext4",
		"/database":              "ext4",
		"/data":                  "xfs",
		"/data/x":                "xfs",
		"/mnt/nas/x":             "nfs", // the later lies over the earlier
		"/var/lib/kubelet/pods/": "ext4",
	} {
		if m, _ := table.of(name); m.kind != want {
			t.Errorf("%s lies on %s, want %s", name, m.kind, want)
		}
	}
}

func TestResolve(t *testing.T) {
	n := newNode(t)
	n.write("data/docker/file", "")
	n.link("var/lib/docker", "/data/docker")
	n.link("var/lib/relative", "../../data/./docker")
	n.link("var/lib/loop", "loop")
	n.link("var/lib/up", "../../../../../data")
	n.link("var/lib/remote", "/mnt/nas/there")
	n.write("mnt/file", "") // the folder nas is not there: what is on a mount that can hang must not be looked at
	table := fixtureTable(t, "mountinfo-kubelet")
	for _, tt := range []struct {
		name, want string
		ok         bool
	}{
		{"/", "/", true},
		{"/var/lib/docker", "/data/docker", true},
		{"/var/lib/docker/file", "/data/docker/file", true},
		{"/var/lib/relative", "/data/docker", true},
		{"/var/lib/up/docker", "/data/docker", true},
		{"/var/../data//docker/", "/data/docker", true},
		{"/var/lib/loop", "", false},
		{"/var/lib/none", "", false},
		{"/mnt/nas/not/looked/at", "/mnt/nas/not/looked/at", true},
		{"/var/lib/remote/x", "/mnt/nas/there/x", true},
		{"/auto/x", "/auto/x", true},
	} {
		if got, ok := table.resolve(n.root, tt.name); got != tt.want || ok != tt.ok {
			t.Errorf("resolve(%q) = %q, %v, want %q, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}
