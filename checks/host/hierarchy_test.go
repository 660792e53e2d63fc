package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mountinfoV2 = "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n" +
	"26 22 0:24 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseHierarchies(t *testing.T) {
	hybrid := parseHierarchies(fixture(t, "mountinfo-hybrid"))
	if len(hybrid) != 10 || hybrid.version() != 1 {
		t.Errorf("of a hybrid: %+v, version %d", hybrid, hybrid.version())
	}
	pids, err := hybrid.of("pids")
	if want := (hierarchy{point: "/sys/fs/cgroup/pids", base: "/", options: []string{"rw", "pids"}}); err != nil || !cmp.Equal(want, pids, cmp.AllowUnexported(hierarchy{})) {
		t.Errorf("pids of a hybrid: %+v", pids)
	}
	if misc, err := hybrid.of("misc"); err != nil || !misc.unified || misc.point != "/sys/fs/cgroup/unified" {
		t.Errorf("misc of a hybrid: %+v", misc)
	}
	v2 := parseHierarchies([]byte(mountinfoV2))
	want := hierarchies{{point: "/sys/fs/cgroup", base: "/", unified: true}}
	if diff := cmp.Diff(want, v2, cmp.AllowUnexported(hierarchy{})); diff != "" || v2.version() != 2 {
		t.Errorf("version %d, (-want +got):\n%s", v2.version(), diff)
	}
	joined := parseHierarchies([]byte("9 8 0:1 /docker/x /a\\040b rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct\nnothing\n1 2 - cgroup\n"))
	want = hierarchies{{point: "/a b", base: "/docker/x", options: []string{"rw", "cpu", "cpuacct"}}}
	if diff := cmp.Diff(want, joined, cmp.AllowUnexported(hierarchy{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOwnerOfCgroup(t *testing.T) {
	tests := []struct {
		cgroup string
		want   Owner
	}{
		{"/", Owner{}},
		{"/system.slice/containerd.service", Owner{Unit: "containerd.service"}},
		{"/system.slice/kubelet.service/child", Owner{Unit: "kubelet.service"}},
		{"/user.slice/user-0.slice/session-1.scope", Owner{Unit: "session-1.scope"}},
		{"/kubepods/burstable/pod1b2c-3d", Owner{PodUID: "1b2c-3d"}},
		{"/kubepods/burstable", Owner{}},
		{"/podman", Owner{}},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice", Owner{PodUID: "1b-2c"}},
		{"/kubepods.slice/kubepods-pod1b_2c.slice/cri-containerd-" + idA + ".scope", Owner{ObjectID: idA, PodUID: "1b-2c"}},
		{"/kubepods/pod7/" + idA + "/system.slice/sshd.service", Owner{ObjectID: idA, PodUID: "7", Unit: "sshd.service"}},
		{"/kubepods.slice/kubepods-pod1.slice/crio-" + idA + ".scope/container", Owner{ObjectID: idA, PodUID: "1"}},
		{
			"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1b2c_3d.slice/cri-containerd-" + idA + ".scope",
			Owner{ObjectID: idA, PodUID: "1b2c-3d"},
		},
		{"/docker/" + idB + "/kubelet/kubepods/pod7/" + idA, Owner{ObjectID: idA, PodUID: "7"}}, // in a node of kind
		{"/system.slice/kubepods-pod1.slice:cri-containerd:" + idA, Owner{ObjectID: idA}},
		{"/k8s.io/" + idA, Owner{ObjectID: idA}},
	}
	for _, tt := range tests {
		if got := ownerOfCgroup(tt.cgroup); got != tt.want {
			t.Errorf("owner of %s = %+v, want %+v", tt.cgroup, got, tt.want)
		}
	}
	lines := "9:pids:/system.slice/containerd.service\n4:memory:/kubepods/pod7/" + idA + "\n"
	if got, want := ownerOfCgroups(parseMemberships(lines)), (Owner{ObjectID: idA, PodUID: "7"}); got != want {
		t.Errorf("owner of %q = %+v, want %+v", lines, got, want)
	}
	if got, want := ownerOfCgroups(parseMemberships("9:pids:/\n1:name=systemd:/system.slice/x.service\n")), (Owner{Unit: "x.service"}); got != want {
		t.Errorf("owner = %+v, want %+v", got, want)
	}
}

func TestWalk(t *testing.T) {
	n := newNode(t)
	for _, dir := range []string{"b/y", "a/x/deep", "a/w"} {
		n.write("cg/"+dir+"/cgroup.procs", "")
	}
	var got []string
	seen := func(ctx context.Context, folder string, most int) error {
		got = nil
		return walk(ctx, &position{}, filepath.Join(n.root, folder), most, func(cgroup, dir string, children int) bool {
			got = append(got, fmt.Sprint(cgroup, " ", children))
			if !strings.HasSuffix(dir, path.Join("cg", cgroup)) {
				t.Errorf("folder of %s: %s", cgroup, dir)
			}
			return cgroup != "/b"
		})
	}
	if err := seen(t.Context(), "cg", 100); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/ 2", "/a 2", "/b 1", "/a/w 0", "/a/x 1", "/a/x/deep 0"}, got); diff != "" {
		t.Errorf("those near the root come first (-want +got):\n%s", diff)
	}
	if err := seen(t.Context(), "cg", 3); len(got) != 3 || err == nil || !strings.Contains(err.Error(), "more than 3") {
		t.Errorf("of too many: %v, %v", got, err)
	}
	if err := seen(t.Context(), "none", 3); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := seen(ctx, "cg", 3); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
}

func FuzzParseHierarchies(f *testing.F) {
	f.Add([]byte(mountinfoV2))
	f.Add(fixture(f, "mountinfo-hybrid"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, h := range parseHierarchies(b) {
			if dir, err := h.folder("/../x"); err == nil {
				t.Errorf("%+v leads to %s", h, dir)
			}
		}
	})
}

func FuzzOwnerOfCgroup(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-pod1.slice/crio-" + idA + ".scope")
	f.Add("/system.slice/kubelet.service (deleted)")
	f.Fuzz(func(t *testing.T, cgroup string) {
		o := ownerOfCgroup(cgroup)
		if o.ObjectID != "" && !isID(o.ObjectID) || o.Unit != "" && !isUnit(o.Unit) {
			t.Errorf("ownerOfCgroup(%q) = %+v", cgroup, o)
		}
	})
}
