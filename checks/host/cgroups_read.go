package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ReadCgroups reads how many control groups there are, which of them are frozen, and what the CPU controller takes away
// from the runtime and the kubelet between two looks. With an error there may be a part of it.
func ReadCgroups(ctx context.Context, root string, people Population, between time.Duration) (Cgroups, error) {
	return within(ctx, func(at *position) (Cgroups, error) {
		all, err := readHierarchies(root)
		if err != nil {
			return Cgroups{}, err
		}
		began := time.Now()
		cpu, _ := all.of("cpu")
		throttlers := readThrottlers(at, root, cpu, people)

		c := Cgroups{Version: all.version(), Dying: -1}
		counted := c.count(ctx, at, root, all)
		var walked error
		c.Frozen, walked = readFrozen(ctx, at, root, all)

		err = errors.Join(people.gap(), counted, walked)
		if len(throttlers) == 0 {
			return c, err
		}
		if e := pause(ctx, between-time.Since(began)); e != nil {
			return c, errors.Join(err, fmt.Errorf("looking at cpu.stat again: %w", e))
		}
		c.Throttled = throttlings(throttlers, cpu.unified)
		return c, err
	})
}

// count reads how many cgroups there are, the dying ones included.
func (c *Cgroups) count(ctx context.Context, at *position, root string, all hierarchies) error {
	if c.Version == 2 {
		h, _ := all.unified()
		b, err := readSmall(filepath.Join(root, h.point, "cgroup.stat"))
		if err != nil {
			return fmt.Errorf("counting cgroups: %w", err)
		}
		c.Total, c.Dying = parseCgroupStat(b)
		return nil
	}
	at.enter("the number of cgroups")
	b, err := readSmall(filepath.Join(root, "proc/cgroups"))
	if err != nil {
		return fmt.Errorf("counting cgroups: %w", err)
	}
	c.ByController = parseControllers(b)
	for _, n := range c.ByController {
		c.Total = max(c.Total, n)
	}
	return c.countDying(ctx, at, root, all)
}

// countDying compares the kernel's number of memory cgroups with the folders that there are. The number falls only when
// the last page that is charged to a removed cgroup is freed (css_free_rwork_fn in kernel/cgroup/cgroup.c). A walk that
// was cut short tells nothing.
func (c *Cgroups) countDying(ctx context.Context, at *position, root string, all hierarchies) error {
	memory, ok := all.of("memory")
	if !ok || memory.unified || memory.base != "/" {
		return nil
	}
	folders, err := memory.walk(ctx, at, root, func(string, string) {})
	if err != nil {
		return fmt.Errorf("counting memory cgroups: %w", err)
	}
	c.Dying = max(c.ByController["memory"]-folders, 0)
	return nil
}

// parseCgroupStat reads cgroup.stat of version 2. The kernel counts the dying since Linux 4.14.
func parseCgroupStat(b []byte) (total, dying int) {
	dying = -1
	if n, ok := keyed(b, "nr_descendants"); ok {
		total = bounded(n)
	}
	if n, ok := keyed(b, "nr_dying_descendants"); ok {
		dying = bounded(n)
	}
	return total, dying
}

// bounded makes a number from a file fit; more than a billion cgroups are none.
func bounded(n uint64) int { return int(min(n, 1_000_000_000)) }

// parseControllers reads the number of cgroups of each controller of version 1 from /proc/cgroups; those that are not
// mounted there have hierarchy 0:
//
//	#subsys_name	hierarchy	num_cgroups	enabled
//	memory	4	36	1
func parseControllers(b []byte) map[string]int {
	numbers := map[string]int{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) != 4 || strings.HasPrefix(fields[0], "#") || fields[1] == "0" {
			continue
		}
		if n, err := strconv.ParseUint(fields[2], 10, 64); err == nil {
			numbers[fields[0]] = bounded(n)
		}
	}
	return numbers
}
