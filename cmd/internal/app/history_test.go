package app

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/internal/testkit"
)

// A story is what an agent records.
type story struct {
	*recorder.Recorder
	day   time.Time
	now   time.Time
	began time.Time // the incident; zero before it
	// What the looks find.
	status checks.Verdict
	list   float64
	hung   []checks.HungCall
	causes []checks.LookCause
}

// tell opens a recorder and closes it when the story is told.
func tell(t *testing.T, dir string, told func(s *story)) {
	t.Helper()
	r, err := recorder.Open(dir, 8<<20)
	must(t, err)
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	told(&story{Recorder: r, day: day, now: day, status: checks.Healthy, list: 0.004})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, r.Close(ctx))
}

// at returns a time of the day, such as 14:05:12.
func (s *story) at(clock string) time.Time {
	at, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		panic(err)
	}
	return s.day.Add(time.Duration(at.Hour()*3600+at.Minute()*60+at.Second()) * time.Second)
}

// start is the start of an agent after a boot.
func (s *story) start(clock, boot string) {
	s.now = s.at(clock)
	s.Append(s.now, recorder.KindStart, recorder.Start{BootID: boot, Version: "v1", IntervalSeconds: 60})
}

// looks are the looks until a time.
func (s *story) looks(until string, every time.Duration) {
	for end := s.at(until); s.now.Before(end); s.now = s.now.Add(every) {
		sample := checks.LookSample{At: s.now, Status: s.status, Hung: s.hung, Causes: s.causes, Containers: new(112)}
		if s.hung == nil {
			v := s.list * (1 + float64(s.now.Second()%7)/10)
			sample.ListSeconds, sample.ProjectedSeconds = new(v), new(v*3)
		}
		s.Append(s.now, recorder.KindSample, sample)
	}
}

// becomes is a change of a cause that the present look noticed. All are of the incident that the first one began.
func (s *story) becomes(at, from, to, cause string) {
	told := map[string]checks.Transition{
		"RuntimeSlow": {Severity: checks.Warning, Summary: "relists take 9s"},
		"RuntimeHung": {Severity: checks.Critical, Summary: "containerd accepts calls and answers none"},
		"PLEGUnhealthy": {
			Severity: checks.Critical, Summary: "the kubelet reports that PLEG is not healthy", CausedBy: "RuntimeHung",
		},
	}[cause]
	if s.began.IsZero() {
		s.began = s.at(at)
	}
	told.At, told.Noticed, told.From, told.To, told.Cause, told.Incident = s.at(at), s.now, from, to, cause, s.began
	s.Append(s.now, recorder.KindTransition, told)
}

const ledger = "payments/ledger-db-0 ledger"

// incident is a runtime that becomes slow, hangs, is thawed, and a node that loses its power later.
func incident(s *story) {
	s.start("13:10:00", "boot-a")
	s.looks("13:35:00", time.Minute)
	s.Append(s.now, recorder.KindStop, nil)
	s.start("13:41:10", "boot-a")
	s.looks("14:02:00", time.Minute)
	s.list, s.status = 3.2, checks.Degraded
	s.becomes("14:02:10", checks.CauseClear, checks.CauseOnset, "RuntimeSlow")
	s.looks("14:05:14", 10*time.Second)
	s.status = checks.Unhealthy
	s.hung = []checks.HungCall{
		{Method: "ContainerStatus", Object: "177fd5b7c16fc", Name: ledger, Since: s.at("14:05:12")},
		{Method: "ListContainers", Since: s.at("14:05:14")},
	}
	s.causes = []checks.LookCause{{Code: "RuntimeHung", Severity: checks.Critical, Confidence: 0.9}}
	s.becomes("14:05:12", checks.CauseClear, checks.CauseOnset, "RuntimeHung")
	s.becomes("14:05:12", checks.CauseOnset, checks.CauseClear, "RuntimeSlow")
	s.looks("14:05:24", 10*time.Second)
	s.becomes("14:05:12", checks.CauseOnset, checks.CauseConfirmed, "RuntimeHung")
	s.Append(s.now, recorder.KindCapture, checks.TakenCapture{
		At: s.now, Cause: "RuntimeHung", Path: "captures/20261123T140530Z-RuntimeHung.tar.zst", Bytes: 1_310_720,
	})
	s.looks("14:08:14", 10*time.Second)
	s.becomes("14:08:12", checks.CauseClear, checks.CauseConfirmed, "PLEGUnhealthy")
	s.looks("14:10:40", 10*time.Second)
	s.status, s.hung, s.causes, s.list = checks.Healthy, nil, nil, 0.004
	s.looks("14:10:50", 10*time.Second)
	s.becomes("14:10:40", checks.CauseConfirmed, checks.CauseClear, "RuntimeHung")
	s.becomes("14:10:40", checks.CauseConfirmed, checks.CauseClear, "PLEGUnhealthy")
	s.looks("14:18:00", time.Minute)
	s.start("14:21:40", "boot-b")
	s.looks("14:25:00", time.Minute)
}

// TestHistory tells the story of an incident that nobody watched out of its records. Package render prints the
// document.
func TestHistory(t *testing.T) {
	root := testkit.NewTree(t)
	dir := root.Path("var/lib/kdiag")
	archive := filepath.Join("var/lib/kdiag", recorder.CapturesDir, "20261123T140530Z-RuntimeHung.tar.zst")
	root.Write("etc/hostname", "node-7\n", archive, "")
	tell(t, dir, incident)
	out := kdiag(t.Context(), "history", "--root", root.Root, "-o", "json")
	if out.code != 1 {
		t.Fatalf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	h := decode[checks.History](t, out)
	if len(h.NextSteps) != 1 || h.NextSteps[0].Command != "kdiag node --from "+root.Path(archive) {
		t.Errorf("no step reads %s: %v", archive, h.NextSteps)
	}
	h.KdiagVersion, h.GeneratedAt = "v0.0.0", h.To
	var doc bytes.Buffer
	must(t, render.History(&doc, h, render.Options{Format: render.JSON}))
	testkit.Golden(t, "../render/testdata/history.json", strings.ReplaceAll(doc.String(), root.Root, ""))
}

// TestHistoryExitCodes has stories that are shorter, and the codes of their history.
func TestHistoryExitCodes(t *testing.T) {
	slow := func(s *story) {
		s.start("12:00:00", "a")
		s.looks("12:30:00", time.Minute)
		s.status = checks.Degraded
		s.becomes("12:29:10", checks.CauseClear, checks.CauseOnset, "RuntimeSlow")
		s.looks("12:40:00", time.Minute)
	}
	for _, tt := range []struct {
		name, flags, want string
		told              func(*story)
		code              int
	}{
		{"slow", "", "DEGRADED RuntimeSlow, Nov 23 12:29:10Z for 9m50s, relists take 9s", slow, 0},
		{
			"the hang", "--until 2026-11-23T14:08:00Z",
			"UNHEALTHY RuntimeHung, Nov 23 14:05:12Z for 2m48s, " + ledger, incident, 1,
		},
		{"before", "--until 2026-11-23T13:59:00Z", "HEALTHY for 48m10s until Nov 23 13:58:10Z", incident, 0},
		{"after it", "--since -3m", "HEALTHY for 3m until Nov 23 14:24:40Z", incident, 0},
		{"nothing then", "--since 2026-11-23T13:36:00Z --until 2026-11-23T13:40:00Z", "", incident, 2},
	} {
		dir := t.TempDir()
		tell(t, dir, tt.told)
		args := append([]string{"history", "-o", "brief", "--root", "/", "--data-dir", dir}, strings.Fields(tt.flags)...)
		out := kdiag(t.Context(), args...)
		if out.code != tt.code || strings.TrimSpace(out.stdout) != tt.want || (tt.code == 2) != (out.stderr != "") {
			t.Errorf("%s: %+v, want exit code %d, %q", tt.name, out, tt.code, tt.want)
		}
	}
}
