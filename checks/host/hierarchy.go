package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// maxCgroups bounds the groups that are listed. A node with 110 pods of three containers each has about 600 control
// groups; twenty thousand are a leak, which their number shows better than their names.
const maxCgroups = 20_000

// A CgroupFS is the control groups of a node. Their folders are listed once in a run, by whichever reader comes first.
// Each reader then reads its own files of them: a file that hangs, such as memory.stat, costs no other reader anything.
type CgroupFS struct {
	root string
	read func() (hierarchies, error)
}

// NewCgroupFS returns the control groups of the host whose files are below root. Nothing is read yet.
func NewCgroupFS(root string) *CgroupFS {
	return &CgroupFS{root, sync.OnceValues(func() (hierarchies, error) { return readHierarchies(root) })}
}

// of returns the hierarchy that has a controller.
func (fs *CgroupFS) of(controller string) (*hierarchy, error) {
	all, err := fs.read()
	if err != nil {
		return nil, err
	}
	return all.of(controller)
}

// A hierarchy is a tree of control groups and where it is mounted.
type hierarchy struct {
	root    string   // below which the host's files are
	point   string   // the folder, as the host sees it
	base    string   // the cgroup that is mounted there: / except in a container
	options []string // version 1: its controllers are among them
	unified bool     // version 2

	mu     sync.Mutex
	groups []group // those near the root first
	listed int     // the groups whose folders have been read
}

// A group is one control group of a hierarchy.
type group struct {
	path     string // as in /proc/PID/cgroup
	dir      string // the folder of its files, as the host sees it
	children int    // groups directly below it
}

type hierarchies []*hierarchy

// readHierarchies reads where the host has its cgroups mounted.
func readHierarchies(root string) (hierarchies, error) {
	table, err := readMounts(root, "cgroup")
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	all := table.hierarchies(root)
	if len(all) == 0 {
		return nil, errors.New("finding the control groups: none among the host's mounts")
	}
	return all, nil
}

// hierarchies returns the control groups among the mounts:
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
func (t mountTable) hierarchies(root string) (all hierarchies) {
	for _, m := range t.lines {
		h := &hierarchy{root: root, base: path.Clean(m.root), point: path.Clean(m.point)}
		switch m.kind {
		case "cgroup":
			h.options = strings.Split(m.options, ",")
		case "cgroup2":
			h.unified = true
		default:
			continue
		}
		all = append(all, h)
	}
	return all
}

// version returns 2 if the unified hierarchy is mounted at /sys/fs/cgroup, as the kubelet and runc decide it
// (IsCgroup2UnifiedMode), and 1 otherwise, also for a hybrid.
func (all hierarchies) version() int {
	if slices.ContainsFunc(all, func(h *hierarchy) bool { return h.unified && h.point == "/sys/fs/cgroup" }) {
		return 2
	}
	return 1
}

// of returns the hierarchy that has a controller: that of version 1 if there is one, or the unified one. No controller
// means the unified one.
func (all hierarchies) of(controller string) (*hierarchy, error) {
	i := slices.IndexFunc(all, func(h *hierarchy) bool { return slices.Contains(h.options, controller) })
	if i < 0 {
		i = slices.IndexFunc(all, func(h *hierarchy) bool { return h.unified })
	}
	if i < 0 {
		return nil, fmt.Errorf("no hierarchy of control groups has the %s controller", controller)
	}
	return all[i], nil
}

// folder returns the folder of a cgroup as the host sees it.
func (h *hierarchy) folder(cgroup string) (string, error) {
	rest, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(h.base, "/"))
	if !ok || rest != "" && rest[0] != '/' || path.Clean(cgroup) != cgroup {
		return "", fmt.Errorf("looking into %s: it is outside of the mount at %s", cgroup, h.point)
	}
	return path.Join(h.point, rest), nil
}

// A membership is a line of /proc/PID/cgroup: the cgroup of a process in one hierarchy.
type membership struct {
	controllers []string // an empty one in the unified hierarchy
	cgroup      string
}

func parseMemberships(text string) []membership {
	var all []membership
	for line := range strings.Lines(text) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			all = append(all, membership{strings.Split(f[1], ","), strings.TrimSuffix(f[2], " (deleted)")})
		}
	}
	return all
}

// cgroupOf finds the cgroup that a process has in the hierarchy among all of the process.
func (h *hierarchy) cgroupOf(all []membership, controller string) string {
	if h.unified {
		controller = ""
	}
	i := slices.IndexFunc(all, func(m membership) bool { return slices.Contains(m.controllers, controller) })
	if i < 0 {
		return ""
	}
	return all[i].cgroup
}

// A daemonGroup is a cgroup that the runtime or the kubelet is in, or one above it.
type daemonGroup struct {
	group
	role    Role  // of the daemon that is in it; empty for one above
	daemons []int // all daemons in it and below, by process id
}

// daemonGroups returns the cgroups of the runtime and the kubelet and those above them, each once.
func (p Population) daemonGroups(at *position, h *hierarchy, controller string) (list []daemonGroup) {
	add := func(cgroup string, role Role, daemons ...int) {
		i := slices.IndexFunc(list, func(g daemonGroup) bool { return g.path == cgroup })
		if dir, err := h.folder(cgroup); i < 0 && err == nil {
			i, list = len(list), append(list, daemonGroup{group{path: cgroup, dir: dir}, role, nil})
		}
		if i >= 0 {
			list[i].daemons = append(list[i].daemons, daemons...)
		}
	}
	for _, daemon := range p.daemons() {
		if cgroup := h.cgroupOf(p.cgroups(at, daemon.PID), controller); cgroup != "/" {
			add(cgroup, daemon.Role, daemon.PID)
		}
	}
	for _, g := range slices.Clone(list) {
		for above := path.Dir(g.path); above != "/"; above = path.Dir(above) {
			add(above, "", g.daemons...)
		}
	}
	return list
}

// each calls visit with every group, those near the root first. It is an error that there are more than maxCgroups, of
// which the others are visited.
func (h *hierarchy) each(ctx context.Context, at *position, visit func(g group)) error {
	groups, err := h.list(ctx, at)
	for i, g := range groups {
		if ctx.Err() != nil {
			return fmt.Errorf("walking %s: cut short after %d cgroups: %w", h.point, i, ctx.Err())
		}
		at.enter("%s", g.dir)
		visit(g)
	}
	return err
}

// eachOwner calls visit with the groups below top that have an owner: those of pods, containers and units, and others
// without children. Groups inside of one are not visited.
func (h *hierarchy) eachOwner(ctx context.Context, at *position, top string, visit func(g group)) error {
	inside := map[string]bool{}
	return h.each(ctx, at, func(g group) {
		switch {
		case g.path == top || !below(g.path, top):
		case inside[path.Dir(g.path)]:
			inside[g.path] = true
		case g.children == 0 || isOwnerGroup(g.path):
			inside[g.path] = true
			visit(g)
		}
	})
}

// list returns the groups of the hierarchy. A reader whose time ends in it leaves the rest to the next one.
func (h *hierarchy) list(ctx context.Context, at *position) ([]group, error) {
	at.enter("the control groups at %s", h.point)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups == nil {
		h.groups = []group{{path: h.base, dir: h.point}}
	}
	for ; h.listed < len(h.groups); h.listed++ {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("walking %s: cut short after %d cgroups: %w", h.point, h.listed, ctx.Err())
		}
		if h.listed == maxCgroups {
			return h.groups[:h.listed], fmt.Errorf("walking %s: more than %d cgroups", h.point, h.listed)
		}
		g := h.groups[h.listed]
		at.enter("%s", g.dir)
		entries, err := os.ReadDir(filepath.Join(h.root, g.dir))
		if err != nil && h.listed == 0 {
			return nil, fmt.Errorf("walking %s: %w", h.point, err)
		}
		for _, e := range entries { // none of a group that was removed meanwhile
			if e.IsDir() {
				g.children++
				h.groups = append(h.groups, group{path: path.Join(g.path, e.Name()), dir: path.Join(g.dir, e.Name())})
			}
		}
		h.groups[h.listed] = g
	}
	return h.groups, nil
}

// ownerOfCgroups returns the first owner among the cgroups of a process. A container or a pod in one hierarchy counts
// for more than a unit in another: version 1 lets a process be in different places.
func ownerOfCgroups(all []membership) Owner {
	var unit Owner
	for _, m := range all {
		o := OwnerOfCgroup(m.cgroup)
		if o.ObjectID != "" || o.PodUID != "" {
			return o
		}
		if unit.Unit == "" {
			unit = o
		}
	}
	return unit
}

// OwnerOfCgroup reads from a cgroup's path the pod and its container, else the innermost container, and the innermost
// unit in it:
//
//	/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1b2c_3d.slice/cri-containerd-<id>.scope
//	/kubepods/burstable/pod1b2c-3d/<id>
//	/system.slice/containerd.service
func OwnerOfCgroup(cgroup string) Owner {
	var o Owner
	inner := "" // the container of the group below
	for dir := path.Clean("/" + cgroup); dir != "/"; dir = path.Dir(dir) {
		base := path.Base(dir)
		id, uid := idOfCgroup(base), uidOfCgroup(base)
		switch {
		case uid != "" && inKubepods(dir): // the outermost: in its own groups a pod may use any names
			o.PodUID, o.ObjectID = uid, inner
		case o.ObjectID == "" && id != "":
			o.ObjectID = id
		case o.ObjectID == "" && o.Unit == "" && isUnit(base):
			o.Unit = base
		case o.PodUID == "" && o.ObjectID != "":
			o.PodUID = uid
		}
		inner = id
	}
	return o
}

var (
	// containerGroup is a cgroup of a container: its id alone or in the name of a systemd scope, where runtimes put a
	// prefix before it, or at the end of a systemd path that was given to the cgroupfs driver.
	containerGroup = lazyregexp.New(
		`^(?:.*:|(?:cri-containerd|crio-conmon|crio|docker|libpod)-)?([0-9a-f]{64})(?:\.scope)?$`)
	// podGroup is a cgroup of a pod: kubepods-burstable-pod1b2c_3d.slice, or pod1b2c-3d with the cgroupfs driver.
	podGroup = lazyregexp.New(`^(?:.*kubepods.*-pod(.+)\.slice|pod([^.]+))$`)
)

// idOfCgroup returns the container that a cgroup's name holds.
func idOfCgroup(base string) string { return captured(containerGroup, base) }

// uidOfCgroup returns the pod's UID that a cgroup's name holds. The systemd driver writes _ for each - of the UID.
func uidOfCgroup(base string) string {
	return strings.ReplaceAll(captured(podGroup, base), "_", "-")
}

// captured returns what the groups of a pattern match, one after the other; empty where it does not match.
func captured(pattern *lazyregexp.Regexp, s string) string {
	return strings.Join(append(pattern.FindStringSubmatch(s), "")[1:], "")
}

func isUnit(base string) bool {
	return strings.HasSuffix(base, ".service") || strings.HasSuffix(base, ".scope")
}

// isOwnerGroup reports whether a group is that of a pod, a container or a unit. Slices, and the groups of a quality
// of service, only hold others.
func isOwnerGroup(cgroup string) bool {
	base := path.Base(cgroup)
	return isUnit(base) || idOfCgroup(base) != "" || inKubepods(cgroup) && uidOfCgroup(base) != ""
}

// isKubepods reports whether a cgroup is the one that holds all pods: /kubepods, /kubepods.slice, or below
// --cgroup-root /kubelet/kubepods and /kubelet.slice/kubelet-kubepods.slice (cgroup_manager_linux.go of the kubelet).
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
