package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
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

// TestJournalCauses checks, for each cause that the logs show, what makes it, what lifts or lowers it, and what only
// looks like it.
func TestJournalCauses(t *testing.T) {
	kubelet := func(age time.Duration) tweak {
		p := kubeletProcess('S')
		p.Started = now().Add(-age)
		return func(f *facts.Input) { f.Processes = append(f.Processes, p) }
	}
	api := func(n int64, first, last time.Duration) entry {
		return signs(signature.APIServerFailed, n, first, last, leaseTimeout)
	}
	oom := func(example string, subjects ...string) entry {
		return signs(signature.OOMKill, 1, time.Minute, time.Minute, example, subjects...)
	}
	kernel := func(code, example string, subjects ...string) tweak {
		return logs(signs(code, 1, 2*time.Minute, 2*time.Minute, example, subjects...))
	}
	fatal := signs(signature.KubeletFatal, 4, time.Minute, 4*time.Second, fatalSwap)
	pleg := incident(2*time.Minute, 4*time.Second)
	judgeAll(t, []scenario{
		row("calm", "healthy", calm()),
		row("an empty journal", "healthy", logs()),
		row("PLEG now", "PLEGUnhealthy!", logs(pleg)),
		row("PLEG, last record 31 s ago", "PLEGUnhealthy", logs(incident(2*time.Minute, 31*time.Second))),
		row("PLEG now, by the log, but recovered", "healthy",
			logs(incident(2*time.Minute, 9*time.Second, recovered(4*time.Second)))),
		row("PLEG twice", "PLEGUnhealthy", logs(incident(14*time.Minute, 13*time.Minute, recovered(12*time.Minute)),
			incident(9*time.Minute, 8*time.Minute, recovered(7*time.Minute)))),
		row("PLEG in three stalls", "PLEGUnhealthy!", logs(incident(6*time.Minute, 4*time.Second,
			func(e *journal.Episode) { e.Stalls = make([]journal.Stall, 3) }))),
		row("PLEG and failing relists", "PLEGUnhealthy!",
			logs(pleg, signs(signature.RelistFailed, 3, 6*time.Minute, time.Minute, hungRelist))),
		row("a kubelet that starts", "healthy", logs(incident(20*time.Second, 2*time.Second, starting))),
		row("PLEG, and another socket was asked for by name", "healthy", logs(pleg), askedBy(crictl.SourceFlag)),

		row("three restarts", "KubeletCrashLooping!", logs(restarted(3, 11*time.Second, 5*time.Second))),
		row("restarts long ago", "KubeletCrashLooping", logs(restarted(5, 11*time.Second, 7*time.Minute)),
			kubelet(time.Hour)),
		row("restarts, and it runs for seconds", "KubeletCrashLooping!",
			logs(restarted(5, 11*time.Second, 5*time.Second)), kubelet(40*time.Second)),
		row("restarts of another unit", "healthy", logs(signs(signature.UnitRestarted, 60, 14*time.Minute, time.Second,
			"node_exporter.service: Scheduled restart job", "node_exporter.service"))),
		row("restarts by hand", "healthy", logs(
			signs(signature.UnitStopped, 5, 14*time.Minute, time.Minute, "Stopped kubelet.service", "kubelet.service"),
			signs(signature.UnitStarted, 5, 14*time.Minute, time.Minute, "Started kubelet.service", "kubelet.service"),
			signs(signature.KubeletStarted, 5, 14*time.Minute, time.Minute, "Kubelet version"))),
		row("restarts until it joined, then ready", "KubeletCrashLooping",
			logs(restarted(20, 12*time.Second, 4*time.Minute),
				signs(signature.NodeReady, 1, 3*time.Minute, 3*time.Minute, "Node became ready"))),
		row("fatal errors and starts", "KubeletCrashLooping!", logs(fatal,
			bursts(signature.KubeletFatal, "", 4, 14*time.Second, 4*time.Second),
			signs(signature.KubeletStarted, 4, time.Minute, 5*time.Second, "Kubelet version"))),
		row("fatal errors without a start", "healthy", logs(fatal)),
		row("restarts by the watchdog", "KubeletCrashLooping!", logs(restarted(3, 5*time.Minute, 50*time.Second),
			signs(signature.WatchdogTimeout, 3, 12*time.Minute, time.Minute, watchdogFired, "kubelet.service"))),

		row("API server away", "APIServerUnreachable!", logs(api(30, 6*time.Minute, 3*time.Second))),
		row("API server back since a minute", "healthy", logs(api(30, 10*time.Minute, 61*time.Second))),
		row("blips in the timeline", "healthy", logs(api(300, 12*time.Minute, 3*time.Second),
			burst(signature.APIServerFailed, 290, 12*time.Minute, 11*time.Minute, ""),
			burst(signature.APIServerFailed, 10, 13*time.Second, 3*time.Second, ""))),
		row("one outage in the timeline, after a blip", "APIServerUnreachable!",
			logs(api(300, 12*time.Minute, 3*time.Second),
				burst(signature.APIServerFailed, 2, 12*time.Minute, 12*time.Minute, ""),
				bursts(signature.APIServerFailed, "", 20, 11*time.Second, 3*time.Second))),
		row("ready after the last failure", "healthy", logs(api(30, 6*time.Minute, 9*time.Second),
			signs(signature.NodeReady, 1, 5*time.Second, 5*time.Second, "Node became ready"))),
		row("refused credentials", "APIServerUnreachable!", logs(signs(signature.Unauthorized, 30, 6*time.Minute,
			3*time.Second, `"Unable to update node status" err="Unauthorized"`))),
		row("an expired certificate", "APIServerUnreachable!", logs(api(30, 6*time.Minute, 3*time.Second),
			signs(signature.CertificateExpired, 3, 6*time.Minute, time.Minute, "x509: certificate has expired"))),

		row("all processes of one container", "healthy", logs(oom(memcgKill, "7011", "7012", "7013"),
			burst(signature.OOMKill, 1, time.Minute, time.Minute, "java"),
			burst(signature.OOMKill, 1, time.Minute, time.Minute, "sh"))),
		row("one container again and again", "healthy",
			logs(oom(memcgKill, "java"), bursts(signature.OOMKill, "java", 3, 3*time.Minute, time.Minute))),
		row("the node out of memory", "OOMKilled",
			logs(oom(strings.Replace(globalKill, "containerd", "java", 1), "java"))),
		row("another runtime", "OOMKilled", logs(oom(globalKill, "containerd pid 4711"))),
		row("a shim", "OOMKilled!", logs(oom(memcgKill, "containerd-shim pid 5000"))),
		row("the docker of a pod", "healthy", logs(oom(memcgKill, "dockerd pid 7011"), inPod)),
		row("CRI-O's conmon, which is in its pod's group", "OOMKilled!",
			logs(oom(memcgKill, "conmon pid 7011"), inPod)),
		row("a runc at its container's limit", "healthy", logs(oom(memcgKill, "runc:[2:INIT]"))),
		row("a process of the runtime's unit", "OOMKilled!", kernel(signature.UnitOOMKilled,
			"containerd.service: A process of this unit has been killed by the OOM killer.", "containerd.service")),

		row("a hung journal of a disk", "KernelHung",
			kernel(signature.HungTask, blockedJournal, "jbd2/sda1-8 pid 311")),
		row("a soft lockup", "KernelHung", kernel(signature.SoftLockup,
			"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [stress:9]", "stress pid 9")),
		row("an RCU stall", "KernelHung",
			kernel(signature.RCUStall, "rcu: INFO: rcu_sched self-detected stall on CPU")),
		row("a kubelet that hangs, among others", "KernelHung!",
			kernel(signature.HungTask, blockedJournal, "jbd2/sda1-8 pid 311", "kubelet pid 812")),
		row("a slow NFS server", "healthy", kernel(signature.NFSNotResponding,
			"nfs: server 10.0.0.9 not responding, still trying", "10.0.0.9")),
	})
}

// TestNoCauseWithoutItsSignal takes the records of a cause out of each recorded case that shows it by its logs: the
// cause must go.
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
			t.Errorf("no recorded case shows %s", code)
		}
	}
}

// TestJournalAddsNoCause compares the causes of a node whose journal is calm, or cannot be read, with those of one
// without a journal.
func TestJournalAddsNoCause(t *testing.T) {
	for name, f := range gallery() {
		if f.Journal != nil {
			continue
		}
		want := codes(Judge(f))
		for _, change := range []tweak{func(f *facts.Input) { f.JournalProblem = "permission denied" }, calm()} {
			change(f)
			if diff := cmp.Diff(want, codes(Judge(f))); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}
