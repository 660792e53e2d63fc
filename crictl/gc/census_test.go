package gc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func TestCensus(t *testing.T) {
	w := newWorld().
		sandbox("s1", "web", crictl.SandboxReady, 900*hour).sandbox("s2", "old", crictl.SandboxNotReady, 900*hour).
		sandbox("s3", "old", crictl.SandboxNotReady, 901*hour).
		container("a", "s1", "web", "app", exited, 800*hour).container("b", "s1", "web", "app", exited, 100*hour).
		container("c", "s1", "web", "app", exited, hour/2).container("d", "s1", "web", "app", running, hour/4).
		container("e", "s2", "old", "job", exited, 5*hour).
		container("f", "s1", "web", "side", crictl.ContainerCreated, hour).
		container("g", "s1", "web", "side", crictl.ContainerUnknown, hour)
	w.node.Pods = NewLiveness(&KubeletView{Dirs: []string{"uid-web"}})
	w.node.Sandboxes[0].Owner = crictl.Owner{Kind: "StatefulSet", Name: "web"}
	ends := map[string]End{"c": {ExitCode: 137, Reason: "OOMKilled"}}
	got := TakeCensus(w.node, ends, 14_000, noon())
	at := func(d time.Duration) time.Time { return time.Unix(0, ago(d)) }
	code := int32(137)
	want := Census{
		Total: 4, Sandboxes: 2,
		States: StateCounts{
			Created: 1, Running: 1, Exited: 4, Unknown: 1, ReadySandboxes: 1, DeadSandboxes: 2, EmptySandboxes: 1,
		},
		ByPod: []PodCount{
			{
				Namespace: "default", Pod: "web", PodUID: "uid-web", Container: "app", Count: 3, Bytes: 3000,
				Oldest: at(800 * hour), Newest: at(hour / 2), NewestID: "c", LastReason: "OOMKilled",
				LastExitCode: &code,
			},
			{
				Namespace: "default", Pod: "old", PodUID: "uid-old", Container: "job", Count: 1, Bytes: 1000,
				Oldest: at(5 * hour), Newest: at(5 * hour), NewestID: "e", Gone: true,
			},
		},
		ByOwner: []OwnerCount{
			{Namespace: "default", Kind: "StatefulSet", Name: "web", Count: 3, Pods: 1, Bytes: 3000},
			{Namespace: "default", Kind: "Pod", Name: "old", Count: 1, Pods: 1, Bytes: 1000},
		},
		ByNamespace: []NamespaceCount{{Namespace: "default", Count: 4, Pods: 2, Bytes: 4000}},
		ByReason:    []ReasonCount{{Reason: "OOMKilled", ExitCode: 137, Count: 1, Exited: 3}},
		ByAge: []AgeCount{
			{UpToSeconds: 3600, Count: 1},
			{UpToSeconds: 86400, Count: 1},
			{UpToSeconds: 604800, Count: 1},
			{UpToSeconds: 2592000},
			{Count: 1},
		},
		Bytes: 4000, ListBytes: 7000, LimitBytes: 14_000, ShareOfLimit: 4.0 / 14, ListOfLimit: 0.5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	plan := w.plan(w.node, Rules{})
	if n, counts := BeyondNewest(CountExited(w.node.Containers)), plan.Count(); n != 2 || len(counts) != 2 ||
		counts[0].NewestID != "b" || counts[0].Count != 2 || counts[1].NewestID != "s3" {
		t.Errorf("%d beyond the newest, the plan removes %+v", n, counts)
	}
}

func TestGrow(t *testing.T) {
	base := Census{Total: 100, Sandboxes: 5, ListBytes: 1000, LimitBytes: 2000}
	more := Census{Total: 110, Sandboxes: 6, ListBytes: 1100, LimitBytes: 2000}
	full := Census{Total: 100, Sandboxes: 5, ListBytes: 2000, LimitBytes: 2000}
	for _, tt := range []struct {
		name          string
		before, after Census
		over          float64
		want          *Growth
	}{
		{"grows", base, more, 60, &Growth{60, 10, 1, 100, 14400, new(540.0)}},
		{"over the limit", base, full, 1, &Growth{1, 0, 0, 1000, 0, new(0.0)}},
		{"a part only", base, Census{Partial: true}, 60, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Grow(&tt.before, &tt.after, tt.over)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
