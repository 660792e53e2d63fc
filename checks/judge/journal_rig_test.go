package judge

import (
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// An entry adds something to a journal.
type entry func(*journal.Report)

// logs gives the node a journal that was read when the measurement began.
func logs(entries ...entry) tweak {
	return func(f *facts.Input) {
		r := &journal.Report{APIVersion: journal.APIVersion, Kind: "JournalReport", GeneratedAt: readAt(), Lines: 4200}
		for _, e := range entries {
			e(r)
		}
		f.Journal = r
	}
}

// readAt is when the journal was read.
func readAt() time.Time { return now().Add(-2 * time.Second) }

// ago is so long before the journal was read.
func ago(d time.Duration) *time.Time { return new(readAt().Add(-d)) }

// signs adds n records of a signature, the first and the last so long ago, about subjects such as "runc pid 7".
func signs(code string, n int64, first, last time.Duration, example string, subjects ...string) entry {
	return func(r *journal.Report) {
		c := journal.Count{
			Code: code, Title: "x", Lane: string(signature.Kubelet), Count: n, First: ago(first),
			Last: ago(last), Example: example,
		}
		for _, s := range subjects {
			subject := journal.SubjectCount{Kind: "Container", ID: s, Count: n, First: ago(first), Last: ago(last)}
			if name, pid, ok := strings.Cut(s, " pid "); ok {
				subject.Kind, subject.ID, subject.Name = "Process", pid, name
			}
			c.Subjects = append(c.Subjects, subject)
		}
		r.Signatures = append(r.Signatures, c)
	}
}

// burst adds an event of a signature to the timeline.
func burst(code string, n int64, from, to time.Duration, subject string) entry {
	return func(r *journal.Report) {
		r.Events = append(r.Events, journal.Event{
			At: ago(from), Until: ago(to), Count: n, Code: code, What: code, Subject: subject,
		})
	}
}

// incident adds an episode in which PLEG was unhealthy, from and to so long ago, and its records.
func incident(from, to time.Duration, changes ...func(*journal.Episode)) entry {
	return func(r *journal.Report) {
		e := journal.Episode{
			Kind: journal.Incident, Start: ago(from), End: ago(to), Anchor: ago(from + 3*time.Minute),
			Seconds: (from - to).Seconds(), Lines: int((from-to)/(5*time.Second)) + 1,
			MaxLastSeenSeconds: (from - to + 3*time.Minute).Seconds(), ThresholdSeconds: 180,
		}
		for _, change := range changes {
			change(&e)
		}
		r.Episodes = append(r.Episodes, e)
		signs(signature.PLEGNotHealthy, int64(e.Lines), from, to,
			`"Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m1.2s ago"`)(r)
	}
}

// recovered makes an episode one that ended so long ago.
func recovered(at time.Duration) func(*journal.Episode) {
	return func(e *journal.Episode) {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, ago(at), signature.SyncLoopActive
	}
}

// starting makes an episode the start-up of a kubelet.
func starting(e *journal.Episode) { e.Kind, e.MaxLastSeenSeconds, e.Anchor = journal.Startup, 0, nil }

// The records that tests repeat, as a kubelet, systemd and the kernel write them.
const (
	refusedRelist = `"GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = ` +
		`connection error: desc = \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: ` +
		`connect: connection refused\""`
	hungRelist = `"GenericPLEG: Unable to retrieve pods" err="rpc error: code = DeadlineExceeded ` +
		`desc = context deadline exceeded"`
	leaseTimeout = `"Failed to update lease" err="Put \"https://10.0.0.1:6443/apis/coordination.k8s.io/v1/namespaces/` +
		`kube-node-lease/leases/node-7?timeout=10s\": dial tcp 10.0.0.1:6443: i/o timeout"`
	watchdogFired = "kubelet.service: Watchdog timeout (limit 30s)!"
	scheduled     = "kubelet.service: Scheduled restart job, restart counter is at 41."
	fatalSwap     = `E0314 03:09:01.123456    9123 run.go:72] "command failed" err="failed to run Kubelet: ` +
		`running with swap on is not supported"`
	memcgKill      = "Memory cgroup out of memory: Killed process 7011 (java) total-vm:9000000kB, anon-rss:2000000kB"
	globalKill     = "Out of memory: Killed process 4711 (containerd) total-vm:9000000kB, anon-rss:2000000kB"
	blockedShim    = "INFO: task containerd-shim:5000 blocked for more than 120 seconds."
	blockedJournal = "INFO: task jbd2/sda1-8:311 blocked for more than 120 seconds."
)

// calm is what a healthy node's journal holds: nothing but the noise of its day.
func calm() tweak {
	return logs(signs(signature.SyncLoopActive, 320, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE" source="api"`),
		signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate.service", "logrotate.service"),
		signs(signature.OOMKill, 1, 9*time.Minute, 9*time.Minute, memcgKill, "java"),
		signs(signature.NodeReady, 1, 8*time.Minute, 8*time.Minute, "Node became ready"),
		signs(signature.CreateFailed, 1, 5*time.Minute, 5*time.Minute, "CreatePodSandbox for pod failed"),
		signs(signature.APIServerFailed, 2, 4*time.Minute, 4*time.Minute-time.Second, leaseTimeout))
}
