package stats

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// defaultInterface is the interface that a kubelet shows as the node's own.
const defaultInterface = "eth0"

// node reads the node from proc, which, other than the root cgroup, is the same with both versions of cgroups: memory in use
// is MemTotal - MemFree, as libcontainer has it for the root of version 2.
func (p *Provider) node() (*statsapi.NodeStats, error) {
	now := metav1.Now()
	stat, err := p.proc.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading stat: %w", err)
	}
	c := stat.CPUTotal // in seconds; guests are part of user and nice
	total := uint64(math.Round((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)))
	n := &statsapi.NodeStats{
		NodeName: p.cfg.NodeName, StartTime: metav1.Unix(int64(stat.BootTime), 0),
		CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total},
	}
	p.rate("node", n.CPU)
	if err := p.nodeMemory(n, now); err != nil {
		return nil, err
	}
	if n.Network, err = p.network(now); err != nil {
		return nil, err
	}
	n.Rlimit = p.rlimit(now)
	return n, nil
}

func (p *Provider) nodeMemory(n *statsapi.NodeStats, now metav1.Time) error {
	m, err := p.proc.Meminfo()
	if err != nil {
		return fmt.Errorf("reading meminfo: %w", err)
	}
	if m.MemTotalBytes == nil || m.MemFreeBytes == nil {
		return fmt.Errorf("reading meminfo: no MemTotal or MemFree")
	}
	usage := *m.MemTotalBytes - *m.MemFreeBytes
	working := workingSet(usage, *cmp.Or(m.InactiveFileBytes, new(uint64)))
	n.Memory = &statsapi.MemoryStats{
		Time: now, UsageBytes: &usage, WorkingSetBytes: &working, AvailableBytes: new(*m.MemTotalBytes - working), RSSBytes: m.AnonPagesBytes,
	}
	if data, err := os.ReadFile(filepath.Join(p.cfg.Root, "proc/vmstat")); err == nil {
		faults := parseStat(string(data))
		n.Memory.PageFaults, n.Memory.MajorPageFaults = new(faults["pgfault"]), new(faults["pgmajfault"])
	}
	if m.SwapTotalBytes != nil && m.SwapFreeBytes != nil {
		n.Swap = &statsapi.SwapStats{
			Time: now, SwapUsageBytes: new(*m.SwapTotalBytes - *m.SwapFreeBytes), SwapAvailableBytes: m.SwapFreeBytes,
		}
	}
	return nil
}

// workingSet is the usage without what the kernel can drop at once.
func workingSet(usage, inactiveFile uint64) uint64 { return usage - min(usage, inactiveFile) }

func (p *Provider) network(now metav1.Time) (*statsapi.NetworkStats, error) {
	devices, err := p.proc.NetDev()
	if err != nil {
		return nil, fmt.Errorf("reading net/dev: %w", err)
	}
	out := &statsapi.NetworkStats{Time: now}
	for _, d := range devices {
		if d.Name == "lo" {
			continue // cAdvisor leaves it out too
		}
		i := statsapi.InterfaceStats{Name: d.Name, RxBytes: &d.RxBytes, RxErrors: &d.RxErrors, TxBytes: &d.TxBytes, TxErrors: &d.TxErrors}
		if d.Name == defaultInterface {
			out.InterfaceStats = i
		}
		out.Interfaces = append(out.Interfaces, i)
	}
	slices.SortFunc(out.Interfaces, func(a, b statsapi.InterfaceStats) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// rlimit is how many tasks there are and may be (pkg/kubelet/stats/pidlimit upstream). What cannot be read stays nil.
func (p *Provider) rlimit(now metav1.Time) *statsapi.RlimitStats {
	out := &statsapi.RlimitStats{Time: now}
	for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
		if v, err := p.proc.SysctlInts(name); err == nil && len(v) == 1 && (out.MaxPID == nil || int64(v[0]) < *out.MaxPID) {
			out.MaxPID = new(int64(v[0]))
		}
	}
	if data, err := os.ReadFile(filepath.Join(p.cfg.Root, "proc/loadavg")); err == nil {
		out.NumOfRunningProcesses = parseTasks(string(data))
	}
	return out
}

// parseTasks reads the number of tasks out of loadavg: 3518 in "1.36 3.49 4.53 2/3518 3715089". It returns nil if there is
// none.
func parseTasks(loadavg string) *int64 {
	fields := strings.Fields(loadavg)
	if len(fields) < 5 {
		return nil
	}
	_, tasks, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(tasks, 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}
