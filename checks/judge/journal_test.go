package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// bursts adds n events of one record each, so far apart, the last so long ago.
func bursts(code, subject string, n int, apart, last time.Duration) entry {
	return func(r *journal.Report) {
		for i := range n {
			at := last + time.Duration(n-1-i)*apart
			burst(code, 1, at, at, subject)(r)
		}
	}
}

func restarted(n int, apart, last time.Duration) entry {
	return func(r *journal.Report) {
		signs(signature.UnitRestarted, int64(n), last+time.Duration(n-1)*apart, last, scheduled, "kubelet.service")(r)
	}
}

// inPod puts what the kernel killed into the control group of a pod.
func inPod(r *journal.Report) {
	for i := range r.Signatures {
		for j := range r.Signatures[i].Subjects {
			r.Signatures[i].Subjects[j].InPod = true
		}
	}
}

// TestJournalCauses holds, for each cause that the logs tell, what makes it, what lifts or lowers it, and what only
// looks like it.
func TestJournalCauses(t *testing.T) {
	kubelet := host.Process{
		PID: 812, Name: "kubelet", Role: host.RoleKubelet, State: 'S',
		Started: now().Add(-40 * time.Second),
	}
	old := kubelet
	old.Started = now().Add(-time.Hour)
	with := func(p host.Process) tweak { return func(f *facts.Input) { f.Processes = append(f.Processes, p) } }
	api := func(n int64, first, last time.Duration) entry {
		return signs(signature.APIServerFailed, n, first, last, leaseTimeout)
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   []string // code and severity
		say    string   // in the summary of the first
	}{
		{"calm", []tweak{calm()}, nil, ""},
		{"an empty journal", []tweak{said()}, nil, ""},

		{
			"PLEG now",
			[]tweak{said(incident(2*time.Minute, 4*time.Second))},
			[]string{"PLEGUnhealthy critical"},
			"last good relist began at 03:04:24",
		},
		{
			"PLEG, last word 31 s ago",
			[]tweak{said(incident(2*time.Minute, 31*time.Second))},
			[]string{"PLEGUnhealthy warning"},
			"was unhealthy from 03:07:24 to 03:08:53",
		},
		{"PLEG now, by the log, but recovered", []tweak{said(incident(2*time.Minute, 9*time.Second,
			recovered(4*time.Second)))}, []string{"PLEGUnhealthy warning"}, "was unhealthy from"},
		{"PLEG flapped", []tweak{said(incident(14*time.Minute, 13*time.Minute, recovered(12*time.Minute)),
			incident(9*time.Minute, 8*time.Minute,
				recovered(7*time.Minute)))}, []string{"PLEGUnhealthy warning"}, "PLEG flaps: unhealthy twice"},
		{"PLEG with stalls", []tweak{said(incident(6*time.Minute, 4*time.Second,
			func(e *journal.Episode) {
				e.Stalls = make([]journal.Stall,
					3)
			}))}, []string{"PLEGUnhealthy critical"}, "relists finish, but too late"},
		{"PLEG and failing relists", []tweak{said(incident(6*time.Minute, 4*time.Second),
			signs(signature.RelistFailed, 3, 6*time.Minute, time.Minute,
				hungRelist))}, []string{"PLEGUnhealthy critical"}, "lists fail"},
		{"a kubelet that starts", []tweak{said(incident(20*time.Second, 2*time.Second, starting))}, nil, ""},
		{
			"PLEG, and another socket was asked for by name",
			[]tweak{said(incident(2*time.Minute, 4*time.Second)), askedBy(crictl.SourceFlag)},
			nil, "",
		},

		{
			"three restarts",
			[]tweak{said(restarted(3, 11*time.Second, 5*time.Second))},
			[]string{"KubeletCrashLooping critical"},
			"restarted 3 times in the last 15m, last at 03:09:19: why " +
				"is not in the log",
		},
		{
			"restarts long ago",
			[]tweak{said(restarted(5, 11*time.Second, 7*time.Minute)), with(old)},
			[]string{"KubeletCrashLooping warning"},
			"",
		},
		{"restarts, and it runs for seconds", []tweak{
			said(restarted(5, 11*time.Second, 5*time.Second)),
			with(kubelet),
		}, []string{"KubeletCrashLooping critical"}, ""},
		{"restarts of another unit", []tweak{said(signs(signature.UnitRestarted, 60, 14*time.Minute, time.Second,
			"node_exporter.service: Scheduled restart job", "node_exporter.service"))}, nil, ""},
		{"restarts by hand", []tweak{said(signs(signature.UnitStopped, 5, 14*time.Minute, time.Minute,
			"Stopped kubelet.service", "kubelet.service"), signs(signature.UnitStarted, 5, 14*time.Minute, time.Minute, "Started kubelet.service", "kubelet.service"), signs(signature.KubeletStarted, 5, 14*time.Minute, time.Minute, "Kubelet version"))}, nil, ""},
		{"restarts until it joined, then ready", []tweak{said(restarted(20, 12*time.Second, 4*time.Minute),
			signs(signature.NodeReady, 1, 3*time.Minute, 3*time.Minute,
				"Node became ready"))}, []string{"KubeletCrashLooping warning"}, ""},
		{"fatal errors and starts", []tweak{said(signs(signature.KubeletFatal, 4, time.Minute, 4*time.Second,
			fatalSwap), bursts(signature.KubeletFatal, "", 4, 14*time.Second, 4*time.Second), signs(signature.KubeletStarted, 4, time.Minute, 5*time.Second, "Kubelet version"))}, []string{"KubeletCrashLooping critical"}, "it ends itself with: failed to run Kubelet: running with swap on is not supported"},
		{"fatal errors without a start", []tweak{said(signs(signature.KubeletFatal, 4, time.Minute, 4*time.Second,
			fatalSwap))}, nil, ""},
		{"restarts by the watchdog", []tweak{said(restarted(3, 5*time.Minute, 50*time.Second),
			signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute,
				"kubelet.service: Watchdog timeout (limit 30s)!", "kubelet.service"))}, []string{"KubeletCrashLooping critical"}, "systemd's watchdog killed it, because its loop stood still"},
		{
			"API server away",
			[]tweak{said(api(30, 6*time.Minute, 3*time.Second))},
			[]string{"APIServerUnreachable critical"},
			"since 03:03:24: i/o timeout",
		},
		{"API server back since a minute", []tweak{said(api(30, 10*time.Minute, 61*time.Second))}, nil, ""},
		{"blips in the timeline", []tweak{said(api(300, 12*time.Minute, 3*time.Second),
			burst(signature.APIServerFailed, 290, 12*time.Minute, 11*time.Minute,
				""), burst(signature.APIServerFailed, 10, 13*time.Second, 3*time.Second, ""))}, nil, ""},
		{"one outage in the timeline, after a blip", []tweak{said(api(300, 12*time.Minute, 3*time.Second),
			burst(signature.APIServerFailed, 2, 12*time.Minute, 12*time.Minute, ""), bursts(signature.APIServerFailed,
				"", 20, 11*time.Second, 3*time.Second))}, []string{"APIServerUnreachable critical"}, "since 03:05:52"},
		{"ready after the last failure", []tweak{said(api(30, 6*time.Minute, 9*time.Second),
			signs(signature.NodeReady, 1, 5*time.Second, 5*time.Second, "Node became ready"))}, nil, ""},
		{"refused credentials", []tweak{said(signs(signature.Unauthorized, 30, 6*time.Minute, 3*time.Second,
			`"Unable to update node status" err="Unauthorized"`))}, []string{"APIServerUnreachable critical"}, "does not accept the kubelet's credentials"},
		{"an expired certificate", []tweak{said(api(30, 6*time.Minute, 3*time.Second),
			signs(signature.CertificateExpired, 3, 6*time.Minute, time.Minute,
				"x509: certificate has expired or is not yet valid"))}, []string{"APIServerUnreachable critical"}, "a certificate has expired"},

		{"all processes of one container", []tweak{said(signs(signature.OOMKill, 5, time.Minute, time.Minute,
			memcgKill, "7011", "7012", "7013"), burst(signature.OOMKill, 1, time.Minute, time.Minute, "java"), burst(signature.OOMKill, 1, time.Minute, time.Minute, "sh"))}, nil, ""},
		{"one container again and again", []tweak{said(signs(signature.OOMKill, 9, 10*time.Minute, time.Minute,
			memcgKill, "java"), bursts(signature.OOMKill, "java", 3, 3*time.Minute, time.Minute))}, []string{"OOMKilled warning"}, "killed for memory 3 times in 15m: java"},
		{"the node out of memory", []tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute,
			strings.Replace(globalKill, "containerd", "java",
				1), "java"))}, []string{"OOMKilled warning"}, "the node ran out of memory, and the kernel killed java"},
		{"the runtime", []tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute, globalKill,
			"containerd pid 4711"))}, []string{"OOMKilled critical"}, "the kernel killed containerd (pid 4711) " +
			"for want of memory, last at 03:08:24"},
		{"a shim", []tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute, memcgKill,
			"containerd-shim pid 5000"))}, []string{"OOMKilled critical"}, "containerd-shim (pid 5000)"},
		{"the docker of a pod", []tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute,
			strings.Replace(memcgKill, "java", "dockerd", 1), "dockerd pid 7011"), inPod)}, nil, ""},
		{
			"CRI-O's conmon, which is in its pod's group",
			[]tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute, memcgKill, "conmon pid 7011"),
				inPod)},
			[]string{"OOMKilled critical"},
			"conmon (pid 7011)",
		},
		{"a runc at its container's limit", []tweak{said(signs(signature.OOMKill, 1, time.Minute, time.Minute,
			memcgKill, "runc:[2:INIT]"))}, nil, ""},
		{"a process of the runtime's unit", []tweak{said(signs(signature.UnitOOMKilled, 1, time.Minute, time.Minute,
			"containerd.service: A process of this unit has been killed by the OOM killer.", "containerd.service"))}, []string{"OOMKilled critical"}, "a process of containerd.service"},
		{"a hung shim", []tweak{said(signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedShim,
			"containerd-shim pid 5000"))}, []string{"KernelHung critical"}, "the kernel reports containerd-shim (pid " +
			"5000) as hung: what it serves waits"},
		{"a hung journal of a disk", []tweak{said(signs(signature.HungTask, 1, 2*time.Minute, 2*time.Minute,
			blockedJournal, "jbd2/sda1-8 pid 311"))}, []string{"KernelHung warning"}, "jbd2/sda1-8 (pid 311)"},
		{"a soft lockup", []tweak{said(signs(signature.SoftLockup, 4, 2*time.Minute, time.Minute,
			"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [stress:9]", "stress pid 9"))}, []string{"KernelHung warning"}, "stress (pid 9)"},
		{"an RCU stall", []tweak{said(signs(signature.RCUStall, 1, 2*time.Minute, time.Minute,
			"rcu: INFO: rcu_sched self-detected stall on CPU"))}, []string{"KernelHung warning"}, "1 RCU stall"},
		{"a task among many", []tweak{said(signs(signature.HungTask, 3, 6*time.Minute, 2*time.Minute, blockedJournal,
			"jbd2/sda1-8 pid 311", "kubelet pid 812"))}, []string{"KernelHung critical"}, "kubelet (pid 812) as hung: " +
			"what it serves waits with it; 1 task more"},
		{"a slow NFS server", []tweak{said(signs(signature.NFSNotResponding, 3, 6*time.Minute, 2*time.Minute,
			"nfs: server 10.0.0.9 not responding, still trying", "10.0.0.9"))}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			var got []string
			for _, c := range named {
				got = append(got, fmt.Sprintf("%s %s", c.Code, c.Severity))
				checkCause(t, tt.name, c)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Fatal(diff)
			}
			if tt.say != "" && !strings.Contains(named[0].Summary, tt.say) {
				t.Errorf("%q does not say %q", named[0].Summary, tt.say)
			}
		})
	}
}

// TestNoCauseWithoutItsSignal takes from each picture that the logs make the records of its signal: the cause must go.
func TestNoCauseWithoutItsSignal(t *testing.T) {
	signals := map[string][]string{
		causes.KubeletCrashLooping:  {signature.UnitRestarted, signature.KubeletFatal, signature.WatchdogTimeout},
		causes.APIServerUnreachable: {signature.APIServerFailed, signature.Unauthorized},
		causes.OOMKilled:            {signature.OOMKill, signature.UnitOOMKilled},
		causes.KernelHung:           {signature.HungTask, signature.SoftLockup, signature.RCUStall},
		causes.PLEGUnhealthy:        {signature.PLEGNotHealthy},
	}
	seen := map[string]bool{}
	for name, f := range gallery() {
		if f.Journal == nil {
			continue
		}
		for code, codes := range signals {
			if index(Judge(f), code) < 0 {
				continue
			}
			seen[code] = true
			without := *f.Journal
			without.Signatures = slices.DeleteFunc(slices.Clone(without.Signatures),
				func(c journal.Count) bool { return slices.Contains(codes, c.Code) })
			without.Events = slices.DeleteFunc(slices.Clone(without.Events),
				func(e journal.Event) bool { return slices.Contains(codes, e.Code) })
			if code == causes.PLEGUnhealthy {
				without.Episodes = nil
			}
			bare := *f
			bare.Journal = &without
			if index(Judge(&bare), code) >= 0 {
				t.Errorf("%s: %s without %v", name, code, codes)
			}
		}
	}
	for code := range signals {
		if !seen[code] {
			t.Errorf("no picture shows %s", code)
		}
	}
}

// TestNoJournalNoWord wants the causes of a node whose journal is calm, or was not to be had, to be those of one
// without.
func TestNoJournalNoWord(t *testing.T) {
	for name, f := range gallery() {
		if f.Journal != nil {
			continue
		}
		want := codes(Judge(f))
		f.JournalProblem = "permission denied"
		if diff := cmp.Diff(want, codes(Judge(f))); diff != "" {
			t.Errorf("%s, not readable: %s", name, diff)
		}
		for _, c := range Judge(f) {
			n := 0
			for _, line := range c.Evidence.Missing {
				if strings.Contains(line, "permission denied") && strings.Contains(line, "log") {
					n++
				}
			}
			if n > 1 {
				t.Errorf("%s: %s says %d times that the log was not read", name, c.Code, n)
			}
		}
		f.JournalProblem = ""
		calm()(f)
		if diff := cmp.Diff(want, codes(Judge(f))); diff != "" {
			t.Errorf("%s, calm: %s", name, diff)
		}
	}
}
