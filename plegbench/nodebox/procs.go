package nodebox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killAll ends every process of a box, frozen ones as well, and looks again until there is none.
func killAll(ctx context.Context, l layout) error {
	seen := map[int]bool{}
	return poll(ctx, stopPatience, "the processes of "+l.dir+" to end", func() (bool, error) {
		for _, pid := range boxProcesses(l.dir) {
			seen[pid] = true
		}
		alive := 0
		for pid := range seen {
			if state := processState(pid); state == 0 || state == 'Z' {
				delete(seen, pid) // the number may be given to another process from now on
				continue
			}
			alive++
			_ = unix.Kill(pid, unix.SIGKILL) // works on stopped processes as well; it may have ended by itself
		}
		return alive == 0, fmt.Errorf("%d are left", alive)
	})
}

// boxProcesses returns the processes of the box in a folder and their descendants, which are the containers.
func boxProcesses(dir string) []int {
	parents := map[int]int{}
	ours := map[int]bool{}
	for _, pid := range processIDs() {
		_, parents[pid] = processStat(pid)
		ours[pid] = ofBox(cmdline(pid), dir)
	}
	var found []int
	for pid := range parents {
		for p, depth := pid, 0; p > 1 && depth < 64; p, depth = parents[p], depth+1 {
			if ours[p] {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// ofBox reports whether arguments are those of the daemon, a shim, runc or a CNI plugin that works in a folder. Others
// that name the folder, such as a pager over the log, are none of ours.
func ofBox(args []byte, dir string) bool {
	program, _, _ := bytes.Cut(args, []byte{0})
	base := filepath.Base(string(program))
	if base == "runc" || base == "ctr" || strings.HasPrefix(base, "containerd") {
		return bytes.Contains(args, []byte(dir+"/"))
	}
	return bytes.Contains(args, []byte(dir+"/cni/bin/"))
}

func processIDs() []int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(filepath.Base(e)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func cmdline(pid int) []byte {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return b
}

// processStat returns the state and the parent of a process from /proc/PID/stat; zeros when there is none.
func processStat(pid int) (state byte, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

func processState(pid int) byte {
	state, _ := processStat(pid)
	return state
}

// killBox kills the systemd of the node in a folder, and the systemd-nspawn above it.
func killBox(ctx context.Context, dir string) error {
	return poll(ctx, stopPatience, "the node in "+dir+" to end", func() (bool, error) {
		alive := 0
		for _, pid := range processIDs() {
			args := cmdline(pid)
			if !bytes.HasPrefix(args, []byte("systemd-nspawn\x00")) || !bytes.Contains(args, []byte("="+dir+"/root\x00")) {
				continue
			}
			alive++
			if leader := child(pid); leader > 0 {
				_ = unix.Kill(leader, unix.SIGKILL)
			} else {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return alive == 0, fmt.Errorf("%d of its processes are left", alive)
	})
}

// awaitState waits until a process is in the given state.
func awaitState(ctx context.Context, pid int, want byte) error {
	what := fmt.Sprintf("process %d to be in state %c", pid, want)
	return poll(ctx, stopPatience, what, func() (bool, error) {
		state := processState(pid)
		return state == want, fmt.Errorf("it is in state %q", state)
	})
}

// cgroupProcs returns the processes in one cgroup.
func cgroupProcs(dir string) []int {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}
