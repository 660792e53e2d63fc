package gc

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// stuckPod is a node with 20 crash-looping pods and one whose containers are the oldest.
func stuckPod(faults ...fake.Fault) fake.Scenario {
	s := flood(20, 40, faults...)
	s.Pods = append(s.Pods, fake.PodGroup{
		Namespace: "batch", Name: "stuck", Age: second(480 * 3600),
		Containers: []fake.ContainerGroup{{Name: "load", Exited: 40, Every: second(5 * 3600)}},
	})
	return s
}

// TestRunStuckPod lets the removals of the oldest pod hang: all the others go meanwhile, in little more than the time
// they take without it, and the pod is named.
func TestRunStuckPod(t *testing.T) {
	for _, rpc := range []string{"RemoveContainer", "ContainerStatus"} {
		t.Run(rpc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, plan := look(t, serve(t, stuckPod()), Rules{})
				c := serve(t, stuckPod(fake.Fault{RPC: rpc, Object: fake.Object{Pod: "stuck"}, Hang: true}))
				var others time.Duration // until all others were gone
				own, start := 0, time.Now()
				for _, v := range plan.Remove {
					if v.Pod == "stuck" {
						own++
					}
				}
				got, err := Run(t.Context(), c, plan, Options{Progress: func(p Progress) {
					if others == 0 && p.Removed == len(plan.Remove)-own {
						others = time.Since(start)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				verify(t, before, plan, got, left(t, c))
				if own < 30 || got.Removed != len(plan.Remove)-own || len(got.Failed) != own {
					t.Errorf("%d removed of %d, %d failed, %d of the pod", got.Removed, len(plan.Remove), len(got.Failed), own)
				}
				if others == 0 || others > 30*time.Second || got.Seconds > 60 {
					t.Errorf("the others took %v, all %v s", others, got.Seconds)
				}
				if len(got.Stuck) != 1 || got.Stuck[0].Pod != "stuck" || got.Stuck[0].Rounds < 2 {
					t.Errorf("stuck: %+v", got.Stuck)
				}
			})
		})
	}
}

// TestRunStuckContainer lets one container hang: the rest of its pod goes too, and before it is tried again.
func TestRunStuckContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, plan := look(t, serve(t, stuckPod()), Rules{})
		c := serve(t, stuckPod(fake.Fault{RPC: "RemoveContainer", Object: fake.Object{ID: plan.Remove[0].ID}, Hang: true}))
		got, err := Run(t.Context(), c, plan, Options{})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, before, plan, got, left(t, c))
		if got.Removed != len(plan.Remove)-1 || len(got.Failed) != 1 || got.Failed[0].ID != plan.Remove[0].ID {
			t.Errorf("%d removed of %d, failed %v", got.Removed, len(plan.Remove), got.Failed)
		}
		if len(got.Stuck) != 1 || got.Stuck[0].ID != plan.Remove[0].ID {
			t.Errorf("stuck: %+v", got.Stuck)
		}
	})
}

// TestRunAllStuck ends a run of which no removal is answered, by itself and by its deadline.
func TestRunAllStuck(t *testing.T) {
	for _, end := range []time.Duration{20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			before, plan := look(t, serve(t, stuckPod()), Rules{})
			c := serve(t, stuckPod(fake.Fault{RPC: "RemoveContainer", Hang: true}))
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			start := time.Now()
			got, err := Run(ctx, c, plan, Options{})
			if err != nil {
				t.Fatal(err)
			}
			verify(t, before, plan, got, left(t, c))
			if took := time.Since(start); took > min(end, 10*time.Minute) || got.Removed != 0 || len(got.Stuck) == 0 {
				t.Errorf("it took %v of %v, %d removed, stuck: %+v", took, end, got.Removed, got.Stuck)
			}
		})
	}
}

// TestLookStuckPod asks for the ends on a node with a pod that does not answer: those of the others are had.
func TestLookStuckPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, stuckPod(fake.Fault{RPC: "ContainerStatus", Object: fake.Object{Pod: "stuck"}, Hang: true}))
		list := c.ListContainers(t.Context(), crictl.Filter{}, "")
		sandboxes := c.ListPodSandbox(t.Context(), crictl.Filter{}, "")
		ask := Candidates(Node{Sandboxes: sandboxes.Sandboxes, Containers: list.Containers}, Rules{}, time.Now())
		ends, missed := Look(t.Context(), c, ask, nil)
		own := 0
		for _, k := range ask {
			if k.PodUID == ask[0].PodUID {
				own++
			}
		}
		if own < 30 || len(ends) != len(ask)-own || missed.Count != own || !strings.Contains(missed.First, "DeadlineExceeded") {
			t.Errorf("%d ends of %d, %d of the pod, missed %+v", len(ends), len(ask), own, missed)
		}
	})
}

// TestLookNoAnswers stops asking a runtime that answers for nobody.
func TestLookNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plan := look(t, serve(t, stuckPod()), Rules{})
		c := serve(t, stuckPod(fake.Fault{RPC: "ContainerStatus", Hang: true}))
		var ask []Candidate
		for _, v := range plan.Remove {
			ask = append(ask, Candidate{v.ID, v.PodUID})
		}
		start := time.Now()
		ends, missed := Look(t.Context(), c, ask, nil)
		if took := time.Since(start); len(ends) != 0 || missed.Count != len(ask) || took > time.Minute {
			t.Errorf("%d ends, missed %d of %d, in %v", len(ends), missed.Count, len(ask), took)
		}
	})
}

// TestRunAuditHangs lets the disk of the audit file hang: no more is begun than what a second removes.
func TestRunAuditHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		_, plan := look(t, c, Rules{})
		r := newRun(t.Context(), c, &plan, Options{Rate: DefaultRate, Concurrency: 4})
		defer r.cancel()
		r.pace = newPacer(4, nil, 0, time.Now())
		var shown Progress
		r.opts.Progress = func(p Progress) { shown = p }
		now := time.Now()
		r.writing, r.writeAt = []*job{{victim: &plan.Remove[0]}}, now.Add(-2*writePatience)
		r.start(now)
		r.show(now, true)
		if len(r.flying) != 0 || shown.Paused != "the audit file does not answer" {
			t.Errorf("%d begun, paused: %q", len(r.flying), shown.Paused)
		}
		r.writing = nil
		r.start(now)
		if len(r.flying) != 1 {
			t.Errorf("%d begun", len(r.flying))
		}
		r.landed((<-r.results).job)
	})
}

// TestRunLogsElsewhere asks for the logs to go too where they are not: nothing is removed, and not for each is it found out.
func TestRunLogsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, flood(10, 40))
		before, plan := look(t, c, Rules{})
		got, err := Run(t.Context(), c, plan, Options{Logs: &Logs{Dir: "/data/logs", Root: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, before, plan, got, left(t, c))
		if got.Removed != 0 || len(got.Failed) < enoughRefusals || len(got.Failed) > 2*enoughRefusals ||
			!strings.Contains(got.Stopped, "is not below /data/logs") {
			t.Errorf("%d removed, %d failed, stopped %q", got.Removed, len(got.Failed), got.Stopped)
		}
	})
}

// TestRunLogsAfterRetry removes the logs of containers whose removal was not answered too.
func TestRunLogsAfterRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plan := look(t, serve(t, flood(2, 30)), Rules{})
		c := serve(t, flood(2, 30))
		j := &job{victim: &plan.Remove[0]}
		st, _ := c.ContainerStatus(t.Context(), j.victim.ID)
		logs := &Logs{Dir: "/var/log/pods", Root: t.TempDir()}
		parts, err := logs.parts(st)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(append([]string{logs.Root, logs.Dir}, parts...)...)
		put(t, name, "log")
		rm := remover{client: c, logs: logs, stopping: func() bool { return false }}
		j.asked, j.status = true, st
		c.RemoveContainer(t.Context(), j.victim.ID) // the one that was not answered
		if out := rm.remove(t.Context(), j); out.verdict != removed || out.logErr != "" || exists(name) {
			t.Errorf("%+v, the log is there: %v", out, exists(name))
		}
	})
}

// TestAuditForeign gives OpenAudit files of other kinds: they are refused, and stay as they are.
func TestAuditForeign(t *testing.T) {
	for name, text := range map[string]string{
		"notes without an end": "my only notes, no newline at end",
		"notes":                "my only notes\n",
		"long":                 strings.Repeat("x", 5000),
		"a plan":               `{"digest":"sha256:00","content":{}}` + "\n",
		"records of others":    `{"at":"noon","what":"lunch"}` + "\n",
		"notes at the end":     `{"at":"2026-05-04T12:00:00Z","event":"end"}` + "\nmy only notes",
		"one long line":        recordStart + strings.Repeat("x", 2*maxAuditLine),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit")
			put(t, path, text)
			a, err := OpenAudit(path, here(), 1, noon())
			if err == nil || !strings.Contains(err.Error(), "it is no audit file of kdiag") {
				t.Errorf("%v, %v", a, err)
			}
			if got := get(t, path); got != text {
				t.Errorf("%d bytes are left of %d", len(got), len(text))
			}
		})
	}
	for name, text := range map[string]string{
		"torn":             `{"at":"2026-05-04T12:00:00Z","ev`,
		"torn early":       `{"a`,
		"zeros at the end": `{"at":"2026-05-04T12:00:00Z","event":"end"}` + "\n\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit")
			put(t, path, text)
			a, err := OpenAudit(path, here(), 1, noon())
			if err != nil {
				t.Fatal(err)
			}
			if cut, _ := a.Mended(); cut == 0 {
				t.Error("nothing was mended")
			}
			if err := a.Close(0, noon()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMakeUnasked wants the reasons of what nobody asked the end of: too young by its creation, beyond the limit, or not known.
func TestMakeUnasked(t *testing.T) {
	w := newWorld().sandbox("s", "web", crictl.SandboxReady, 90*hour).
		container("a", "s", "web", "app", exited, 40*hour).container("b", "s", "web", "app", exited, 30*hour).
		container("c", "s", "web", "app", exited, 20*hour).container("d", "s", "web", "app", exited, hour)
	delete(w.ended, "b")
	delete(w.ended, "c")
	for _, tt := range []struct {
		rules Rules
		why   string
		count int
	}{
		{Rules{Limit: 1}, KeptLimit, 2},
		{Rules{OlderThan: 25 * hour}, KeptYoung, 1},
		{Rules{}, KeptEndUnknown, 2},
	} {
		got := 0
		for _, k := range Make(w.node, tt.rules, noon()).KeptBy {
			if k.Why == tt.why {
				got = k.Count
			}
		}
		if got != tt.count {
			t.Errorf("%+v: %d %s, want %d", tt.rules, got, tt.why, tt.count)
		}
	}
}

// TestNarrowBytes wants the bytes of what is left of an older plan, not of all of it.
func TestNarrowBytes(t *testing.T) {
	w := newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
		container("a", "s", "web", "app", exited, 4*hour).container("b", "s", "web", "app", exited, 3*hour).
		container("c", "s", "web", "app", exited, 2*hour)
	older := Make(w.node, Rules{}, noon())
	w.node.Containers = w.node.Containers[:2]
	if got, _ := Narrow(older, Make(w.node, Rules{}, noon())); older.Bytes != 2000 || got.Bytes != 1000 {
		t.Errorf("%d bytes of %d", got.Bytes, older.Bytes)
	}
}

// TestRunFreshFirst wants a victim that failed to be tried again only after the others were tried.
func TestRunFreshFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, plan := look(t, serve(t, flood(4, 40)), Rules{})
		c := serve(t, flood(4, 40, fake.Fault{RPC: "RemoveContainer", Error: "Unknown: busy", First: 1}))
		a := audit(t, len(plan.Remove))
		if _, err := Run(t.Context(), c, plan, Options{Concurrency: 1, Audit: a}); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, line := range strings.Split(get(t, a.file.Name()), "\n") {
			if strings.Contains(line, `"kind":"Container"`) {
				order = append(order, line)
			}
		}
		if len(order) < 100 || !strings.Contains(order[len(order)-1], plan.Remove[0].ID) {
			t.Errorf("%d removed, the last is not the one that failed", len(order))
		}
	})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
