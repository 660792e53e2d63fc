package host

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a mount table. A node with more mounts than that has its diagnosis in their number
// (fs.mount-max is 100000 for each namespace).
const (
	maxMounts    = 20_000
	maxMountLine = 64 << 10 // bytes: two paths of 4096, each byte escaped as four, and options of some pages
)

// unknownType counts the lines of a mount table that are malformed.
const unknownType = "unknown"

// A mountLine is a line of mountinfo.
type mountLine struct {
	id       int
	parent   int    // the mount on which it lies
	pid      int    // of a process in whose mount namespace it is; 0 for the host's
	device   string // of the superblock, major:minor
	root     string // what of the file system is mounted
	point    string
	kind     string // nfs4, fuse.s3fs, ext4, ...
	source   string
	options  string // of the file system
	readOnly bool   // the mount or the whole file system
	noExec   bool   // no program on it can be started
}

// within is the path to a mount from the host.
func (m mountLine) within() string {
	if m.pid == 0 {
		return m.point
	}
	return path.Join("/proc", strconv.Itoa(m.pid), "root", m.point)
}

// A mountTable is the mounts of one namespace in their order: the later lies over the earlier.
type mountTable struct {
	lines  []mountLine // at most maxMounts
	total  int
	byType map[string]int
}

// parseMountLine parses a line of /proc/PID/mountinfo (Documentation/filesystems/proc.rst, 3.5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
//
// The number of optional fields before the lone hyphen varies.
func parseMountLine(line string) (mountLine, error) {
	before, after, ok := strings.Cut(line, " - ")
	if !ok {
		return mountLine{}, errors.New("no separator in the line")
	}
	f := strings.Fields(before)
	// The source may be empty, which leaves two spaces and is why these are not Fields.
	of := strings.Split(strings.TrimRight(after, "\n"), " ")
	if len(f) < 6 || len(of) < 3 {
		return mountLine{}, errors.New("too few fields in the line")
	}
	point := escapes.Replace(f[4])
	if !path.IsAbs(point) || of[0] == "" || !strings.Contains(f[2], ":") {
		return mountLine{}, errors.New("a field of the line is malformed")
	}
	id, _ := strconv.Atoi(f[0]) // the kernel's numbers
	parent, _ := strconv.Atoi(f[1])
	// Since Linux 6.15 ext4 stays mounted read-write after an error, and refuses writes.
	readOnly := func(options string) bool {
		return slices.ContainsFunc(strings.Split(options, ","), func(o string) bool {
			return o == "ro" || o == "emergency_ro" || o == "shutdown"
		})
	}
	return mountLine{
		id: id, parent: parent, device: f[2], root: escapes.Replace(f[3]), point: point,
		kind: escapes.Replace(of[0]), source: escapes.Replace(of[1]), options: of[2],
		readOnly: readOnly(f[5]) || readOnly(of[2]), noExec: slices.Contains(strings.Split(f[5], ","), "noexec"),
	}, nil
}

// escapes are what the kernel writes for space, tab, line feed, backslash and # (mangle in fs/proc_namespace.c).
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// readMounts reads the host's mount table: this process's where it runs on the host, else that of the host's first
// process. With a kind it reads only mounts whose type begins with that: a node may have thousands of others. A line
// that is not understood is counted and not kept.
func readMounts(root, kind string) (mountTable, error) {
	of := "proc/1/mountinfo"
	if filepath.Clean(root) == "/" {
		of = "proc/self/mountinfo"
	}
	f, err := os.Open(filepath.Join(root, of))
	if err != nil {
		return mountTable{}, fmt.Errorf("reading the mount table: %w", err)
	}
	defer f.Close()
	t, err := parseMounts(f, kind)
	if err != nil {
		return t, fmt.Errorf("reading the mount table: %w", err)
	}
	return t, nil
}

func parseMounts(r io.Reader, kind string) (mountTable, error) {
	t := mountTable{byType: map[string]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMountLine)
	for lines.Scan() {
		if kind != "" && !bytes.Contains(lines.Bytes(), []byte(" - "+kind)) {
			continue
		}
		t.total++
		m, err := parseMountLine(lines.Text())
		t.byType[cmp.Or(m.kind, unknownType)]++
		if err == nil && len(t.lines) < maxMounts {
			t.lines = append(t.lines, m)
		}
	}
	return t, lines.Err()
}

// under returns the mount that a path of the host lies on; false where there is no such path.
func (t mountTable) under(base, name string) (mountLine, bool) {
	name, exists := t.resolve(base, name)
	m, mounted := t.of(name)
	return m, exists && mounted
}

// of returns the mount that a path without symbolic links lies on.
func (t mountTable) of(name string) (mountLine, bool) {
	var best mountLine
	for _, m := range t.lines {
		if below(name, m.point) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best, best.point != ""
}

// hidden returns the mounts below a folder that others lie over: no path leads to them, so nobody can unmount them, and
// their folders cannot be removed (EBUSY).
func (t mountTable) hidden(dir string) (found []HiddenMount) {
	byID, at := map[int]mountLine{}, map[string][]mountLine{}
	for _, m := range t.lines {
		byID[m.id] = m
		at[m.point] = append(at[m.point], m)
	}
	for _, m := range t.lines {
		if !below(m.point, dir) {
			continue
		}
		above := map[int]bool{} // the mounts that it lies on
		for on := m; on.id != 0 && !above[on.id]; on = byID[on.parent] {
			above[on.id] = true
		}
		for folder := path.Dir(m.point); folder != "/"; folder = path.Dir(folder) {
			for _, other := range at[folder] {
				if !above[other.id] && above[other.parent] {
					found = append(found, HiddenMount{m.point, volumeOf(m.point, dir).PodUID, other.point})
				}
			}
		}
	}
	return found
}

// below reports whether a clean path is dir or lies in it.
func below(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}

// remote reports whether answers of a file system depend on another machine or on a process.
func remote(kind string) bool {
	return strings.HasPrefix(kind, "fuse.") || slices.Contains([]string{
		"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs2", "glusterfs", "gpfs", "lustre",
		"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
	}, kind)
}

// inMemory reports whether a file system never waits for a disk or a server.
func inMemory(kind string) bool {
	return slices.Contains([]string{
		"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
		"hugetlbfs", "mqueue", "nfsd", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs",
		"sysfs", "tmpfs", "tracefs",
	}, kind)
}

// maxLinks is how many symbolic links a path may returnMargin through, as in the kernel (MAXSYMLINKS).
const maxLinks = 40

// resolve follows the symbolic links of a path as the host would, and reports whether the file exists.
// Below base the host's files are seen. Nothing on a file system that can hang is looked at: from the first of those on
// the path is taken as it is.
func (t mountTable) resolve(base, name string) (string, bool) {
	done, links := "/", 0
	rest := strings.Split(path.Clean("/"+name), "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		if m, _ := t.of(next); remote(m.kind) || m.kind == "autofs" {
			return path.Join(append([]string{next}, rest...)...), true
		}
		target, err := os.Readlink(filepath.Join(base, next))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return "", false
		case err != nil: // no link, or it may not be read
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", false
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, true
}

// hostBase returns the folder below which the host's files are seen as the host sees them. In a privileged pod that
// is the root of the host's first process: mounts made after the pod began are there, which a volume of the host's
// root lacks.
func hostBase(root string) string {
	if filepath.Clean(root) == "/" {
		return "/"
	}
	first := filepath.Join(root, "proc/1/root")
	if _, err := os.Stat(first); err == nil {
		return first
	}
	return root
}
