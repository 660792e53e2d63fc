package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hidden returns an error when this user does not see the processes of others below root/proc: what he counts there is his own.
// Mounted with hidepid (Documentation/filesystems/proc.rst, 4.1), proc shows a process only to who may trace it, or is in a group
// that may see all; the first process of the host is root's, and tells which he is.
func Hidden(root string) error {
	proc := filepath.Join(root, "proc")
	if _, err := readSmall(filepath.Join(proc, "1", "stat")); err == nil {
		return nil
	}
	b, err := readLimited(filepath.Join(proc, "self", "mountinfo"), maxMounts*256)
	if err != nil {
		return nil // the list of processes says itself that it cannot be read
	}
	if option := hidesProcesses(b, proc); option != "" {
		return fmt.Errorf("looking at the processes: /proc is mounted with %s, and user %d sees only those of its own", option, os.Geteuid())
	}
	return nil
}

// hidesProcesses returns the option of the proc mounted at a path by which it hides processes; empty when there is none. Later
// mounts lie over earlier ones.
func hidesProcesses(mountinfo []byte, proc string) (option string) {
	for line := range bytes.Lines(mountinfo) {
		m, err := parseMountLine(string(line))
		if err != nil || m.kind != "proc" || m.point != proc {
			continue
		}
		options := strings.Split(m.options, ",")
		i := slices.IndexFunc(options, func(o string) bool {
			value, ok := strings.CutPrefix(o, "hidepid=")
			return ok && value != "0" && value != "off"
		})
		option = ""
		if i >= 0 {
			option = options[i]
		}
	}
	return option
}
