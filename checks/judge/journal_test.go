package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

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

// quiet is a log that holds nothing of the kubelet, as it mostly does with -v=0.
func quiet(f *facts.Input) {
	logs(signs(signature.UnitStarted, 4, 12*time.Minute, time.Minute, "Started logrotate", "logrotate.service"))(f)
	f.Journal.Signatures[0].Lane = string(signature.Node)
}

// TestJournalAsEvidence checks whether the log supports a cause that was measured (1), contradicts it (-1), or neither.
func TestJournalAsEvidence(t *testing.T) {
	down := signs(signature.RuntimeIsDown, 30, 3*time.Minute, 4*time.Second, "container runtime is down")
	active := signs(signature.SyncLoopActive, 30, 14*time.Minute, 3*time.Second, `"SyncLoop UPDATE"`)
	relists := signs(signature.RelistFailed, 180, 3*time.Minute, time.Second, refusedRelist)
	received := signs(
		signature.MessageTooLarge,
		40,
		3*time.Minute,
		time.Second,
		"rpc error: code = ResourceExhausted desc = grpc: "+
			"received message larger than max (26300000 vs. 16777216)",
	)
	inspect := func(last time.Duration, id string) entry {
		return signs(signature.InspectFailed, 7, 9*time.Minute, last, "ContainerStatus from runtime service failed", id)
	}
	pleg := incident(2*time.Minute, 4*time.Second)
	refused, large := socket(crictl.ConnectRefused, "refused"), exited(800, 1, 30000)
	container := statusHangs("container1-0")
	for _, tt := range []struct {
		name   string
		code   string
		tweak  tweak
		log    []entry
		points int
	}{
		{"down, in two ways", "RuntimeDown", refused, []entry{down, relists}, 1},
		{"down, and the kubelet works", "RuntimeDown", refused, []entry{active}, -1},
		{
			"down, and the kubelet worked before", "RuntimeDown", refused,
			[]entry{signs(signature.SyncLoopActive, 9, 9*time.Minute, time.Minute, "x")},
			0,
		},
		{"hung, down and PLEG", "RuntimeHung", hangs(everyRPC()...), []entry{down, pleg}, 1},
		{"hung, and the kubelet works", "RuntimeHung", hangs(everyRPC()...), []entry{active}, -1},
		{"list, PLEG alone", "ListHang", hangs(facts.RPCContainers), []entry{pleg}, 1},
		{"object, named", "InspectHang", container, []entry{inspect(time.Minute, "container1-0")}, 1},
		{"object, its pod named", "InspectHang", container, []entry{inspect(time.Minute, "web/checkout-1")}, 1},
		{"object, another named", "InspectHang", container, []entry{inspect(time.Minute, "0123456789abcdef")}, -1},
		{
			"object, another named long ago", "InspectHang", container,
			[]entry{inspect(8*time.Minute, "0123456789abcdef")},
			0,
		},
		{"too large, and refused there", "ListTooLarge", large, []entry{received}, 1},
		{"too large, and the kubelet works", "ListTooLarge", large, []entry{active}, -1},
		{
			"network", "NetworkNotReady", condition(1, false),
			[]entry{signs(signature.NetworkNotReady, 60, 5*time.Minute, 4*time.Second, "x")},
			1,
		},
		{"CNI, down alone", "CNIHung", hangs(facts.RPCStatus), []entry{down}, 1},
		{
			"images", "ImageServiceHung", hangs(facts.RPCImages, facts.RPCImageFs),
			[]entry{signs(signature.ImageServiceFailed, 3, 9*time.Minute, time.Minute, "x")},
			1,
		},
		{
			"exited, and removals fail", "TooManyExited", exited(2000, 100, 1000),
			[]entry{signs(signature.RemoveFailed, 3, 9*time.Minute, time.Minute, "busy")},
			1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := only(t, node(tt.tweak), tt.code), only(t, node(tt.tweak, logs(tt.log...)), tt.code)
			f, against := len(after.Evidence.For)-len(before.Evidence.For), len(after.Evidence.Against)-len(
				before.Evidence.Against,
			)
			switch {
			case tt.points > 0 && (f <= 0 || after.Confidence < before.Confidence),
				tt.points < 0 && (against <= 0 || after.Confidence >= before.Confidence),
				tt.points == 0 && (f+against != 0 || after.Confidence != before.Confidence):
				t.Errorf(
					"%d lines for, %d against, confidence %.2f, alone %.2f",
					f,
					against,
					after.Confidence,
					before.Confidence,
				)
			}
		})
	}
	alone := only(t, node(hangs(facts.RPCContainers)), "ListHang")
	if both := only(t, node(hangs(facts.RPCContainers), logs(pleg)), "ListHang"); both.Confidence <= alone.Confidence {
		t.Errorf("agreement raises: %.2f, alone %.2f", both.Confidence, alone.Confidence)
	}
}
