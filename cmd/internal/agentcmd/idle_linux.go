package agentcmd

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The priority of the agent is the lowest.
const (
	niceness    = 10
	ioprioClass = 3 << 13 // IOPRIO_CLASS_IDLE, ioprio_set(2)
	ioprioWho   = 1       // IOPRIO_WHO_PROCESS: one thread
)

// beIdle gives all threads the idle class of I/O and a low priority. Threads that start later inherit both.
func beIdle() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, _ := strconv.Atoi(filepath.Base(t.Name()))
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, niceness); err != nil {
			return err
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWho, uintptr(tid), ioprioClass); errno != 0 {
			return errno
		}
	}
	return nil
}
