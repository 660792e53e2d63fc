package host

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A quota is what a cgroup may use of the CPU, and what was taken away from it since it was made.
type quota struct {
	cores              float64 // 0 for no limit
	periods, throttled uint64
	lost               time.Duration
}

// A throttler is a cgroup with a quota that holds up the runtime or the kubelet.
type throttler struct {
	cgroup, dir string
	role        Role
	first       quota
	at          time.Time
}

// readThrottlers finds the cgroups with a quota that the runtime and the kubelet are in: their own or one above, since
// a limit on the slice throttles too. One without a quota is never throttled.
func readThrottlers(at *position, root string, h hierarchy, people Population) []throttler {
	var list []throttler
	known := map[string]bool{}
	for _, daemon := range people.daemons() {
		at.enter(fmt.Sprintf("the cgroup of process %d (%s)", daemon.PID, daemon.Name))
		own, _ := h.cgroupIn(people.scan.readOf(people.all[daemon.PID], "cgroup"), "cpu")
		for c := own; c != "/" && c != "." && c != "" && !known[c]; c = path.Dir(c) {
			known[c] = true
			dir, ok := h.dir(root, c)
			if !ok {
				break
			}
			q, ok := readQuota(dir, h.unified)
			if !ok || q.cores == 0 {
				continue
			}
			t := throttler{cgroup: c, dir: dir, first: q, at: time.Now()}
			if c == own {
				t.role = daemon.Role
			}
			list = append(list, t)
		}
	}
	return list
}

// throttlings takes the second look at the throttlers.
func throttlings(list []throttler, unified bool) []Throttling {
	var result []Throttling
	for _, t := range list {
		q, ok := readQuota(t.dir, unified)
		if !ok {
			continue
		}
		o := ownerOfCgroup(t.cgroup)
		o.Role = t.role
		result = append(result, throttling(t, q, time.Since(t.at), o))
	}
	return result
}

func throttling(t throttler, now quota, over time.Duration, owner Owner) Throttling {
	return Throttling{
		Path: t.cgroup, Quota: now.cores, Over: over, Owner: owner,
		Periods:   now.periods - min(t.first.periods, now.periods),
		Throttled: now.throttled - min(t.first.throttled, now.throttled),
		Lost:      max(now.lost-t.first.lost, 0),
	}
}

func readQuota(dir string, unified bool) (quota, bool) {
	stat, err := readSmall(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return quota{}, false
	}
	q := parseCPUStat(stat)
	if unified {
		limit, err := readSmall(filepath.Join(dir, "cpu.max"))
		if err != nil {
			return quota{}, false
		}
		q.cores = parseCPUMax(limit)
		return q, true
	}
	limit, err := readSmall(filepath.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return quota{}, false
	}
	period, err := readSmall(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return quota{}, false
	}
	q.cores = cores(string(limit), string(period))
	return q, true
}

// parseCPUStat reads cpu.stat. The time lost is in microseconds in version 2 and in nanoseconds in version 1.
func parseCPUStat(b []byte) quota {
	const century = 100 * 365 * 24 * time.Hour
	var q quota
	q.periods, _ = keyed(b, "nr_periods")
	q.throttled, _ = keyed(b, "nr_throttled")
	if us, ok := keyed(b, "throttled_usec"); ok {
		q.lost = time.Duration(min(us, uint64(century/time.Microsecond))) * time.Microsecond
	} else if ns, ok := keyed(b, "throttled_time"); ok {
		q.lost = time.Duration(min(ns, uint64(century)))
	}
	return q
}

// parseCPUMax reads cpu.max, a quota and a period in microseconds: "max 100000" or "50000 100000".
func parseCPUMax(b []byte) float64 {
	limit, period, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	return cores(limit, period)
}

// cores divides the quota by the period; version 1 says -1 and version 2 max for no limit.
func cores(limit, period string) float64 {
	l, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
	if err != nil || l <= 0 {
		return 0
	}
	p, err := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if err != nil || p <= 0 {
		return 0
	}
	return float64(l) / float64(p)
}
