package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProbable(t *testing.T) {
	systems, left := mountsIn(fixture(t, "node/mountinfo-kubelet")).probable("/var/lib/kubelet")
	var got []string
	for _, s := range systems {
		var points []string
		for _, m := range s {
			points = append(points, m.kind+" "+m.point)
		}
		got = append(got, strings.Join(points, ", "))
	}
	equal(t, "probable", []string{
		"nfs4 /var/lib/kubelet/plugins/kubernetes.io/csi/efs.csi.aws.com/0123abcd/globalmount, " +
			"nfs4 /var/lib/kubelet/pods/2222/volumes/kubernetes.io~csi/pv-1/mount",
		"fuse.s3fs /var/lib/kubelet/pods/3333/volumes/kubernetes.io~csi/pv 2/mount",
		"cifs /mnt/nas",
		"nfs /mnt/nas",
		"xfs /var/lib/kubelet/pods/4444/volume-subpaths/pv-3/app/0",
	}, got)
	equal(t, "left", 0, left)
}

// TestHiddenMounts checks which mounts no path leads to.
func TestHiddenMounts(t *testing.T) {
	table, err := parseMounts(strings.NewReader(`1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /var rw - ext4 /dev/sda2 rw
3 2 0:40 / /var/lib/kubelet/pods/1111/volumes/kubernetes.io~empty-dir/a rw - tmpfs tmpfs rw
4 2 0:41 / /var/lib/kubelet/pods/2222/volumes/kubernetes.io~csi/b/mount rw - nfs4 filer:/b rw
5 2 0:42 / /var/lib/kubelet/pods/2222 rw - tmpfs tmpfs rw
6 5 0:43 / /var/lib/kubelet/pods/2222/volumes/kubernetes.io~csi/c/mount rw - nfs4 filer:/c rw
7 4 0:44 / /var/lib/kubelet/pods/2222/volumes/kubernetes.io~csi/b/mount rw - tmpfs over rw
8 2 8:2 /lib/kubelet /srv/kubelet rw - ext4 /dev/sda2 rw
`), "")
	failed(t, "the table", err, "")
	const pod = "/var/lib/kubelet/pods/2222"
	hidden := HiddenMount{pod + "/volumes/kubernetes.io~csi/b/mount", "2222", pod} // and one that lies on it
	equal(t, "hidden", []HiddenMount{hidden, hidden}, table.hidden("/var/lib/kubelet"))
}

// TestParseMountLine has the escapes and options of a mount.
func TestParseMountLine(t *testing.T) {
	const line = `36 35 0:44 /mnt1 /a\040b\134e\9g ro,noexec master:1 shared:2 - fuse.x\040y a\040b rw,errors=remount-ro`
	got, err := parseMountLine(line)
	failed(t, line, err, "")
	equal(t, line, mountLine{
		id: 36, parent: 35, device: "0:44", root: "/mnt1", point: `/a b\e\9g`, kind: "fuse.x y", source: "a b",
		options: "rw,errors=remount-ro", readOnly: true, noExec: true,
	}, got, cmp.AllowUnexported(mountLine{}))
	got, err = parseMountLine("36 35 0:44 / /a rw - nfs x rw,emergency_ro")
	failed(t, "emergency_ro", err, "")
	equal(t, "emergency_ro", true, got.readOnly)
}

func TestResolve(t *testing.T) {
	n := newNode(t)
	// The folder nas is absent: what is on a mount that can hang must not be read.
	n.Write("data/docker/file", "", "mnt/file", "")
	for name, target := range map[string]string{
		"docker": "/data/docker", "relative": "../../data/./docker", "loop": "loop", "up": "../../../../../data",
		"remote": "/mnt/nas/there",
	} {
		n.Link("var/lib/"+name, target)
	}
	table := mountsIn(fixture(t, "node/mountinfo-kubelet"))
	for name, want := range map[string]string{
		"/": "/", "/var/lib/docker": "/data/docker", "/var/lib/docker/file": "/data/docker/file",
		"/var/lib/relative": "/data/docker", "/var/lib/up/docker": "/data/docker",
		"/var/../data//docker/": "/data/docker",
		"/var/lib/loop":         "", "/var/lib/none": "", "/mnt/nas/not/read": "/mnt/nas/not/read",
		"/var/lib/remote/x": "/mnt/nas/there/x", "/auto/x": "/auto/x",
	} {
		got, ok := table.resolve(n.Root, name)
		equal(t, name, want, got)
		equal(t, name+" exists", want != "", ok)
	}
}
