package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVolumeOf(t *testing.T) {
	const dir = "/var/lib/kubelet"
	for point, want := range map[string]Mount{
		dir + "/pods/U/volumes/kubernetes.io~csi/pv-1/mount":              {PodUID: "U", Driver: "kubernetes.io~csi", Volume: "pv-1"},
		dir + "/pods/U/volumes/kubernetes.io~nfs/share":                   {PodUID: "U", Driver: "kubernetes.io~nfs", Volume: "share"},
		dir + "/pods/U/volume-subpaths/pv-1/app/0":                        {PodUID: "U", Volume: "pv-1"},
		dir + "/pods/U/containers/app/hosts":                              {PodUID: "U"},
		dir + "/plugins/kubernetes.io/csi/ebs.csi.aws.com/9f/globalmount": {Driver: "ebs.csi.aws.com", Volume: "9f"},
		dir + "/plugins/other":                                            {},
		dir:                                                               {},
		dir + "2/pods/U":                                                  {},
		"/mnt/nas":                                                        {},
	} {
		if diff := cmp.Diff(want, volumeOf(point, dir)); diff != "" {
			t.Errorf("%s: %s", point, diff)
		}
	}
}

func TestProbable(t *testing.T) {
	systems, left := fixtureTable(t, "mountinfo-kubelet").probable("/var/lib/kubelet")
	var got []string
	for _, s := range systems {
		var points []string
		for _, m := range s {
			points = append(points, m.kind+" "+m.point)
		}
		got = append(got, strings.Join(points, ", "))
	}
	want := []string{
		"nfs4 /var/lib/kubelet/plugins/kubernetes.io/csi/efs.csi.aws.com/0123abcd/globalmount, nfs4 /var/lib/kubelet/pods/2222/volumes/kubernetes.io~csi/pv-1/mount",
		"fuse.s3fs /var/lib/kubelet/pods/3333/volumes/kubernetes.io~csi/pv 2/mount",
		"cifs /mnt/nas",
		"nfs /mnt/nas",
		"xfs /var/lib/kubelet/pods/4444/volume-subpaths/pv-3/app/0",
	}
	if diff := cmp.Diff(want, got); diff != "" || left != 0 {
		t.Errorf("%d left; %s", left, diff)
	}

	var many mountTable
	for i := range maxProbed + 7 {
		many.lines = append(many.lines, mountLine{device: fmt.Sprint("0:", i), point: fmt.Sprint("/mnt/", i), kind: "nfs4"})
	}
	if systems, left := many.probable("/var/lib/kubelet"); len(systems) != maxProbed || left != 7 {
		t.Errorf("of too many, %d and %d left", len(systems), left)
	}
}
