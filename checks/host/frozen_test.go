package host

import "testing"

// TestFrozenDisks has a process of a container that waits for the end of a freeze: of what it sees, only file systems
// on disks other than the host's root can be meant, and no file that the kubelet or the runtime made for it.
func TestFrozenDisks(t *testing.T) {
	n := newNode(t)
	n.process(40, 1, "sh", 'D', "sh")
	n.write("proc/1/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 253:1 / /mnt/vol rw - ext4 /dev/mapper/vol rw\n",
		"proc/40/mountinfo", "1 0 0:50 / / rw - overlay overlay rw\n"+
			"2 1 253:1 / /vol rw - ext4 /dev/mapper/vol rw\n3 1 253:1 /a /a rw - ext4 /dev/mapper/vol rw\n"+
			"4 1 254:0 /x /host rw - ext4 /dev/vda rw\n5 1 253:0 /y /etc/hostname rw - ext4 /dev/mapper/ctd rw\n"+
			"6 1 8:16 / /ro ro - ext4 /dev/sdb ro\n7 1 8:32 / /own rw - xfs /dev/sdc rw\n",
		"sys/dev/block/253:1/dm/suspended", "1\n")
	tasks := []BlockedTask{{PID: 40, Wchan: thawWait}, {PID: 40, Wchan: "folio_wait_bit"}}
	n.processes().explainFrozen(t.Context(), tasks)
	equal(t, "disks", []TaskDisk{{Mount: "/mnt/vol", Source: "/dev/mapper/vol", Suspended: true}, {Source: "/dev/sdc"}},
		tasks[0].Disks)
	equal(t, "of a task that waits for something else", 0, len(tasks[1].Disks))
}
