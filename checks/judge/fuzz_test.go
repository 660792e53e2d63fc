package judge

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// FuzzJudge judges random mixtures of everything that a runtime can do, on hosts of recorded readings.
func FuzzJudge(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed, "cni plugin not initialized")
	}
	f.Add(uint64(1<<40), "grpc: trying to send message larger than max (99999999999 vs. 0)")
	f.Add(uint64(7), hostile)
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		checkSound(t, randomFacts(rand.New(rand.NewPCG(seed, seed)), text))
	})
}

// FuzzJudgeNode judges hosts of random figures.
func FuzzJudgeNode(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, hostile)
	}
	f.Add(uint64(99), "no space left on device")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		r := rand.New(rand.NewPCG(seed, seed))
		in := randomFacts(r, text)
		in.Node = &facts.Node{}
		randomise(r, reflect.ValueOf(in.Node).Elem(), text, 0)
		in.Node.Settings.Value.EvictionHard = map[string]string{"imagefs.available": text, "memory.available": text}
		checkSound(t, in)
	})
}

// checkSound checks that a second answer is the same, that each cause comes once and behind its root, and that the
// documents become JSON.
func checkSound(t *testing.T, in *facts.Input) {
	named := Judge(in)
	if diff := cmp.Diff(named, Judge(in)); diff != "" {
		t.Fatal(diff)
	}
	placed := map[string]bool{}
	for _, c := range named {
		if placed[c.Code] || c.CausedBy != "" && !placed[c.CausedBy] {
			t.Errorf("%s is there twice, or stands before its root %s", c.Code, c.CausedBy)
		}
		placed[c.Code] = true
		if c.Confidence <= 0 || c.Confidence > 1 || len(c.Evidence.For) == 0 || len(c.NextSteps) == 0 ||
			c.Subject == nil {
			t.Errorf("%s: %+v", c.Code, c)
		}
	}
	encode(t, NewReport(checks.Header{}, in))
	encode(t, NewRuntimeProbe(checks.Header{}, in))
	encode(t, NewRelistBenchmark(checks.Header{}, in))
	if len(Results(in)) != len(readChecks(facts.New(nil))) {
		t.Error("not one result for each check")
	}
}

// randomJournal mixes records of all signatures with times that lie anywhere, or are missing.
func randomJournal(r *rand.Rand, text string) tweak {
	codes := []string{
		signature.RuntimeIsDown, signature.RelistFailed, signature.SyncLoopActive, signature.InspectFailed,
		signature.MessageTooLarge, signature.NetworkNotReady,
		signature.HousekeepingSlow, signature.RemoveFailed, signature.UnitRestarted, signature.KubeletFatal,
		signature.KubeletStarted, signature.WatchdogTimeout,
		signature.UnitFailed, signature.APIServerFailed, signature.Unauthorized, signature.CertificateExpired,
		signature.OOMKill, signature.UnitOOMKilled,
		signature.HungTask, signature.SoftLockup, signature.NodeReady, text,
	}
	subjects := []string{
		"kubelet.service", "containerd.service", "containerd-shim:5000", "kubelet", "java", "container1-0", "", text,
	}
	var entries []entry
	at := func() time.Duration { return time.Duration(r.Int64N(int64(20*time.Minute))) - time.Minute }
	for range r.IntN(8) {
		code := codes[r.IntN(len(codes))]
		entries = append(entries, signs(code, r.Int64N(50)-1, at(), at(), text, subjects[r.IntN(len(subjects))]))
		for range r.IntN(3) {
			entries = append(entries, burst(code, r.Int64N(9), at(), at(), subjects[r.IntN(len(subjects))]))
		}
	}
	for range r.IntN(3) {
		entries = append(entries, incident(at(), at(), func(e *journal.Episode) {
			switch r.IntN(5) {
			case 0:
				e.Anchor = nil
			case 1:
				e.End = nil
			case 2:
				e.MaxLastSeenSeconds = float64(r.Int64N(1<<62)) * -1
			case 3:
				e.Recovered, e.Stalls = true, make([]journal.Stall, r.IntN(4))
			}
			e.Culprits = append(e.Culprits, journal.Culprit{Kind: text, ID: text, Pod: text})
		}))
	}
	return logs(entries...)
}

// recordedNodes are the recorded cases, read once: nothing here changes them.
var recordedNodes = sync.OnceValue(gallery)

// randomNode takes each reading of the node from any recorded case, whole or not.
func randomNode(r *rand.Rand) tweak {
	all := recordedNodes()
	names := slices.Sorted(maps.Keys(all))
	return func(f *facts.Input) {
		mixed := &facts.Node{}
		to := reflect.ValueOf(mixed).Elem()
		for i := range to.NumField() {
			if n := all[names[r.IntN(len(names))]].Node; n != nil {
				to.Field(i).Set(reflect.ValueOf(n).Elem().Field(i))
			}
			if to.Field(i).Kind() == reflect.Struct && r.IntN(4) == 0 {
				to.Field(i).FieldByName("OK").SetBool(false)
			}
		}
		f.Node = mixed
	}
}

// randomFacts mixes tweaks, calls and processes.
func randomFacts(r *rand.Rand, text string) *facts.Input {
	codes := []crictl.Code{
		crictl.OK, crictl.OK, crictl.OK, crictl.DeadlineExceeded, crictl.DeadlineExceeded, crictl.Canceled,
		crictl.Unavailable, crictl.Unimplemented,
		crictl.ResourceExhausted, crictl.Internal, crictl.NotFound, crictl.PermissionDenied, "", crictl.Code(text),
	}
	change := func(c *crictl.Call) {
		if r.IntN(3) > 0 {
			return
		}
		c.Code = codes[r.IntN(len(codes))]
		c.Elapsed = time.Duration(r.Int64N(int64(12*time.Second))) - time.Second
		if c.Code != crictl.OK {
			c.Err = text
		}
	}
	mess := func(f *facts.Input) {
		m := f.Measurement
		for i := range m.Probes {
			change(&m.Probes[i])
		}
		for i := range m.Samples {
			change(&m.Samples[i].Sandboxes)
			change(&m.Samples[i].Containers)
		}
		for i := range m.Sweep.Inspections {
			change(&m.Sweep.Inspections[i].Call)
		}
		for range r.IntN(3) {
			m.Liveness = append(m.Liveness, call(facts.RPCVersion, "", time.Duration(r.Int64N(8e9)), 0))
			change(&m.Liveness[len(m.Liveness)-1])
		}
		for i := range f.Processes {
			f.Processes[i].State = "RSDTtZIX"[r.IntN(8)]
		}
	}
	all := []tweak{
		mess, mess, exited(r.IntN(3000), 1+r.IntN(50), uint32(r.IntN(9000))), condition(r.IntN(2), false),
		func(f *facts.Input) { f.Kubelet = nil },
		func(f *facts.Input) { f.HostMissing, f.Measurement.Interrupted = text, text },
		func(f *facts.Input) { f.Measurement.Status, f.Measurement.Sandboxes = nil, nil },
		func(f *facts.Input) { f.Runtime = checks.Runtime{Endpoint: text, Name: text} },
		func(f *facts.Input) { f.Measurement.Connect.PeerPID = r.IntN(3) },
		func(f *facts.Input) { f.Measurement.Connect.State = crictl.ConnectState(text) },
		processesOf(host.Process{
			PID: r.IntN(9), Name: text, Role: host.RoleOCI, ObjectID: "container1-0", State: 'D',
			Started: now().Add(-time.Hour),
		}),
		randomNode(r), randomNode(r), randomJournal(r, text), randomJournal(r, text), randomJournal(r, text),
		func(f *facts.Input) { f.JournalProblem = text },
		socket(crictl.ConnectSilent, text), func(f *facts.Input) { f.Measurement = nil },
	}
	chosen := []tweak{pods(r.IntN(30), r.IntN(4)), sweep}
	for _, t := range all[:len(all)-2] {
		if r.IntN(4) == 0 {
			chosen = append(chosen, t)
		}
	}
	if r.IntN(20) == 0 {
		chosen = append(chosen, all[len(all)-1-r.IntN(2)])
	}
	return node(chosen...)
}

// randomise fills a value with whatever its types allow.
func randomise(r *rand.Rand, v reflect.Value, text string, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.String:
		words := []string{
			text, "", "runtime", "kubelet", "stale file handle", "uid-1", "nfs4", "containerd.service", "/var",
		}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 70_000, 5e9, math.MaxInt64, math.MinInt64}[r.IntN(7)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint([]uint64{0, 1, 100, 70_000, math.MaxUint64}[r.IntN(5)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, 1, 99, -3, math.NaN(), math.Inf(1)}[r.IntN(6)])
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomise(r, v.Elem(), text, depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			randomise(r, v.Index(i), text, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			randomise(r, v.Field(i), text, depth+1)
		}
	}
}
