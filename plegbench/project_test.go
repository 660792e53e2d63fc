package plegbench

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

// A naiveKubelet relists a recorded runtime call by call, as pleg/generic.go makes it, with a clock in hand. It
// shares nothing with projection but the recording.
type naiveKubelet struct {
	m       *Measurement
	timeout time.Duration
	older   bool // inspects like a kubelet up to 1.35
	clock   time.Duration
	lists   time.Duration
	blind   bool // needed the time of a call of a kind that was never answered
}

// rpc lets the time of one call pass and reports whether the kubelet sees an error.
func (k *naiveKubelet) rpc(id string, sandbox, runs bool) (failed bool) {
	var sum, sumAlike, atLeast time.Duration
	n, alike := 0, 0
	for _, i := range k.m.Sweep.Inspections {
		if (i.Kind == KindPodSandbox) != sandbox {
			continue
		}
		fine := i.Call.Code == crictl.OK || i.Call.Code == crictl.NotFound
		if fine {
			sum += i.Call.Elapsed
			n++
			if (i.State == "running" || i.State == "ready") == runs {
				sumAlike += i.Call.Elapsed
				alike++
			}
		}
		if i.ID == id && i.Call.Code == crictl.Canceled {
			atLeast = i.Call.Elapsed
		} else if i.ID == id {
			late := fine && i.Call.Elapsed >= k.timeout || i.Call.Code == crictl.DeadlineExceeded
			if late {
				k.clock += k.timeout
			} else {
				k.blind = k.blind || !k.everAnswered(sandbox)
				k.clock += min(i.Call.Elapsed, k.timeout)
			}
			return late || !fine
		}
	}
	// Not known: as the others on the mean, those that run or those that do not if six or more of them are known, and
	// at least as long as it was seen to take.
	if alike >= 6 {
		sum, n = sumAlike, alike
	}
	k.blind = k.blind || n == 0
	guess := time.Duration(0)
	if n > 0 {
		guess = sum / time.Duration(n)
	}
	if atLeast > 0 {
		guess = min(max(guess, atLeast), k.timeout)
	}
	k.clock += guess
	return false
}

// everAnswered reports whether any status of the kind was answered.
func (k *naiveKubelet) everAnswered(sandbox bool) bool {
	return slices.ContainsFunc(k.m.Sweep.Inspections, func(i Inspection) bool {
		return (i.Kind == KindPodSandbox) == sandbox && (i.Call.Code == crictl.OK || i.Call.Code == crictl.NotFound)
	})
}

// inspect is GetPodStatus.
func (k *naiveKubelet) inspect(uid string) (failed bool) {
	if k.older {
		k.clock += k.lists
	}
	var sandboxes []crictl.PodSandbox
	for _, s := range k.m.Sandboxes.Sandboxes {
		if s.Pod.UID == uid {
			sandboxes = append(sandboxes, s)
		}
	}
	slices.SortStableFunc(sandboxes, func(a, b crictl.PodSandbox) int {
		if a.Attempt != b.Attempt {
			return int(b.Attempt) - int(a.Attempt)
		}
		return int(b.CreatedAt - a.CreatedAt)
	})
	for _, s := range sandboxes {
		if k.rpc(s.ID, true, s.State == crictl.SandboxReady) {
			return true
		}
	}
	var containers []crictl.Container
	for _, c := range k.m.Containers.Containers {
		if c.Pod.UID == uid {
			containers = append(containers, c)
		}
	}
	slices.SortStableFunc(containers, func(a, b crictl.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	for _, c := range containers {
		if k.rpc(c.ID, false, c.State == crictl.ContainerRunning) {
			return true
		}
	}
	return false
}

// relist inspects the pods that are dirty, and those that failed in the relist before.
func (k *naiveKubelet) relist(dirty func(uid string) bool, reinspect map[string]bool) map[string]bool {
	k.clock = k.lists
	bad := map[string]bool{}
	seen := map[string]bool{}
	visit := func(uid string) {
		if seen[uid] {
			return
		}
		seen[uid] = true
		if !dirty(uid) && !reinspect[uid] {
			return
		}
		bad[uid] = k.inspect(uid)
		if k.older && reinspect[uid] { // the same diff, and then the reinspection
			k.inspect(uid)
		}
	}
	for _, s := range k.m.Sandboxes.Sandboxes {
		visit(s.Pod.UID)
	}
	for _, c := range k.m.Containers.Containers {
		visit(c.Pod.UID)
	}
	for uid, failed := range bad {
		if !failed {
			delete(bad, uid)
		}
	}
	return bad
}

// randomMeasurement is a small node on which anything may have happened.
func randomMeasurement(rng *rand.Rand) *Measurement {
	m := &Measurement{}
	lists := time.Duration(1+rng.Intn(50)) * time.Millisecond
	m.Samples = []Sample{sampleOf(0, lists, lists)}
	var sandboxes []crictl.PodSandbox
	var containers []crictl.Container
	created := int64(0)
	for p := range 1 + rng.Intn(25) {
		pod := fmt.Sprint(p)
		for range rng.Intn(3) {
			created++
			s := sandboxOf(fmt.Sprintf("s%d", created), pod, crictl.SandboxState(rng.Intn(2)), created)
			s.Attempt = uint32(rng.Intn(3))
			sandboxes = append(sandboxes, s)
		}
		for range rng.Intn(5) {
			created++
			containers = append(containers, containerOf(fmt.Sprintf("c%d", created), pod, "app",
				crictl.ContainerState(rng.Intn(4)), created))
		}
		if rng.Intn(4) == 0 {
			m.ChangedPods = append(m.ChangedPods, podNamed(pod).UID)
		}
	}
	m.ChangedPods = append(m.ChangedPods, "uid-gone")
	slices.Sort(m.ChangedPods)
	rng.Shuffle(len(sandboxes), func(i, j int) { sandboxes[i], sandboxes[j] = sandboxes[j], sandboxes[i] })
	rng.Shuffle(len(containers), func(i, j int) { containers[i], containers[j] = containers[j], containers[i] })
	m.Sandboxes, m.Containers = sandboxList(sandboxes...), containerList(containers...)
	codes := []crictl.Code{
		crictl.NotFound, crictl.DeadlineExceeded, crictl.Unknown, crictl.Canceled, crictl.Unavailable,
	}
	if rng.Intn(3) == 0 {
		codes = codes[rng.Intn(len(codes)):][:1]
	}
	trouble, reach := []int{0, 1, 2, 10}[rng.Intn(4)], []int{0, 4, 5}[rng.Intn(3)]
	for _, tgt := range targets(m.Sandboxes, m.Containers, nil, 50) {
		if rng.Intn(5) >= reach {
			continue
		}
		code := crictl.OK
		if rng.Intn(10) < trouble {
			code = codes[rng.Intn(len(codes))]
		}
		m.Sweep.Inspections = append(m.Sweep.Inspections, inspected(tgt, time.Duration(1+rng.Intn(5e6)), code))
	}
	return m
}

func TestProjectionIsWhatANaiveKubeletTakes(t *testing.T) {
	for seed := range int64(400) {
		rng := rand.New(rand.NewSource(seed))
		m := randomMeasurement(rng)
		timeout := []time.Duration{2 * time.Minute, 3 * time.Millisecond}[rng.Intn(2)]
		s := Summarize(m, &crictl.Kubelet{RequestTimeout: timeout})

		all := func(string) bool { return true }
		changed := func(uid string) bool { return slices.Contains(m.ChangedPods, uid) }
		lists := m.Samples[0].Elapsed()
		k := &naiveKubelet{m: m, timeout: timeout, lists: lists}
		if lists >= timeout { // the lists themselves are too slow for this kubelet
			continue
		}
		bad := k.relist(all, nil)
		blind := k.blind
		if blind {
			absent(t, seed, "cold, churn and older", s.ColdSeconds, s.ChurnSeconds, s.OlderProjectedSeconds)
		} else {
			same(t, seed, "cold", s.ColdSeconds, k.clock)
		}
		k.blind = false
		k.relist(changed, bad)
		if k.blind {
			absent(t, seed, "projected and its age", s.ProjectedSeconds, s.ProjectedAgeSeconds)
			continue
		}
		same(t, seed, "projected", s.ProjectedSeconds, k.clock)
		same(t, seed, "age", s.ProjectedAgeSeconds, k.clock+time.Second+lists)
		if blind {
			continue
		}

		churn, good := lists, []string{}
		for uid := range uidsOf(m) {
			if !bad[uid] {
				good = append(good, uid)
				continue
			}
			k.clock = 0
			k.inspect(uid)
			churn += k.clock
		}
		var sum time.Duration
		for _, uid := range good {
			k.clock = 0
			k.inspect(uid)
			sum += k.clock
		}
		if len(good) > 0 {
			changing := min(10, len(good)) // a tenth of 25 pods is less than ten
			churn += time.Duration(float64(sum) * float64(changing) / float64(len(good)))
		}
		same(t, seed, "churn", s.ChurnSeconds, churn)

		// An older kubelet finds a bad pod changed in every relist, because it does not record what it could not
		// inspect.
		old := &naiveKubelet{m: m, timeout: timeout, lists: lists, older: true}
		old.relist(func(uid string) bool { return changed(uid) || bad[uid] }, bad)
		same(t, seed, "older", s.OlderProjectedSeconds, old.clock)
	}
}

func uidsOf(m *Measurement) map[string]bool {
	uids := map[string]bool{}
	for _, s := range m.Sandboxes.Sandboxes {
		uids[s.Pod.UID] = true
	}
	for _, c := range m.Containers.Containers {
		uids[c.Pod.UID] = true
	}
	return uids
}

func absent(t *testing.T, seed int64, what string, got ...*float64) {
	t.Helper()
	for _, g := range got {
		if g != nil {
			t.Fatalf("seed %d: of %s, %v is there though it cannot be known", seed, what, *g)
		}
	}
}

func same(t *testing.T, seed int64, what string, got *float64, want time.Duration) {
	t.Helper()
	if got == nil {
		t.Fatalf("seed %d: %s is absent, want %v", seed, what, want)
	}
	if math.Abs(*got-want.Seconds()) > 1e-6 {
		t.Fatalf("seed %d: %s is %v, want %v", seed, what, *got, want.Seconds())
	}
}

func TestProjectionOfLists(t *testing.T) {
	ok := sampleOf(0, 10*time.Millisecond, 30*time.Millisecond)
	slow := sampleOf(0, time.Second, time.Second)
	first, second := Sample{Sandboxes: call("ListPodSandbox", 5*time.Second, crictl.DeadlineExceeded)}, ok
	second.Containers = call("ListContainers", 5*time.Second, crictl.DeadlineExceeded)
	failed := ok
	failed.Containers.Code = crictl.ResourceExhausted
	canceled := ok
	canceled.Sandboxes.Code = crictl.Canceled
	stuck := ok
	stuck.Containers.Elapsed = 2 * time.Minute
	tests := []struct {
		name    string
		samples []Sample
		want    float64 // -1: absent
		age     float64
	}{
		{"none", nil, -1, -1},
		{"the median", []Sample{slow, ok, ok}, 0.04, 1.08},
		{"sandboxes hang: the containers are not asked for", []Sample{first}, 120, -1},
		{"containers hang", []Sample{second}, 120.01, -1},
		{"answered after the kubelet gave up", []Sample{stuck}, 120.01, -1},
		{"most hung", []Sample{ok, first, first}, 120, -1},
		{"failed", []Sample{failed, failed}, -1, -1},
		{"cut short is left out", []Sample{slow, canceled}, 2, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &Measurement{Samples: tt.samples, Sandboxes: sandboxList(), Containers: containerList()}
			s := Summarize(m, nil)
			got := []float64{orAbsent(s.ProjectedSeconds), orAbsent(s.ProjectedAgeSeconds)}
			if diff := cmp.Diff([]float64{tt.want, tt.age}, got, withinMillionth); diff != "" ||
				(s.ColdSeconds == nil) != (tt.age < 0) || (s.ChurnSeconds == nil) != (tt.age < 0) {
				t.Errorf("cold %v, churn %v; projected and age (-want +got):\n%s", s.ColdSeconds, s.ChurnSeconds, diff)
			}
		})
	}
}

func orAbsent(f *float64) float64 {
	if f == nil {
		return -1
	}
	return *f
}
