//go:build e2e

package e2etest

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
)

// shared are the causes that another package of tests, or another program, can make real on this node at any time, and
// why: namespaces separate processes, mounts, ports and control groups, but not what the one kernel has one of.
var shared = map[string]string{
	"OOMKilled":        "the kernel has one log",
	"KernelHung":       "the kernel has one log",
	"ClockJumped":      "the machine has one clock",
	"CgroupsLeaked":    "the kernel counts the control groups of all",
	"CPUStarved":       "the processors are shared",
	"RuntimeSlow":      "the processors are shared",
	"RelistOverloaded": "the processors are shared",
	"MemoryPressure":   "the memory is shared",
	"IOStall":          "the disk is shared",
	"DiskFull":         "the disk is shared",
	"InodesExhausted":  "the disk is shared",
}

// own returns the causes of a report that only what the test did can explain, and those that it wants.
func (p Place) own(r *checks.Report, wanted ...string) []checks.Cause {
	return slices.DeleteFunc(slices.Clone(r.Causes), func(c checks.Cause) bool {
		return !p.Alone && shared[c.Code] != "" && !slices.Contains(wanted, c.Code)
	})
}
