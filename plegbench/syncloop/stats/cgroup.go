package stats

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A usage is what a cgroup and those below it use: CPU time since their start in nanoseconds, and bytes.
type usage struct{ cpu, memory, inactive, rss, swap uint64 }

// stats returns the usage as parts of a summary. The working set is the memory without files that the kernel can drop
// at once.
func (u usage) stats() (*statsapi.CPUStats, *statsapi.MemoryStats, *statsapi.SwapStats) {
	now := metav1.Now()
	return &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &u.cpu},
		&statsapi.MemoryStats{
			Time: now, UsageBytes: &u.memory, WorkingSetBytes: new(u.memory - min(u.memory, u.inactive)), RSSBytes: &u.rss,
		}, &statsapi.SwapStats{Time: now, SwapUsageBytes: &u.swap}
}

// cgroup reads the usage of a cgroup of version 2, or of the hierarchies of version 1, as cAdvisor does. The root of
// version 2 has no memory, and is an error.
func (p *Provider) cgroup(path string) (u usage, err error) {
	root := filepath.Join(p.cfg.Root, "sys/fs/cgroup")
	read := func(into *uint64, controller, file, key string) {
		data, readErr := os.ReadFile(filepath.Join(root, controller, path, file))
		text := string(data)
		if key != "" {
			_, text, _ = strings.Cut("\n"+text, "\n"+key+" ")
			text, _, _ = strings.Cut(text, "\n")
		}
		if readErr == nil && text != "" { // kernels without accounting of swap have no key for it
			*into, readErr = strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		}
		err = cmp.Or(err, readErr)
	}
	if _, v1 := os.Stat(filepath.Join(root, "cgroup.controllers")); v1 == nil {
		read(&u.cpu, "", "cpu.stat", "usage_usec")
		u.cpu *= uint64(time.Microsecond)
		read(&u.memory, "", "memory.current", "")
		read(&u.inactive, "", "memory.stat", "inactive_file")
		read(&u.rss, "", "memory.stat", "anon")
		if _, none := os.Stat(filepath.Join(root, path, "memory.swap.current")); none == nil {
			read(&u.swap, "", "memory.swap.current", "")
		}
	} else {
		read(&u.cpu, "cpuacct", "cpuacct.usage", "")
		read(&u.memory, "memory", "memory.usage_in_bytes", "")
		read(&u.inactive, "memory", "memory.stat", "total_inactive_file")
		read(&u.rss, "memory", "memory.stat", "total_rss")
		read(&u.swap, "memory", "memory.stat", "total_swap")
	}
	if err != nil {
		err = fmt.Errorf("reading the cgroup %s: %w", path, err)
	}
	return u, err
}

// rates sets the mean usage of CPUs since the last summary, where the runtime does not.
func (p *Provider) rates(s *statsapi.Summary) {
	all := map[string]*statsapi.CPUStats{"": s.Node.CPU}
	for _, pod := range s.Pods {
		all[pod.PodRef.UID] = pod.CPU
		for _, c := range pod.Containers {
			all[pod.PodRef.UID+"/"+c.Name] = c.CPU
		}
	}
	for key, now := range all {
		before := p.cpu[key]
		if now == nil || before == nil || now.UsageNanoCores != nil || now.UsageCoreNanoSeconds == nil ||
			before.UsageCoreNanoSeconds == nil || *now.UsageCoreNanoSeconds < *before.UsageCoreNanoSeconds {
			continue
		}
		if period := now.Time.Sub(before.Time.Time).Seconds(); period > 0 {
			used := float64(*now.UsageCoreNanoSeconds - *before.UsageCoreNanoSeconds)
			now.UsageNanoCores = new(uint64(used / period))
		}
	}
	p.cpu = all
}
