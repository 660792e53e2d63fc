package host

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.process(1, 0, "systemd", 'S', "init")
		n.process(20, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
		n.blocked(21, 20, "containerd-shim", "fanotify_handle_event") // has not begun its program
		n.blocked(22, 1, "cp", "fanotify_handle_event")               // is answered after a while
		for pid, mask := range map[int]string{30: "8", 31: "10000"} {
			n.process(pid, 1, "scand", 'T', "scand")
			n.link(procFile(pid, "fd/7"), "anon_inode:[fanotify]")
			n.write(procFile(pid, "fdinfo/7"), "pos:\t0\nfanotify flags:4 event-flags:8000\n"+
				"fanotify mnt_id:1c mflags:0 mask:"+mask+" ignored_mask:0\n",
				procFile(pid, "cgroup"), "0::/system.slice/scan.service\n")
		}
		go func() {
			time.Sleep(2 * time.Second)
			n.thread(22, 22, "cp", 'D', "fanotify_handle_event", 2)
		}()
		got, err := ReadTasks(t.Context(), n.processes(), 300*time.Millisecond)
		must(t, err)
		equal(t, "blocked", []BlockedTask{{
			PID: 21, TID: 21, Name: "containerd-shim", Wchan: "fanotify_handle_event", Started: started(21),
			Waited: watchTime, Owner: Owner{Role: RoleOCI, ObjectID: idB},
		}}, got.Blocked)
		equal(t, "watchers", []Watcher{
			{PID: 31, Name: "scand", State: 'T', Started: started(31), Owner: Owner{Unit: "scan.service"}},
		}, got.Watchers)
	})
}
