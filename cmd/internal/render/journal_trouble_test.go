package render

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal"
)

func at3(clock string) *time.Time {
	t, err := time.Parse(time.DateTime, "2026-11-20 "+clock)
	if err != nil {
		panic(err)
	}
	return &t
}

// signs makes the count of a signature and the event of it.
func signs(code string, n int64, from, to, example string, subjects ...journal.SubjectCount) *journal.Report {
	c := journal.Count{Code: code, Count: n, Example: example, Subjects: subjects}
	e := journal.Event{Code: code, Count: n}
	if from != "" {
		c.First, c.Last = at3(from), at3(to)
		e.At, e.Until = c.First, c.Last
	}
	return &journal.Report{
		Lines: 100, From: at3("02:00:00"), To: at3("04:00:00"), Signatures: []journal.Count{c}, Events: []journal.Event{e},
	}
}

func unitSubject(name string, n int64) journal.SubjectCount {
	return journal.SubjectCount{Kind: "Unit", ID: name, Count: n, First: at3("03:00:00"), Last: at3("03:10:00")}
}

func taskSubject(name string) journal.SubjectCount {
	return journal.SubjectCount{Kind: "Process", ID: "900", Name: name, Count: 1, First: at3("03:00:00"), Last: at3("03:00:00")}
}

func together(all ...*journal.Report) *journal.Report {
	r := *all[0]
	for _, o := range all[1:] {
		r.Signatures = append(r.Signatures, o.Signatures...)
		r.Events = append(r.Events, o.Events...)
	}
	return &r
}

func TestTroubles(t *testing.T) {
	skips := signs("RuntimeIsDown", 114, "03:00:30", "03:09:55", "")
	crashes := together(signs("UnitRestarted", 6, "03:00:00", "03:10:00", "", unitSubject("kubelet.service", 6)),
		signs("KubeletFatal", 6, "03:00:00", "03:10:00", `"command failed" err="failed to run Kubelet: \"swap\" is on" x="y"`))
	startup := signs("StatusCheckPending", 18, "03:00:00", "03:09:00", "")
	incident := *skips
	incident.Episodes = []journal.Episode{{Kind: journal.Incident, Start: at3("03:00:00"), End: at3("03:05:00")}}
	apart := signs("RuntimeIsDown", 3, "02:10:00", "03:50:00", "")
	apart.Events = []journal.Event{
		{Code: "RuntimeIsDown", Count: 2, At: at3("02:10:00"), Until: at3("02:10:05")}, {Code: "RuntimeIsDown", Count: 1, At: at3("03:50:00")},
	}
	unshown := signs("RuntimeIsDown", 3, "02:10:00", "03:50:00", "")
	unshown.Events = nil
	toTheEnd := signs("RuntimeIsDown", 600, "03:10:00", "03:59:58", "")
	ended := signs("UnitFailed", 2, "03:00:00", "03:00:00", "containerd.service: Main process exited, code=killed", unitSubject("containerd.service", 2))
	killed := signs("OOMKill", 1, "03:00:00", "03:00:00", "", taskSubject("mysqld"), taskSubject("containerd"))
	api := signs("APIServerFailed", 80, "03:00:00", "03:04:34", "")
	expired := func(text string) *journal.Report {
		return signs("CertificateExpired", 30, "03:00:00", "03:03:23", text)
	}
	for _, tt := range []struct {
		name string
		r    *journal.Report
		want []string // beginning of the lines
	}{
		{"nothing", &journal.Report{Lines: 5}, nil},
		{"an incident says it itself", &incident, nil},
		{"the loop stood still", skips, []string{"03:00:30 to 03:09:55, 114 records: the kubelet's loop did no work: the runtime's status"}},
		{"and still does", toTheEnd, []string{"03:10:00 to 03:59:58, 600 records, until the log ends: the kubelet's loop"}},
		{"for a moment", signs("RuntimeIsDown", 5, "03:00:30", "03:00:50", ""), nil},
		{"moments far apart", apart, nil},
		{"far apart, beyond the timeline", unshown, nil},
		{"without a time", signs("RuntimeIsDown", 40, "", "", ""), []string{"40 records: the kubelet's loop"}},
		{"without a time, few", signs("RuntimeIsDown", 4, "", "", ""), nil},
		{"a kubelet that starts", signs("StatusCheckPending", 18, "03:00:00", "03:01:00", ""), nil},
		{"a kubelet that never gets a status", startup, []string{"03:00:00 to 03:09:00, 18 records: the kubelet's loop did no work: the runtime had not"}},
		{"a loop of crashes, and the starts in it", together(startup, crashes), []string{
			"03:00:00 to 03:10:00, 6 times: the kubelet ended, and systemd started it again. In its words: failed to run Kubelet: \"swap\" is on",
		}},
		{"one crash is less than a runtime that is away", together(signs("KubeletFatal", 1, "03:00:00", "03:00:00", "bad flag"), skips), []string{
			"03:00:30 to 03:09:55, 114 records: the kubelet's", "03:00:00, 1 record: the kubelet gave up. In its words: bad flag",
		}},
		{"systemd's watchdog", signs("WatchdogTimeout", 3, "03:00:00", "03:10:00", "", unitSubject("kubelet.service", 3)), []string{"03:00:00 to 03:10:00, 3 times: systemd's watchdog killed"}},
		{"another unit", signs("UnitRestarted", 9, "03:00:00", "03:10:00", "", unitSubject("app.service", 9)), nil},
		{"the runtime ended", ended, []string{
			"03:00:00 to 03:10:00, 2 records: the runtime ended with a failure: containerd.service. In its words: containerd.service: Main process exited, code=killed",
		}},
		{"killed for memory", killed, []string{"03:00:00, 1 record: the kernel killed containerd for want of memory"}},
		{"another's death", signs("OOMKill", 1, "03:00:00", "03:00:00", "", taskSubject("runc:[2:INIT]"), taskSubject("docker-entrypoi")), nil},
		{"a hung task", signs("HungTask", 2, "03:00:00", "03:02:00", "", taskSubject("jbd2/sda1-8")), []string{"03:00:00 to 03:02:00, 2 records: the kernel reported blocked tasks: jbd2/sda1-8"}},
		{"no network", signs("NetworkNotReady", 60, "03:00:00", "03:04:55", ""), []string{"03:00:00 to 03:04:55, 60 records: the network of pods"}},
		{"no network at boot", signs("NetworkNotReady", 6, "03:00:00", "03:00:40", ""), nil},
		{"an unready runtime", signs("RuntimeNotReadyReported", 20, "03:00:00", "03:02:00", ""), []string{"03:00:00 to 03:02:00, 20 records: the runtime said of itself"}},
		{"relists that fail", signs("RelistFailed", 20, "03:00:00", "03:00:20", ""), []string{"03:00:00 to 03:00:20, 20 records: relists failed"}},
		{"no API server", api, []string{"03:00:00 to 03:04:34, 80 records: calls of the kubelet to the API server failed"}},
		{"the server's certificate", together(api, expired("x509: tls: failed to verify certificate: x509: certificate has expired")), []string{"03:00:00 to 03:03:23, 30 records: the kubelet met an expired certificate"}},
		{"the kubelet's certificate", expired("remote error: tls: expired certificate"), []string{"03:00:00 to 03:03:23, 30 records: the kubelet's own certificate"}},
		{"some certificate", expired("x509: certificate has expired"), []string{"03:00:00 to 03:03:23, 30 records: a certificate has expired"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c := &page{width: 80}, calendarOf(tt.r)
			all := troublesOf(tt.r)
			for i, b := range all {
				line := p.prose(p.troubleLine(b, tt.r, c))
				if i >= len(tt.want) || !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("line %d: %s", i, line)
				}
			}
			if len(all) != len(tt.want) {
				t.Errorf("%d lines, want %d", len(all), len(tt.want))
			}
			if got := stateOf(tt.r) == journalTrouble; got != (len(tt.want) > 0) {
				t.Errorf("in trouble: %t", got)
			}
			for _, s := range journalSteps(tt.r, c) {
				if len(tt.want) > 0 && s.Command == "kdiag explain" {
					t.Errorf("step without a cause: %+v", s)
				}
			}
		})
	}
}

// TestTroublesExplained wants every trouble to lead to a cause that can be explained.
func TestTroublesExplained(t *testing.T) {
	for _, code := range []string{
		"RuntimeIsDown", "StatusCheckPending", "RuntimeNotReadyReported", "RelistFailed", "HungTask", "SoftLockup", "RCUStall", "NetworkNotReady",
		"CertificateExpired", "Unauthorized", "APIServerFailed", "KubeletFatal",
	} {
		r := signs(code, 60, "03:00:00", "03:09:55", "")
		steps := journalSteps(r, calendarOf(r))
		if len(steps) != 3 || !strings.HasPrefix(steps[0].Command, "kdiag explain ") || steps[1].Command != "kdiag pleg" ||
			!strings.HasPrefix(steps[2].Command, "journalctl ") {
			t.Errorf("%s: steps %+v", code, steps)
		}
	}
}

func TestRestarts(t *testing.T) {
	ev := func(clock, lane, code, marker, subject string) journal.Event {
		e := journal.Event{Lane: lane, Code: code, Marker: marker, Subject: subject, What: "words", Count: 1}
		if clock != "" {
			e.At = at3(clock)
		}
		return e
	}
	for _, tt := range []struct {
		name   string
		events []journal.Event
		want   string
	}{
		{"none", nil, ""},
		{"the watchdog's kill is one restart", []journal.Event{
			ev("03:05:06", "node", "UnitFailed", "error", "kubelet.service"), ev("03:05:06", "node", "WatchdogTimeout", "error", "kubelet.service"),
			ev("03:05:16", "node", "UnitRestarted", "restart", "kubelet.service"), ev("03:05:16", "node", "UnitStarted", "start", "Kubernetes Node Agent"),
			ev("03:05:17", "kubelet", "KubeletStarted", "start", ""),
		}, "03:05:06 kubelet killed by systemd's watchdog, up again 03:05:17"},
		{"two kills", []journal.Event{
			ev("03:05:06", "node", "UnitFailed", "error", "kubelet.service"), ev("03:05:08", "kubelet", "KubeletStarted", "start", ""),
			ev("03:05:12", "node", "UnitFailed", "error", "kubelet.service"), ev("03:05:14", "kubelet", "KubeletStarted", "start", ""),
		}, "03:05:06 kubelet ended with a failure, up again 03:05:08; 03:05:12 kubelet ended with a failure, up again 03:05:14"},
		{"kubelet and runtime apart", []journal.Event{
			ev("03:05:00", "runtime", "RuntimeStopped", "stop", ""), ev("03:05:01", "node", "UnitStopped", "stop", "containerd.service"),
			ev("03:05:02", "node", "UnitRestarted", "restart", "k3s.service"), ev("03:05:03", "node", "UnitStarted", "start", "containerd container runtime"),
			ev("03:05:04", "runtime", "RuntimeStarted", "start", ""),
		}, "03:05:00 containerd stopped, up again 03:05:04; 03:05:02 kubelet restarted by systemd"},
		{"only a start", []journal.Event{ev("03:05:17", "kubelet", "KubeletStarted", "start", "")}, "03:05:17 kubelet started"},
		{"told otherwise", []journal.Event{ev("", "kubelet", "KubeletStarted", "restart", "kubelet")}, "- words: kubelet"},
		{"another unit", []journal.Event{ev("03:05:17", "node", "UnitFailed", "error", "x.service")}, "03:05:17 x.service ended with a failure"},
		{"long after", []journal.Event{
			ev("03:05:00", "node", "UnitStopped", "stop", "crio.service"), ev("03:06:00", "node", "UnitStarted", "start", "crio.service"),
		}, "03:05:00 crio stopped; 03:06:00 crio started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &page{width: 80}
			if diff := cmp.Diff(tt.want, p.restartsLine(journal.Episode{Restarts: tt.events}, calendar{zone: time.UTC})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNotesOnce(t *testing.T) {
	sources := []journal.Source{{Name: "a.log", Zone: "+00:00, assumed", Year: "as the last"}, {Name: "b.log", Zone: "+00:00, assumed"}}
	notes := []string{"a.log: no zone is written", "general", "a.log: no year is written", "b.log: no zone is written"}
	for _, tt := range []struct {
		sources int
		want    []string
	}{
		{2, []string{"a.log: no zone is written; no year is written", "general", "b.log: no zone is written"}},
		{1, []string{"no zone is written; no year is written", "general", "b.log: no zone is written"}},
	} {
		if diff := cmp.Diff(tt.want, gatheredNotes(&journal.Report{Sources: sources[:tt.sources], Notes: notes})); diff != "" {
			t.Errorf("%d sources, -want +got:\n%s", tt.sources, diff)
		}
	}
	p := &page{}
	if got := p.sourceLine(sources[0], notes, calendar{}); strings.Contains(got, "zone") || strings.Contains(got, "year") {
		t.Errorf("said again: %s", got)
	}
	if got := p.sourceLine(sources[0], nil, calendar{}); !strings.Contains(got, "zone +00:00, assumed, year as the last") {
		t.Errorf("not said: %s", got)
	}
}

func TestShortIDs(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for in, want := range map[string]string{
		"stop of " + id + " failed": "stop of 0123456789abc failed",
		"sha256:" + id + ", x":      "sha256:0123456789abc, x",
		id + "0":                    id + "0",
		"no id":                     "no id",
	} {
		if got := shortIDs(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
