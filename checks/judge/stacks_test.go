package judge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
)

// TestStacks judges what dumps show: the verdict, and the commands of the next steps.
func TestStacks(t *testing.T) {
	long := 180.0
	read := []checks.StackSource{{Process: "containerd", PID: 4711, Goroutines: 9}}
	waits := func(thing string) *checks.StacksReport {
		return &checks.StacksReport{Sources: read, Waits: []checks.StackWait{{WaitsFor: thing, MaxSeconds: &long}}}
	}
	holder := func(role, state string, blocks int, seconds *float64) *checks.StacksReport {
		h := checks.StackHolder{Blocks: blocks, Seconds: seconds, Process: &checks.Process{
			PID: 5000, Name: role, Role: role, State: state,
		}}
		return &checks.StacksReport{Sources: read, Holders: []checks.StackHolder{h}}
	}
	threads := func(state string) *checks.StacksReport {
		return &checks.StacksReport{Sources: []checks.StackSource{
			{PID: 4711, Problem: "no dump", Kernel: []checks.KernelStack{{Threads: 9, State: state}}},
		}}
	}
	const look = "grep -E 'State|TracerPid' /proc/5000/status; grep . /proc/5000/task/*/wchan"
	tests := []struct {
		name   string
		report *checks.StacksReport
		want   string
	}{
		{"nobody waits", &checks.StacksReport{Sources: read}, "healthy"},
		{"nothing was read", &checks.StacksReport{}, "unknown, pleg"},
		{
			"a part was not read", &checks.StacksReport{Sources: append(read, checks.StackSource{Problem: "x"})},
			"unknown, pleg",
		},
		{"a lock without a holder", waits("lock"), "degraded, pleg, bundle"},
		{"a shim, one does not know which", waits("ttrpc"), "healthy, stacks --capture --shim stuck"},
		{"a network", waits("network"), "healthy"},
		{"a stopped shim", holder("shim", "stopped", 8, nil), "unhealthy, bundle, kill -CONT 5000"},
		{"a traced shim", holder("shim", "stopped by a tracer", 8, nil), "unhealthy, " + look + ", bundle"},
		{"a shim that runs", holder("shim", "sleeping", 8, nil), "unhealthy, stacks --shim 5000, bundle"},
		{"a shim in the kernel", holder("shim", "uninterruptible sleep", 8, nil), "unhealthy, " + look + ", bundle"},
		{"runc of the moment", holder("oci", "sleeping", 8, nil), "unhealthy, " + look + ", bundle"},
		{"runc for long", holder("oci", "sleeping", 8, &long), "unhealthy, " + look + ", bundle, kill -KILL 5000"},
		{
			"runc, for a goroutine alone", holder("oci", "sleeping", 0, nil),
			"unhealthy, " + look + ", bundle, kill -KILL 5000",
		},
		{"a stopped daemon", threads("T"), "unhealthy, bundle, kill -CONT 4711"},
		{
			"a daemon in the kernel", threads("D"),
			"unhealthy, " + strings.ReplaceAll(look, "5000", "4711") + ", bundle",
		},
		{"a daemon that sleeps", threads("S"), "unknown, pleg"},
	}
	for _, tc := range tests {
		judge.Stacks(tc.report, judge.StackCommands{Stacks: "stacks", Pleg: "pleg", Bundle: "bundle"})
		got := []string{string(tc.report.Status)}
		for _, s := range tc.report.NextSteps {
			got = append(got, s.Command)
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
