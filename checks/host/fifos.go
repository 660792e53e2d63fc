package host

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// opensFIFO is the kernel function in which the opening of a FIFO waits for its other end (fs/pipe.c).
	opensFIFO = "wait_for_partner"
	maxFIFOs  = 20
)

// A FIFOWait is a thread of the runtime, the kubelet or conmon that waits in the opening of a FIFO, in two reads some
// time apart. The FIFOs of containerd and its shims, which they open through their descriptors, are not among them: it
// waits there whenever a container is made.
type FIFOWait struct {
	PID, TID int
	Name     string // comm of the process
	Path     string // absolute, as the process sees it
	Owner
}

// mayOpen reports whether the opens of a process's threads are looked at.
func mayOpen(p Process) bool {
	return p.Role == RoleRuntime || p.Role == RoleKubelet || p.Role == RoleShim && strings.HasPrefix(p.Name, "conmon")
}

// fifos returns what the threads that still wait in the opening of a FIFO open.
func (p Population) fifos(ctx context.Context, waiting []suspect) (list []FIFOWait, _ error) {
	dirs := map[string]suspect{}
	for _, s := range waiting {
		dirs[s.dir] = s
	}
	paths, err := gather(ctx, "reading what threads open", slices.Sorted(maps.Keys(dirs)),
		func(at *position, dir string) (string, bool) {
			at.enter("%s/syscall", dir)
			s := dirs[dir]
			path := p.opened(s)
			if !filepath.IsAbs(path) || strings.HasPrefix(path, "/proc/") {
				return "", false
			}
			// One that was removed holds the thread for ever, and nobody else.
			at.enter("%s", path)
			var st unix.Stat_t
			err := unix.Stat(filepath.Join(p.dir(s.PID), "root", path), &st)
			return path, err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
		})
	for dir, path := range paths {
		s := dirs[dir]
		known := p.roles[s.PID]
		list = append(list, FIFOWait{
			PID: s.PID, TID: s.TID, Name: known.Name, Path: path, Owner: Owner{Role: known.Role, ObjectID: known.ObjectID},
		})
	}
	return top(list, maxFIFOs, func(a, b FIFOWait) int { return a.TID - b.TID }), err
}

// opened returns the path that a thread opens: the second argument of openat(2), in the memory of its process.
//
//	257 0xffffffffffffff9c 0xc0006c9180 0x80441 0x1a0 0x0 0x0 0xc0009d8750 0xc6200e
func (p Population) opened(s suspect) string {
	call, _ := readSmall(s.dir, "syscall")
	f := strings.Fields(call)
	if len(f) != 9 || !s.stayed() {
		return ""
	}
	at, err := strconv.ParseInt(strings.TrimPrefix(f[2], "0x"), 16, 64)
	if err != nil {
		return ""
	}
	fd, err := unix.Open(filepath.Join(p.dir(s.PID), "mem"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	text := make([]byte, unix.PathMax)
	n, err := unix.Pread(fd, text, at) // up to the end of what is mapped
	if err != nil {
		return ""
	}
	path, _, found := strings.Cut(string(text[:n]), "\x00")
	if !found {
		return ""
	}
	return path
}
