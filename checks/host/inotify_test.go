package host

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// watcher gives a process of a user inotify instances of two watches each, among other descriptors.
func (n *node) watcher(pid, uid, instances int) {
	dir := fmt.Sprintf("proc/%d/", pid)
	n.write(dir+"status", fmt.Sprintf("Name:\tx\nUid:\t0\t%d\t0\t0\n", uid))
	n.link(dir+"fd/0", "/dev/null")
	n.link(dir+"fd/1", "anon_inode:[eventpoll]")
	for i := range instances {
		n.link(fmt.Sprintf("%sfd/%d", dir, i+2), "anon_inode:inotify")
		n.write(fmt.Sprintf("%sfdinfo/%d", dir, i+2), string(fixture(n.t, "fdinfo-inotify")))
	}
}

func TestReadInotify(t *testing.T) {
	n := newNode(t)
	n.write("proc/sys/fs/inotify/max_user_instances", "128\n")
	n.write("proc/sys/fs/inotify/max_user_watches", "1048576\n")
	n.process(20, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
	n.watcher(20, 0, 1)
	n.process(30, 1, "tail", 'S', "tail")
	n.watcher(30, 0, 5)
	n.write("proc/30/cgroup", "0::/kubepods/pod7/"+idA+"\n")
	n.process(40, 1, "app", 'S', "app")
	n.watcher(40, 1000, 9)
	n.process(50, 1, "idle", 'S', "idle")
	n.watcher(50, 0, 0)
	n.process(60, 1, "ghost", 'Z', "")
	got, err := ReadInotify(t.Context(), n.root, n.people())
	if err != nil {
		t.Fatal(err)
	}
	want := Inotify{
		MaxInstances: 128, MaxWatches: 1048576,
		Users: []InotifyUser{
			{UID: 1000, Instances: 9, Watches: 18, Top: []InotifyProcess{{PID: 40, Name: "app", Instances: 9}}},
			{UID: 0, Instances: 6, Watches: 12, Top: []InotifyProcess{
				{PID: 30, Name: "tail", Instances: 5, Owner: Owner{ObjectID: idA, PodUID: "7"}},
				{PID: 20, Name: "containerd-shim", Instances: 1, Owner: Owner{Role: RoleShim, ObjectID: idB}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ReadInotify (-want +got):\n%s", diff)
	}
}

func FuzzParseMarks(f *testing.F) {
	f.Add(fixture(f, "fdinfo-inotify"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := countMarks(b); n > bytes.Count(b, []byte("inotify wd:")) {
			t.Errorf("countMarks(%q) = %d", b, n)
		}
	})
}
