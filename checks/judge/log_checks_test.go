package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestJournalChecks holds the checks of the journal: ok, and every other outcome.
func TestJournalChecks(t *testing.T) {
	ids := []string{"journal.pleg", "journal.kubelet", "journal.apiserver", "journal.kernel"}
	all := func(s checks.Status) map[string]checks.Status {
		out := map[string]checks.Status{}
		for _, id := range ids {
			out[id] = s
		}
		return out
	}
	but := func(id string, s checks.Status) map[string]checks.Status {
		out := all(checks.StatusOK)
		out[id] = s
		return out
	}
	unread := but("journal.kernel", checks.StatusOK)
	for _, id := range ids[:3] {
		unread[id] = checks.StatusUnknown
	}
	journald := journal.Source{Name: "/var/log/journal/x/system.journal", Format: "journal"}
	rke2 := surfaces(func(n *facts.Node) { n.Systemd.Value.Kubelet.Name = "rke2-agent.service" })
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   map[string]checks.Status
	}{
		{"not looked at", nil, all(checks.StatusSkipped)},
		{"simulated", []tweak{func(f *facts.Input) {
			f.Runtime.EndpointSource, f.JournalProblem = string(crictl.SourceSimulated), "the runtime is simulated"
		}}, all(checks.StatusSkipped)},
		{
			"not readable",
			[]tweak{func(f *facts.Input) { f.JournalProblem = "permission denied" }},
			all(checks.StatusUnknown),
		},
		{"empty", []tweak{said(), func(f *facts.Input) { f.Journal.Lines = 0 }}, all(checks.StatusUnknown)},
		{"nothing of note", []tweak{said()}, all(checks.StatusOK)},
		{"calm", []tweak{calm()}, but("journal.apiserver", checks.StatusWarning)},
		{"the journal was read", []tweak{said(), readFrom(journald)}, all(checks.StatusOK)},
		{"RKE2's kubelet has a file of its own", []tweak{rke2, said(), readFrom(journald)}, unread},
		{"RKE2's own file was read", []tweak{rke2, said(), readFrom(journald,
			journal.Source{Name: "/host" + facts.OwnLog, Format: "klog"})}, all(checks.StatusOK)},
		{"RKE2's own file could not be read", []tweak{rke2, said(), readFrom(journald,
			journal.Source{Name: facts.OwnLog, Problem: "permission denied"})}, unread},
		{
			"no kubelet anywhere",
			[]tweak{said(), func(f *facts.Input) { f.Kubelet = nil }},
			map[string]checks.Status{
				"journal.pleg": checks.StatusSkipped, "journal.kubelet": checks.StatusSkipped,
				"journal.apiserver": checks.StatusSkipped, "journal.kernel": checks.StatusOK,
			},
		},
		{"PLEG now", []tweak{said(incident(2*time.Minute, 4*time.Second))}, but("journal.pleg", checks.StatusCritical)},
		{
			"PLEG before",
			[]tweak{said(incident(9*time.Minute, 8*time.Minute, recovered(7*time.Minute)))},
			but("journal.pleg", checks.StatusWarning),
		},
		{"one restart", []tweak{said(restarted(1, 0, time.Minute))}, but("journal.kubelet", checks.StatusWarning)},
		{
			"a loop",
			[]tweak{said(restarted(9, 11*time.Second, time.Second))},
			but("journal.kubelet", checks.StatusCritical),
		},
		{
			"a loop that is over",
			[]tweak{said(restarted(9, 11*time.Second, 8*time.Minute))},
			but("journal.kubelet", checks.StatusWarning),
		},
		{
			"the watchdog withheld",
			[]tweak{said(signs(signature.WatchdogWithheld, 2, time.Minute, time.Second, "x"))},
			but("journal.kubelet", checks.StatusWarning),
		},
		{"the API server away", []tweak{said(signs(signature.APIServerFailed, 40, 5*time.Minute, time.Second,
			leaseTimeout))}, but("journal.apiserver", checks.StatusCritical)},
		{
			"a certificate",
			[]tweak{said(signs(signature.CertificateExpired, 1, 5*time.Minute, time.Second, "x509"))},
			but("journal.apiserver", checks.StatusWarning),
		},
		{"a hung shim", []tweak{said(signs(signature.HungTask, 1, 5*time.Minute, time.Minute, blockedShim,
			"containerd-shim pid 5000"))}, but("journal.kernel", checks.StatusCritical)},
		{"a hung disk and a killed kubelet", []tweak{said(signs(signature.HungTask, 1, 5*time.Minute, time.Minute,
			blockedJournal, "jbd2/sda1-8 pid 311"), signs(signature.OOMKill, 1, 5*time.Minute, time.Minute, memcgKill, "kubelet"))}, but("journal.kernel", checks.StatusCritical)},
		{"a container at its limit", []tweak{said(signs(signature.OOMKill, 1, 5*time.Minute, time.Minute, memcgKill,
			"java"))}, all(checks.StatusOK)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]checks.Status{}
			for _, r := range Results(node(tt.tweaks...)) {
				if slices.Contains(ids, r.ID) {
					got[r.ID] = r.Status
				}
				if r.Summary == "" {
					t.Errorf("%s has no summary", r.ID)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
