package stats

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// cgroups reads cgroups, of the version that is mounted.
type cgroups struct {
	root    string
	unified bool // version 2
}

func openCgroups(root string) cgroups {
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	return cgroups{root: root, unified: err == nil}
}

// usage is what the processes of one cgroup use.
type usage struct {
	cpu     *statsapi.CPUStats
	memory  *statsapi.MemoryStats
	process *statsapi.ProcessStats // nil without the controller for pids
}

// unlimited is a limit of memory in version 1 from which on there is none: math.MaxInt64 rounded down to pages, of any size.
const unlimited = math.MaxInt64 &^ (1<<20 - 1)

// read reads one cgroup by its path below the root. One that does not exist is an error that is fs.ErrNotExist.
func (c cgroups) read(path string) (usage, error) {
	names := struct{ cpu, memory, limit, inactive, rss, faults, major string }{
		"cpuacct/%s/cpuacct.usage", "memory/%s/memory.usage_in_bytes", "memory/%s/memory.limit_in_bytes",
		"total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault",
	}
	stat, pids := "memory/%s/memory.stat", "pids/%s/pids.current"
	if c.unified {
		names.cpu, names.memory, names.limit = "%s/cpu.stat", "%s/memory.current", "%s/memory.max"
		names.inactive, names.rss, names.faults, names.major = "inactive_file", "anon", "pgfault", "pgmajfault"
		stat, pids = "%s/memory.stat", "%s/pids.current"
	}
	var errs []error
	file := func(name string) string {
		data, err := os.ReadFile(filepath.Join(c.root, fmt.Sprintf(name, path)))
		errs = append(errs, err)
		return strings.TrimSpace(string(data))
	}
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(file(name), 10, 64)
		errs = append(errs, err)
		return n
	}
	now := metav1.Now()
	var cpu uint64
	if c.unified {
		cpu = parseStat(file(names.cpu))["usage_usec"] * uint64(time.Microsecond)
	} else {
		cpu = number(names.cpu)
	}
	used := number(names.memory)
	memory := parseStat(file(stat))
	if err := errors.Join(errs...); err != nil {
		return usage{}, fmt.Errorf("reading cgroup %s: %w", path, err)
	}
	working := workingSet(used, memory[names.inactive])
	out := usage{
		cpu: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &cpu},
		memory: &statsapi.MemoryStats{
			Time: now, UsageBytes: &used, WorkingSetBytes: &working, RSSBytes: new(memory[names.rss]),
			PageFaults: new(memory[names.faults]), MajorPageFaults: new(memory[names.major]),
		},
	}
	if limit, err := strconv.ParseUint(file(names.limit), 10, 64); err == nil && limit < unlimited {
		out.memory.AvailableBytes = new(workingSet(limit, working))
	}
	if n, err := strconv.ParseUint(file(pids), 10, 64); err == nil {
		out.process = &statsapi.ProcessStats{ProcessCount: &n}
	}
	return out, nil
}

// readContainer reads the cgroup that a runtime makes for a container below its pod's.
func (c cgroups) readContainer(pod, id string) (out usage, err error) {
	for _, name := range []string{id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope", "crio-" + id} {
		if out, err = c.read(filepath.Join(pod, name)); err == nil || !errors.Is(err, os.ErrNotExist) {
			return out, err
		}
	}
	return usage{}, err
}

// CgroupPath is the path of what CRI calls cgroup_parent: a path as it is, or the name of a systemd slice, which lies in
// those that its dashes name: kubepods-besteffort.slice in kubepods.slice.
func CgroupPath(parent string) string {
	if strings.Contains(parent, "/") || !strings.HasSuffix(parent, ".slice") {
		return parent
	}
	var path string
	for i, r := range parent {
		if r == '-' {
			path = filepath.Join(path, parent[:i]+".slice")
		}
	}
	return filepath.Join(path, parent)
}

// parseStat reads lines of a name and a number, as memory.stat, cpu.stat and vmstat have them. Other lines are left out.
func parseStat(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}
