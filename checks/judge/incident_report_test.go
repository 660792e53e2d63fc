package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

func at3(clock string) *time.Time {
	t, err := time.Parse(time.DateTime, "2026-11-20 "+clock)
	if err != nil {
		panic(err)
	}
	return &t
}

// counted makes the count of a signature and the event of it.
func counted(code string, n int64, from, to, example string, subjects ...journal.SubjectCount) *journal.Report {
	c := journal.Count{Code: code, Count: n, Example: example, Subjects: subjects}
	e := journal.Event{Code: code, Count: n}
	if from != "" {
		c.First, c.Last = at3(from), at3(to)
		e.At, e.Until = c.First, c.Last
	}
	return &journal.Report{
		Lines: 100, From: at3("02:00:00"), To: at3("04:00:00"), Signatures: []journal.Count{c},
		Events: []journal.Event{e},
	}
}

func unitSubject(name string, n int64) journal.SubjectCount {
	return journal.SubjectCount{Kind: "Unit", ID: name, Count: n, First: at3("03:00:00"), Last: at3("03:10:00")}
}

func taskSubject(name string) journal.SubjectCount {
	return journal.SubjectCount{
		Kind: "Process", ID: "900", Name: name, Count: 1, First: at3("03:00:00"),
		Last: at3("03:00:00"),
	}
}

func merged(all ...*journal.Report) *journal.Report {
	r := *all[0]
	for _, o := range all[1:] {
		r.Signatures = append(r.Signatures, o.Signatures...)
		r.Events = append(r.Events, o.Events...)
	}
	return &r
}

// findingText words a finding as kdiag journal does.
func findingText(f journal.Finding) string {
	text := units.Count(f.Count, f.Unit)
	if f.First != nil {
		from, to := f.First.Format(time.TimeOnly), f.Last.Format(time.TimeOnly)
		if from != to {
			from += " to " + to
		}
		text = from + ", " + text
	}
	if f.Ongoing {
		text += ", until the log ends"
	}
	text += ": " + f.Summary
	if f.Words != "" {
		text += ". In its words: " + f.Words
	}
	return text
}

func TestLogFindings(t *testing.T) {
	skips := counted("RuntimeIsDown", 114, "03:00:30", "03:09:55", "")
	crashes := merged(counted("UnitRestarted", 6, "03:00:00", "03:10:00", "", unitSubject("kubelet.service", 6)),
		counted("KubeletFatal", 6, "03:00:00", "03:10:00",
			`"command failed" err="failed to run Kubelet: \"swap\" is on" x="y"`))
	startup := counted("StatusCheckPending", 18, "03:00:00", "03:09:00", "")
	incident := *skips
	incident.Episodes = []journal.Episode{{Kind: journal.Incident, Start: at3("03:00:00"), End: at3("03:05:00")}}
	apart := counted("RuntimeIsDown", 3, "02:10:00", "03:50:00", "")
	apart.Events = []journal.Event{
		{Code: "RuntimeIsDown", Count: 2, At: at3("02:10:00"), Until: at3("02:10:05")},
		{Code: "RuntimeIsDown", Count: 1, At: at3("03:50:00")},
	}
	ended := counted("UnitFailed", 2, "03:00:00", "03:00:00", "containerd.service: Main process exited, code=killed",
		unitSubject("containerd.service", 2))
	killed := counted("OOMKill", 1, "03:00:00", "03:00:00", "", taskSubject("mysqld"), taskSubject("containerd"))
	api := counted("APIServerFailed", 80, "03:00:00", "03:04:34", "")
	for _, tt := range []struct {
		name string
		r    *journal.Report
		want []string // beginning of the lines
	}{
		{"nothing", &journal.Report{Lines: 5}, nil},
		{
			"the loop stood still", skips,
			[]string{"03:00:30 to 03:09:55, 114 records: the kubelet's loop did no work: the runtime's status"},
		},
		{"moments far apart", apart, nil},
		{"without a time", counted("RuntimeIsDown", 40, "", "", ""), []string{"40 records: the kubelet's loop"}},
		{
			"a kubelet that never gets a status", startup,
			[]string{"03:00:00 to 03:09:00, 18 records: the kubelet's loop did no work: the runtime had not"},
		},
		{"a loop of crashes, and the starts in it", merged(startup, crashes), []string{
			"03:00:00 to 03:10:00, 6 records: the kubelet ended, and systemd started it again: kubelet.service. In " +
				"its words: failed to run Kubelet: \"swap\" is on",
		}},
		{
			"one crash is less than a runtime that is away",
			merged(counted("KubeletFatal", 1, "03:00:00", "03:00:00", "bad flag"), skips),
			[]string{
				"03:00:30 to 03:09:55, 114 records: the kubelet's",
				"03:00:00, 1 record: the kubelet gave up. In its words: bad flag",
			},
		},
		{"systemd's watchdog", counted("WatchdogTimeout", 3, "03:00:00", "03:10:00", "",
			unitSubject("kubelet.service", 3)), []string{"03:00:00 to 03:10:00, 3 records: systemd's watchdog killed"}},
		{"the runtime ended", ended, []string{
			"03:00:00 to 03:10:00, 2 records: the runtime ended with a failure: containerd.service. In its words: " +
				"containerd.service: Main process exited, code=killed",
		}},
		{"killed for memory", killed, []string{"03:00:00, 1 record: the kernel killed processes for want of memory: containerd"}},
		{"another's death", counted("OOMKill", 1, "03:00:00", "03:00:00", "", taskSubject("runc:[2:INIT]"),
			taskSubject("docker-entrypoi")), nil},
		{
			"a hung task", counted("HungTask", 2, "03:00:00", "03:02:00", "", taskSubject("jbd2/sda1-8")),
			[]string{"03:00:00 to 03:02:00, 2 records: the kernel reported blocked tasks: jbd2/sda1-8"},
		},
		{
			"no network", counted("NetworkNotReady", 60, "03:00:00", "03:04:55", ""),
			[]string{"03:00:00 to 03:04:55, 60 records: the network of pods"},
		},
		{
			"relists that fail", counted("RelistFailed", 20, "03:00:00", "03:00:20", ""),
			[]string{"03:00:00 to 03:00:20, 20 records: relists failed"},
		},
		{"no API server", api, []string{"03:00:00 to 03:04:34, 80 records: calls of the kubelet to the API server " +
			"failed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			Journal(tt.r)
			for i, f := range tt.r.Findings {
				line := findingText(f)
				if i >= len(tt.want) || !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("line %d: %s", i, line)
				}
			}
			if len(tt.r.Findings) != len(tt.want) || len(tt.r.Problems) != len(tt.want) {
				t.Errorf("%d findings, want %d; problems %q", len(tt.r.Findings), len(tt.want), tt.r.Problems)
			}
			if broken := tt.r.Verdict == checks.LogBroken &&
				tt.r.Status == string(checks.Degraded); broken != (len(tt.want) > 0) {
				t.Errorf("%s, %s", tt.r.Verdict, tt.r.Status)
			}
		})
	}
}

func TestJournalctl(t *testing.T) {
	from := time.Date(2026, 11, 21, 8, 49, 8, 461, time.FixedZone("", 8*3600))
	const window = " -o short-precise --since '2026-11-21 00:39:08 UTC' --until '2026-11-21 00:58:08 UTC'"
	for _, tt := range []struct {
		name    string
		sources []string
		want    string
	}{
		{"the node's own", []string{"/var/log/journal/0f/system.journal"}, "journalctl" + window},
		{"copied", []string{"/mnt/d/a.journal", "/mnt/d/b.journal~"}, "journalctl -D '/mnt/d'" + window},
		{"to be quoted", []string{"/mnt/it's $HOME/a.journal"}, `journalctl -D '/mnt/it'\''s $HOME'` + window},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sources []journal.Source
			for _, name := range tt.sources {
				sources = append(sources, journal.Source{Name: name, Format: "journal"})
			}
			if got := journalctlCommand(sources, from, from.Add(7*time.Minute)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// The verdict, its status and " YET" follow from what was found and read.
func TestLogVerdicts(t *testing.T) {
	incident := func(recovered bool) *journal.Report {
		return &journal.Report{Lines: 5, Episodes: []journal.Episode{{Kind: journal.Incident, Recovered: recovered}}}
	}
	failing := incident(true)
	failing.Failing = &journal.Episode{Kind: journal.Failing}
	both := incident(false)
	both.Failing = failing.Failing
	for _, tt := range []struct {
		name    string
		r       *journal.Report
		verdict string
		status  checks.Verdict
	}{
		{"an incident goes on", incident(false), checks.LogUnhealthy, checks.Unhealthy},
		{"all have ended", incident(true), checks.LogRecovered, checks.Degraded},
		{"relists fail", failing, checks.LogFailing, checks.Unhealthy},
		{"relists fail while an incident goes on", both, checks.LogUnhealthy, checks.Unhealthy},
		{"nothing", &journal.Report{Lines: 5}, checks.LogClear, checks.Healthy},
		{"nothing yet", &journal.Report{Lines: 5, Partial: true}, checks.LogClear + " YET", checks.Healthy},
		{
			"nothing read", &journal.Report{Sources: []journal.Source{{Name: "a", Problem: "permission denied"}}},
			checks.LogUnknown, checks.Unknown,
		},
		{"one of two read, and it is empty", &journal.Report{Sources: []journal.Source{
			{Name: "a"},
			{Name: "b", Problem: "x"},
		}}, checks.LogClear, checks.Healthy},
		{"no line understood", &journal.Report{Lines: 5, Unparsed: 5}, checks.LogUnknown, checks.Unknown},
	} {
		Journal(tt.r)
		if tt.r.Verdict != tt.verdict || tt.r.Status != string(tt.status) {
			t.Errorf("%s: %s, %s; want %s, %s", tt.name, tt.r.Verdict, tt.r.Status, tt.verdict, tt.status)
		}
	}
}
