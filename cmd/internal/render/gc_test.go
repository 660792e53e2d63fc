package render

import (
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/gc"
)

func gcHeader(kind string) checks.Header {
	return checks.Header{
		APIVersion: checks.APIVersion, Kind: kind, Host: "node-7",
		GeneratedAt: time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC), KdiagVersion: "v1",
	}
}

func gcRuntime() checks.Runtime {
	return checks.Runtime{
		Endpoint: "unix:///run/containerd/containerd.sock", EndpointSource: "well-known",
		EndpointReason: "the first that exists",
		Name:           "containerd", Version: "v2.1.4",
	}
}

// before returns a time so long before the documents' own.
func before(d time.Duration) time.Time { return gcHeader("").GeneratedAt.Add(-d) }

func sampleCensus() *ExitedCensus {
	code := func(n int32) *int32 { return &n }
	pods := []gc.PodCount{
		{
			Namespace: "batch", Pod: "thumbnails-28901", PodUID: "u1", Container: "resize", Count: 12_000, Bytes: 11 << 20,
			Oldest: before(90 * time.Hour), Newest: before(3 * time.Minute), LastReason: "Error", LastExitCode: code(1),
		},
		{
			Namespace: "batch", Pod: "report-27\x1b[31m", PodUID: "u2", Container: "job", Count: 6_000, Bytes: 5 << 20,
			Oldest: before(80 * time.Hour), Newest: before(20 * time.Hour), LastExitCode: code(137), LastReason: "OOMKilled",
			Gone: true,
		},
		{
			Namespace: "web", Pod: "shop-5d4f9c7b8-x2x9p", PodUID: "u3", Container: "init", Count: 1, Bytes: 900,
			Oldest: before(time.Hour), Newest: before(time.Hour),
		},
	}
	seconds := 7200.0
	c := &gc.Census{}
	c.Total, c.Sandboxes = 18_001, 40
	c.States = gc.StateCounts{
		Running: 60, Exited: 18_001, Created: 1, ReadySandboxes: 50, DeadSandboxes: 40,
		EmptySandboxes: 12,
	}
	c.ByPod = pods
	c.ByNamespace = []gc.NamespaceCount{
		{Namespace: "batch", Count: 18_000, Pods: 2, Bytes: 16 << 20},
		{Namespace: "web", Count: 1, Pods: 1, Bytes: 900},
	}
	c.ByReason = []gc.ReasonCount{
		{Reason: "Error", ExitCode: 1, Count: 1, Exited: 12_000},
		{Reason: "OOMKilled", ExitCode: 137, Count: 1, Exited: 6_000},
	}
	c.ByAge = []gc.AgeCount{
		{UpToSeconds: 3600, Count: 300},
		{UpToSeconds: 86400, Count: 9_000},
		{UpToSeconds: 604800, Count: 8_701},
		{UpToSeconds: 2592000},
		{},
	}
	c.Bytes, c.ListBytes, c.LimitBytes = 16<<20, 17<<20, 16<<20
	c.ShareOfLimit, c.ListOfLimit = 1, 17.0/16
	c.Growth = &gc.Growth{
		Seconds: 60, Containers: 12, Sandboxes: -1, Bytes: 11_000, ContainersPerDay: 17_280,
		SecondsToLimit: &seconds,
	}
	return &ExitedCensus{
		Header: gcHeader("ExitedCensus"), Runtime: gcRuntime(), Status: checks.Unhealthy, Census: c, Missing: []string{},
		Problems: []string{},
		Next:     "kdiag gc-exited --runtime-endpoint /run/containerd/containerd.sock",
	}
}

func samplePlan() gc.Plan {
	var plan gc.Plan
	for i := range 30 {
		plan.Remove = append(plan.Remove, gc.Candidate{
			Kind: gc.KindContainer, ID: strings.Repeat("a", 60) + "0001", Namespace: "batch", Pod: "thumbnails-28901",
			PodUID: "u1", Container: "resize",
			Attempt: uint32(i), CreatedAt: before(time.Duration(100-i) * time.Hour),
			FinishedAt: before(time.Duration(99-i) * time.Hour),
			Why:        "exited; a newer exited instance of it stays",
		})
	}
	plan.Remove = append(plan.Remove, gc.Candidate{
		Kind: gc.KindSandbox, ID: strings.Repeat("b", 64), Namespace: "batch", Pod: "thumbnails-28901", PodUID: "u1",
		CreatedAt: before(200 * time.Hour),
		Why:       "not ready, without containers, not the newest of its pod",
	})
	plan.Keep, plan.Newest, plan.Bytes = 4, 1, 40_000
	plan.KeptBy = []gc.Kept{{Why: gc.KeptNewest, Count: 3}, {Why: gc.KeptYoung, Count: 1}}
	return plan
}

func sampleGC(change func(*GCReport)) *GCReport {
	r := &GCReport{
		Header: gcHeader("GCReport"), Runtime: gcRuntime(), Missing: []string{}, Notes: []string{}, Problems: []string{},
		Report: gc.Report{DryRun: true, Plan: samplePlan(), Result: gc.Result{
			Skipped: []gc.Skipped{},
			Failed:  []gc.Failed{},
		}},
	}
	change(r)
	return r
}

func gcDocuments() []document {
	censusOf := func(c *ExitedCensus) func(Options) (string, error) {
		return func(o Options) (string, error) {
			var b strings.Builder
			err := Exited(&b, c, o)
			return b.String(), err
		}
	}
	of := func(change func(*GCReport)) func(Options) (string, error) {
		r := sampleGC(change)
		return func(o Options) (string, error) { var b strings.Builder; err := GC(&b, r, o); return b.String(), err }
	}
	down := &ExitedCensus{
		Header: gcHeader("ExitedCensus"), Runtime: gcRuntime(), Status: checks.Unhealthy,
		Missing: []string{}, Problems: []string{"the runtime did not answer Version within 5s"},
	}
	census, run := []string{sampleCensus().Next}, []string{}
	plan, again := []string{"kdiag gc-exited --namespace batch --limit 31 --yes --audit gc-audit.jsonl"},
		[]string{"kdiag pleg", "kdiag gc-exited --yes --audit gc.jsonl"}
	return []document{
		{"exited", census, censusOf(sampleCensus())},
		{"exited-down", run, censusOf(down)},
		{"gc-plan", plan, of(func(r *GCReport) {
			r.Missing = []string{"the kubelet's pods: not authorised"}
			r.Plan.Rules.IgnorePodLiveness = true
			r.NextSteps = []checks.NextStep{{
				Why: "to remove this, looking at each again right before:", Command: plan[0],
				Touches: checks.TouchesExited,
			}}
		})},
		{"gc-missed", run, of(func(r *GCReport) {
			r.Missing = []string{"the kubelet's pods: not authorised"}
			r.EndsMissed, r.Notes = 819,
				[]string{"the runtime did not say of 819 containers when they ended, so they stay: the time was up"}
			r.Plan.Newest = 100
		})},
		{"gc-nothing", run, of(func(r *GCReport) { r.Plan.Remove = r.Plan.Remove[:0] })},
		{"gc-done", run, of(func(r *GCReport) {
			r.DryRun, r.Removed, r.Speed, r.Most = false, 31, &gc.Speed{Seconds: 4.2, PerSecond: 7.4}, 5
		})},
		{"gc-stopped", again, of(func(r *GCReport) {
			r.DryRun, r.Removed, r.Speed, r.Most, r.Pauses = false, 12, &gc.Speed{Seconds: 60, PerSecond: 0.2}, 8, 2
			r.Left, r.Stopped = 10, "the deadline was reached"
			r.Skipped = []gc.Skipped{{ID: "c1", Why: "it is running now"}, {ID: "c2", Why: "it is running now"}}
			r.Failed = []gc.Failed{
				{ID: "c3", Error: "RemoveContainer: Unknown: c3: device or resource busy"},
				{ID: "c4", Error: "its removal was asked for and not answered, so whether it is gone is not known: \x1b[2J"},
			}
			r.NextSteps = []checks.NextStep{
				{Why: "what the pods that do not answer wait for:", Command: again[0], Touches: checks.TouchesNothing},
				{
					Why: "for what is left, once that is mended (the runtime's log says why removals fail):", Command: again[1],
					Touches: checks.TouchesExited,
				},
			}
		})},
		{"gc-down", run, of(func(r *GCReport) {
			r.Plan, r.Down, r.Problems = gc.Plan{}, true, []string{"the runtime did not answer Version within 5s"}
		})},
		{"gc-unknown", run, of(func(r *GCReport) {
			r.Plan = gc.Plan{}
			r.Problems = []string{
				"no runtime socket was found; name one with --runtime-endpoint",
				"does not exist: /run/crio/crio.sock",
			}
		})},
	}
}

func TestGCGoldens(t *testing.T) {
	for _, d := range gcDocuments() {
		for _, v := range []struct {
			name string
			o    Options
		}{
			{"text80.txt", Options{Width: 80}},
			{"text60.txt", Options{Width: 60}},
			{"ascii120.txt", Options{Width: 120, ASCII: true}},
			{"brief.txt", Options{Format: Brief}},
			{"json", Options{Format: JSON}},
		} {
			got, err := d.print(v.o)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, d.name+"."+v.name, got)
			if v.o.Format == Brief && len(got) > BriefWidth+1 {
				t.Errorf("%s: %d bytes: %s", d.name, len(got), got)
			}
			if strings.ContainsAny(got, "\x1b") {
				t.Errorf("%s.%s: an escape came through", d.name, v.name)
			}
		}
	}
}

// TestRemovingLine holds the line of a clean-up: how far, how fast, how long, or why it stands still.
func TestRemovingLine(t *testing.T) {
	p := NewProgress(&strings.Builder{}, true, 80)
	p.ASCII = true
	for _, tt := range []struct {
		now  gc.Progress
		want string
	}{
		{gc.Progress{Total: 2000}, "| removing  ....................  0/2,000"},
		{
			gc.Progress{Total: 2000, Removed: 990, Skipped: 10, PerSecond: 98.6, TimeLeft: 10 * time.Second},
			"| removing  ##########..........  1,000/2,000  99/s  10s left",
		},
		{
			gc.Progress{Total: 2000, Removed: 10, Failed: 2, PerSecond: 2, Paused: "the runtime does not\x1b answer"},
			`| removing  -...................  12/2,000  2 failed  paused: the runtime does `,
		},
	} {
		p.removing = tt.now
		if got := p.line(0); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}
