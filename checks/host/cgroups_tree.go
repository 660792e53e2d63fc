package host

import (
	"context"
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

// maxCgroups bounds a walk. A node with 110 pods of three containers each has about 600; twenty thousand are a leak,
// which their number tells better than their names.
const maxCgroups = 20_000

// A hierarchy is a tree of control groups and where it is mounted.
type hierarchy struct {
	point   string   // the folder, as process 1 sees it
	base    string   // the cgroup that is mounted there: / except in a container
	options []string // version 1: its controllers are among them
	unified bool     // version 2
}

// readHierarchies reads where the host has its cgroups mounted, the way process 1 sees it.
func readHierarchies(root string) (hierarchies, error) {
	// 16 MiB are some hundred thousand mounts. A leak of mounts is no reason to lose sight of cgroups, mounted first.
	b, err := readLimited(filepath.Join(root, "proc/1/mountinfo"), 16<<20)
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	all := parseHierarchies(b)
	if len(all) == 0 {
		return nil, errors.New("finding the control groups: none among the mounts of process 1")
	}
	return all, nil
}

type hierarchies []hierarchy

// parseHierarchies finds the control groups in mountinfo (proc_pid_mountinfo(5)):
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
func parseHierarchies(b []byte) hierarchies {
	var all hierarchies
	for line := range strings.Lines(string(b)) {
		m, err := parseMountLine(line)
		if err != nil || m.kind != "cgroup" && m.kind != "cgroup2" {
			continue
		}
		h := hierarchy{base: path.Clean(m.root), point: path.Clean(m.point), unified: m.kind == "cgroup2"}
		if !h.unified {
			h.options = strings.Split(m.options, ",")
		}
		all = append(all, h)
	}
	return all
}

// version is 2 where the unified hierarchy alone is mounted at the usual place, which is what the kubelet and runc go by
// (IsCgroup2UnifiedMode), and 1 otherwise, a hybrid included.
func (all hierarchies) version() int {
	if slices.ContainsFunc(all, func(h hierarchy) bool { return h.unified && h.point == "/sys/fs/cgroup" }) {
		return 2
	}
	return 1
}

// of returns the hierarchy that has a controller: that of version 1 if there is one, or the unified one.
func (all hierarchies) of(controller string) (hierarchy, bool) {
	if i := slices.IndexFunc(all, func(h hierarchy) bool { return slices.Contains(h.options, controller) }); i >= 0 {
		return all[i], true
	}
	return all.unified()
}

func (all hierarchies) unified() (hierarchy, bool) {
	i := slices.IndexFunc(all, func(h hierarchy) bool { return h.unified })
	if i < 0 {
		return hierarchy{}, false
	}
	return all[i], true
}

// dir returns the folder of a cgroup, unless it lies outside of what is mounted.
func (h hierarchy) dir(root, cgroup string) (string, bool) {
	if !path.IsAbs(cgroup) || slices.Contains(strings.Split(cgroup, "/"), "..") {
		return "", false
	}
	rest, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(h.base, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return filepath.Join(root, h.point, rest), true
}

// cgroupIn finds in /proc/PID/cgroup the cgroup that a process has in the hierarchy.
func (h hierarchy) cgroupIn(b []byte, controller string) (string, bool) {
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		if h.unified && parts[0] == "0" && parts[1] == "" || !h.unified && slices.Contains(strings.Split(parts[1], ","), controller) {
			return strings.TrimSuffix(parts[2], " (deleted)"), true
		}
	}
	return "", false
}

// walk visits the cgroups of the hierarchy, those near the root first, with their path and folder. It visits no more
// than maxCgroups and says then that there are more.
func (h hierarchy) walk(ctx context.Context, at *position, root string, visit func(cgroup, dir string)) (seen int, err error) {
	err = explore(ctx, at, filepath.Join(root, h.point), maxCgroups, func(cgroup, dir string, _ int) bool {
		seen++
		visit(cgroup, dir)
		return true
	})
	return seen, err
}

// explore visits the cgroups of a folder, itself as / and those near it first, each with its path, its folder and how many lie
// in it. Those are visited too unless visit says no. Beyond so many it ends, and says that there are more.
func explore(ctx context.Context, at *position, top string, most int, visit func(cgroup, dir string, children int) bool) error {
	seen := 0
	queue := []string{"/"}
	for len(queue) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("walking %s: cut short after %d cgroups: %w", top, seen, err)
		}
		if seen == most {
			return fmt.Errorf("walking %s: more than %d cgroups", top, seen)
		}
		cgroup := queue[0]
		queue = queue[1:]
		dir := filepath.Join(top, cgroup)
		at.enter(dir)
		children, err := subfolders(dir)
		if err != nil && cgroup == "/" {
			return fmt.Errorf("walking %s: %w", top, err)
		}
		if err != nil {
			continue // removed meanwhile
		}
		seen++
		if !visit(cgroup, dir, len(children)) {
			continue
		}
		for _, name := range children[:min(len(children), maxCgroups)] {
			queue = append(queue, path.Join(cgroup, name))
		}
	}
	return nil
}

func subfolders(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A cgroup has less than a hundred files of its own.
	entries, err := f.ReadDir(maxCgroups + 100)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// ownerOfCgroups returns the first owner that a line of /proc/PID/cgroup names. A container or a pod in one line counts
// for more than a unit in another: version 1 lets a process be in different places.
func ownerOfCgroups(b []byte) Owner {
	var unit Owner
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		o := ownerOfCgroup(parts[2])
		if o.ObjectID != "" || o.PodUID != "" {
			return o
		}
		if unit.Unit == "" {
			unit = o
		}
	}
	return unit
}

// ownerOfCgroup reads the owner from a cgroup's path.
func ownerOfCgroup(cgroup string) Owner {
	name := cgroupOf(cgroup)
	o := Owner{ObjectID: name.id, PodUID: name.podUID}
	for dir := path.Clean("/" + cgroup); dir != "/"; dir = path.Dir(dir) {
		base := path.Base(dir)
		if idOfCgroup(base) != "" {
			break
		}
		if o.Unit == "" && isUnit(base) {
			o.Unit = base
		}
		if o.ObjectID == "" && o.PodUID == "" && strings.Contains(path.Dir(dir), "kubepods") {
			o.PodUID = uidOfCgroup(base)
		}
	}
	return o
}

func isUnit(base string) bool {
	return strings.HasSuffix(base, ".service") || strings.HasSuffix(base, ".scope")
}

// isKubepods reports whether a cgroup is the one that holds all pods: /kubepods, /kubepods.slice, or below --cgroup-root
// /kubelet/kubepods and /kubelet.slice/kubelet-kubepods.slice (cgroup_manager_linux.go of the kubelet).
func isKubepods(cgroup string) bool {
	base := path.Base(cgroup)
	return base == "kubepods" || base == "kubepods.slice" || strings.HasSuffix(base, "-kubepods.slice")
}

// inKubepods reports whether a cgroup lies below the one that holds all pods.
func inKubepods(cgroup string) bool {
	for dir := path.Dir(cgroup); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if isKubepods(dir) {
			return true
		}
	}
	return false
}

// countTasks counts the threads in a cgroup, as far as 64 KiB of their ids go.
func countTasks(dir string, unified bool) int {
	file := "tasks"
	if unified {
		file = "cgroup.threads"
	}
	b, err := readSmall(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n := 0
	for field := range strings.FieldsSeq(string(b)) {
		if _, err := strconv.Atoi(field); err == nil {
			n++
		}
	}
	return n
}
