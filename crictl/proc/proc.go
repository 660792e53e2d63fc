// Package proc tells from /proc which processes are a node's own and which are a pod's. Anybody may choose the name and
// the arguments of a process. Nothing that is read here waits for the process.
package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Self is the folder of this process.
const Self = "/proc/self"

// Dir returns the folder of a process of the host whose files are below root.
func Dir(root string, pid int) string { return filepath.Join(root, "proc", strconv.Itoa(pid)) }

// StatusFields returns the values of a line of /proc/PID/status, such as "Uid:".
func StatusFields(status, key string) []string {
	_, rest, _ := strings.Cut("\n"+status, "\n"+key)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// OtherUser returns the user of a process if it cannot be a daemon of this node; empty when it can. Daemons run as
// root, or as this process's user in a rootless installation (kubernetes#92863). The real and the effective user both
// count, since anybody may start a program that becomes root under another name; they are the first two numbers of
//
//	Uid:	0	0	0	0
func OtherUser(status string) string {
	ids := StatusFields(status, "Uid:")
	if len(ids) < 2 {
		return "unknown"
	}
	i := slices.IndexFunc(ids[:2], func(id string) bool { return id != "0" && id != strconv.Itoa(os.Geteuid()) })
	if i < 0 {
		return ""
	}
	return ids[i]
}

// Nested reports whether a process is in a pid namespace below the one of /proc, as processes of pods and of other
// nodes are.
func Nested(status string) bool { return len(StatusFields(status, "NSpid:")) > 1 }

// maxDepth bounds a chain of parents: process ids are read one after the other, and a reused one could close a circle.
const maxDepth = 64

// ShimAbove returns the topmost shim among the ancestors of a process; 0 for none. All processes of a pod are below
// one. The function parent returns the parent of a process, and the parent's name; false for none.
func ShimAbove(pid int, parent func(pid int) (ppid int, comm string, ok bool)) (shim int) {
	for range maxDepth {
		above, comm, ok := parent(pid)
		if !ok {
			break
		}
		if strings.HasPrefix(comm, "containerd-shim") || strings.HasPrefix(comm, "conmon") {
			shim = above
		}
		pid = above
	}
	return shim
}

// RunsPods reports whether the processes below a shim are pods'. Docker's shims, which work in folders of this name,
// also have the kubelet below them where all parts of a node are containers.
func RunsPods(root string, shim int) bool {
	cwd, err := os.Readlink(filepath.Join(Dir(root, shim), "cwd"))
	return err == nil && !strings.Contains(cwd, "/moby/")
}

// Namespace returns the namespace of a kind (mnt, net, pid) that the process of a folder is in; empty where it may not
// be read.
func Namespace(dir, kind string) string {
	namespace, _ := os.Readlink(filepath.Join(dir, "ns", kind))
	return namespace
}

// Apart reports whether the processes of two folders are known to be in different namespaces of a kind.
func Apart(a, b, kind string) bool {
	first, second := Namespace(a, kind), Namespace(b, kind)
	return first != "" && second != "" && first != second
}
