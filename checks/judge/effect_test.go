package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
)

// TestEffect has what causes do to the node, by the version of its kubelet, in the language of the scenarios.
func TestEffect(t *testing.T) {
	defined := map[string]string{}
	scenarioFiles(t, defined)
	const once, twice = "host\nkubelet\nthe kubelet is 1.36\n", "host\nkubelet\nthe kubelet is 1.35\n"
	for _, tt := range []struct{ name, code, node, want string }{
		{
			"one pod hangs", "InspectHang", "status hangs container1-0",
			"kubelet <= 1.35: NotReady about every 4m; kubelet >= 1.36: Ready, pod updates 2m late",
		},
		{
			"one pod hangs in 1.36", "InspectHang", once + "status hangs container1-0",
			"kubelet 1.36: Ready, pod updates 2m late",
		},
		{
			"one pod hangs in 1.35", "InspectHang", twice + "status hangs container1-0",
			"kubelet 1.35: NotReady about every 4m",
		},
		{
			"two pods hang in 1.36, and no more is known", "InspectHang",
			once + "status hangs container1-0 container2-0\nSummary = null", "kubelet 1.36: NotReady about every 4m",
		},
		{
			"a kubelet that waits for 30 s", "InspectHang",
			"status hangs container1-0\nKubelet.RequestTimeout = 30s\nSummary = null",
			"kubelet <= 1.35: Ready, pod updates 1m late; kubelet >= 1.36: Ready, pod updates 30s late",
		},
		{"a status that is answered", "InspectHang", "status Unknown no such device", ""},
		{
			"over after a restart only", "RelistOverloaded",
			"Summary.ProjectedSeconds = 0.285\nSummary.ColdSeconds = 323",
			"kubelet: Ready now (a relist takes 285ms); " +
				"do not restart the kubelet: NotReady from 3m to 5m24s after it",
		},
		{
			"over now", "RelistOverloaded", "Summary.ProjectedSeconds = 240\nSummary.ProjectedAgeSeconds = 242",
			"kubelet: NotReady about every 4m",
		},
		{"a list hangs", "ListHang", "call hangs ListContainers", "kubelet: NotReady 3m after the last good relist"},
		{
			"a list hangs, and the last relist is known", "ListHang",
			"host\nkubelet\ncall hangs ListContainers\nHealth.Metrics = {\"PLEGLastSeen\":\"2026-03-13T03:09:10Z\"}",
			"kubelet: NotReady 3m after the last good relist, since 03:12:10",
		},
		{"nothing listens", "RuntimeDown", "socket missing", noReady},
		{"all hangs", "RuntimeHung", "call hangs all", noReady},
		{
			"exited containers", "TooManyExited", "exited 2000 1 1000",
			"kubelet: Ready until about 16,777 containers, when the list passes 16 MiB",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := Judge(node(changes(t, defined, tt.node)))
			i := index(all, tt.code)
			if i < 0 {
				t.Fatalf("no %s among %s", tt.code, codesOf(all))
			}
			if diff := cmp.Diff(tt.want, strings.Join(all[i].Effect, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const noReady = "kubelet: NotReady 30s after the last good Status; containers keep running, none starts or stops"

func codesOf(all []checks.Cause) (codes []string) {
	for _, c := range all {
		codes = append(codes, c.Code)
	}
	return codes
}
