package agentcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/internal/testkit"
)

// A script answers the looks of an agent, and notes what it does.
type script struct {
	began time.Time
	sick  func(after time.Duration) bool
	looks []string // when each was made, and how
	taken []string
}

func (s *script) look(_ context.Context, closely bool) (*observation, error) {
	after := time.Since(s.began)
	how := ""
	if closely {
		how = " closely"
	}
	s.looks = append(s.looks, after.String()+how)
	r := &checks.Report{Header: checks.Header{GeneratedAt: time.Now(), Status: checks.Healthy}}
	if s.sick(after) {
		r.Status = checks.Unhealthy
		r.Causes = []checks.Cause{{
			Code: "RuntimeHung", Severity: checks.Critical, Confidence: 0.8, Summary: "containerd is stopped",
		}}
	}
	return &observation{&facts.Input{Now: time.Now()}, r}, nil
}

func (s *script) capture(_ context.Context, _ *observation, cause string) checks.TakenCapture {
	s.taken = append(s.taken, fmt.Sprintf("%v %s", time.Since(s.began), cause))
	return checks.TakenCapture{At: time.Now(), Cause: cause}
}

// run runs an agent for a time.
func (s *script) run(t *testing.T, d time.Duration, change func(*service)) *service {
	t.Helper()
	s.began = time.Now()
	a := newService(cli.Env{}, &options{interval: 30 * time.Second}, slog.New(slog.DiscardHandler))
	a.observe, a.capture = s.look, s.capture
	if change != nil {
		change(a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	a.loop(ctx)
	return a
}

// TestLoop looks closely for two minutes when something begins, every 20 minutes, and takes evidence at most once in an
// hour.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(after time.Duration) bool {
			after %= 20 * time.Minute
			return after >= time.Minute && after < 5*time.Minute
		}}
		a := s.run(t, 3*time.Hour-time.Second, nil)
		must(t, a.wait(t.Context()))
		testkit.Equal(t, "looks", []string{"0s", "30s", "1m0s"}, s.looks[:3])
		const times = 9
		closely := strings.Count(strings.Join(s.looks, ","), "closely")
		if closely < 23*times || closely > 26*times {
			t.Errorf("%d close looks: %v", closely, s.looks)
		}
		testkit.Equal(t, "evidence", []string{"1m5s RuntimeHung", "1h21m5s RuntimeHung", "2h41m5s RuntimeHung"}, s.taken)
		if r := a.lastReport(); r == nil || r.Status != checks.Healthy || !a.alive() {
			t.Errorf("%+v, alive %v", r, a.alive())
		}
	})
}

// TestUploads takes evidence at the onset as well, and, of a node that is about to be removed or of an agent that ends,
// unless the node is well or there is evidence not long ago.
func TestUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(after time.Duration) bool {
			return after >= time.Minute && after < 30*time.Minute || after >= 150*time.Minute
		}}
		var a *service
		leave := func(after time.Duration, ready bool) {
			time.AfterFunc(after, func() { a.leave("a taint", ready) })
		}
		s.run(t, 150*time.Minute+time.Second, func(of *service) {
			a = of
			a.uploads = upload.NewQueue(upload.QueueOptions{Target: &upload.Target{}})
			a.endEvidence = func() {}
			leave(30*time.Second, true)
			leave(time.Minute+2*time.Second, true)  // packed at the onset
			leave(20*time.Minute+time.Second, true) // and again later
			leave(21*time.Minute, true)
			leave(time.Hour, true)               // gone
			leave(61*time.Minute, false)         // and not ready nevertheless
			leave(2*time.Hour+time.Second, true) // well
		})
		a.finishUploads()
		must(t, a.wait(t.Context()))
		want := []string{
			"1m0s RuntimeHung", "1m5s RuntimeHung", "20m1s RuntimeHung", "1h1m0s NodeLeaving", "2h30m0s RuntimeHung",
		}
		testkit.Equal(t, "evidence", want, s.taken)
	})
}

// TestAlive has looks each second that take as long as they may.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(time.Duration) bool { return false }}
		a := s.run(t, 79*time.Second, func(a *service) {
			a.opts.interval = time.Second
			a.observe = func(ctx context.Context, closely bool) (*observation, error) {
				time.Sleep(20 * time.Second)
				return s.look(ctx, closely)
			}
		})
		if !a.alive() {
			t.Error("not alive while calls hang")
		}
		must(t, a.wait(t.Context()))
	})
}

// TestEnds ends at once while a look hangs, and an agent that cannot look is still alive.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{sick: func(time.Duration) bool { return false }}
		release := make(chan struct{})
		began := time.Now()
		a := s.run(t, time.Hour, func(a *service) {
			looks := 0
			a.observe = func(ctx context.Context, _ bool) (*observation, error) {
				if looks++; looks == 2 {
					<-release
				}
				return nil, errors.New("no permission")
			}
		})
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it ended after %v", took)
		}
		if r := a.lastReport(); a.alive() || r == nil || r.Status != checks.Unknown || len(r.Problems) != 1 {
			t.Errorf("alive %v, %+v", a.alive(), r)
		}
		close(release)
	})
}

// TestCaptures lists and sends archives, and nothing else of the disk.
func TestCaptures(t *testing.T) {
	const name = "20261123T140512Z-RuntimeHung.tar.zst"
	const folder = recorder.CapturesDir + "/"
	dir := testkit.NewTree(t)
	dir.Write(folder+name, "archive", folder+name+".part", "half", folder+"notes.txt", "hidden",
		"20261123T140512Z-Out.tar.zst", "hidden", "secret", "hidden",
		folder+"20261123T140513Z-Folder.tar.zst/notes.txt", "hidden")
	dir.Link(folder+"20261123T140514Z-Link.tar.zst", "../secret")
	get := func(path, from, token string) (int, string) {
		s := &service{env: cli.System(), metrics: agent.NewMetrics("v1", false)}
		s.opts = &options{dataDir: dir.Root, serveCaptures: true, capturesToken: dir.Path("token")}
		req, w := httptest.NewRequest("GET", "/captures/"+path, nil), httptest.NewRecorder()
		req.RemoteAddr = from
		req.Header.Set(checks.CapturesToken, token)
		s.handler().ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	const here = "127.0.0.1:1"
	_, body := get("", here, "")
	var list checks.CaptureList
	must(t, json.Unmarshal([]byte(body), &list))
	want := []checks.Capture{{
		Name: name, At: time.Date(2026, 11, 23, 14, 5, 12, 0, time.UTC), Cause: "RuntimeHung", Bytes: 7,
	}}
	if diff := cmp.Diff(want, list.Captures); diff != "" || list.Kind != checks.KindCaptureList {
		t.Error(diff, list.Header)
	}
	if code, got := get(name, here, ""); code != 200 || got != "archive" {
		t.Errorf("the archive: %d %s", code, got)
	}
	for _, path := range []string{
		name + ".part", "notes.txt", "20261123T140513Z-Folder.tar.zst", "20261123T140514Z-Link.tar.zst",
		"../20261123T140512Z-Out.tar.zst", "..%2f20261123T140512Z-Out.tar.zst", "../../../../../../etc/passwd",
		"..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/secret", "x/../../secret", "20261123T140512Z-..%2fsecret.tar.zst",
		"20261123T140512Z-%00.tar.zst", "//etc/passwd", name + "/", ".", "..", "20261123T140515Z-None.tar.zst",
	} {
		code, got := get(path, here, "")
		if code == 200 || strings.Contains(got, "hidden") || strings.Contains(got, "root:") {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	for _, tt := range []struct {
		from, file, sent string
		want             int
	}{
		{"[::1]:1", "", "", 200},
		{"192.0.2.1:1", "secret\n", "secret", 200},
		{"192.0.2.1:1", "secret\n", "guessed", 401},
		{"192.0.2.1:1", "\n", "", 401},
	} {
		dir.Write("token", tt.file)
		for _, path := range []string{"", name} {
			if code, got := get(path, tt.from, tt.sent); code != tt.want {
				t.Errorf("%+v: %q answers %d: %s", tt, path, code, got)
			}
		}
	}
}

// TestOnDisk asks twice for the pages of a disk that hangs. Each request ends, and the disk is read once.
func TestOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guard deadline.Guard
		var reads atomic.Int32
		answers := make(chan struct{})
		for range 2 {
			_, err := onDisk(t.Context(), &guard, "listing", func(context.Context) (int, error) {
				reads.Add(1)
				<-answers
				return 0, nil
			})
			if !errors.Is(err, deadline.ErrAbandoned) {
				t.Errorf("%v, want an error of a disk that hangs", err)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("the disk was read %d times", n)
		}
		close(answers)
	})
}

// TestLogOfChange reads the JSON line of a change as a collector does.
func TestLogOfChange(t *testing.T) {
	var out bytes.Buffer
	opts := &options{logFormat: "json"}
	env := cli.Env{
		Out: &out, Getenv: func(string) string { return "" },
		Hostname: func() (string, error) { return "Worker-3", nil },
	}
	s := newService(env, opts, newLog(env, opts.logFormat, opts.node(env)))
	at := time.Date(2026, 11, 24, 3, 4, 5, 0, time.UTC)
	s.log.LogAttrs(t.Context(), slog.LevelWarn, "the runtime hangs", s.attributes(checks.Transition{
		At: at, From: checks.CauseClear, To: checks.CauseOnset, Cause: causes.RuntimeHung, Severity: checks.Critical,
		Subject: "containerd.service", Incident: at,
	})...)
	var got map[string]any
	must(t, json.Unmarshal(out.Bytes(), &got))
	_, err := time.Parse(time.RFC3339Nano, got["timestamp"].(string))
	must(t, err)
	delete(got, "timestamp")
	want := map[string]any{
		"severity_text": "WARN", "body": "the runtime hangs", "service.name": "kdiag-agent",
		"service.version": cli.Version(), "k8s.node.name": "worker-3", "event.name": "kdiag.transition",
		"kdiag.cause": "RuntimeHung", "kdiag.severity": "critical", "kdiag.from": "clear", "kdiag.to": "onset",
		"kdiag.at": "2026-11-24T03:04:05Z", "kdiag.subject": "containerd.service", "kdiag.caused_by": "",
		"kdiag.incident": "2026-11-24T03:04:05Z",
	}
	testkit.Equal(t, "the line", want, got)
}
