package gc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// listed makes a container of this node, made so many minutes after the epoch.
func listed(id, uid, name string, state runtimeapi.ContainerState, minute int) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: "s-" + uid, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: state, CreatedAt: at(minute).UnixNano(),
		Labels: map[string]string{container.OwnerLabel: "n", container.PodUIDLabel: uid, container.ContainerNameLabel: name},
	}
}

func sandbox(id, uid string, ready bool, minute int) *runtimeapi.PodSandbox {
	s := &runtimeapi.PodSandbox{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: at(minute).UnixNano(),
		Labels: map[string]string{container.OwnerLabel: "n"},
	}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

func at(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }

func among(uids ...string) func(types.UID) bool {
	return func(uid types.UID) bool { return slices.Contains(uids, string(uid)) }
}

func TestChooseContainers(t *testing.T) {
	node := []*runtimeapi.Container{
		listed("a3", "p", "a", running, 3), listed("a2", "p", "a", exited, 2), listed("a1", "p", "a", exited, 1), listed("a0", "p", "a", exited, 0),
		listed("b1", "p", "b", unknown, 1), listed("b0", "p", "b", created, 0),
		listed("c1", "q", "a", exited, 9), listed("c0", "q", "a", exited, 8),
	}
	tests := []struct {
		name      string
		policy    Policy
		removable func(types.UID) bool
		want      []string
	}{
		{"the newest of each stays", Policy{0, 1, -1}, among(), []string{"a0", "b0", "a1", "c0"}},
		{"two stay", Policy{0, 2, -1}, among(), []string{"a0"}},
		{"none stays", Policy{0, 0, -1}, among(), []string{"a0", "b0", "a1", "b1", "a2", "c0", "c1"}},
		{"all stay", Policy{0, -1, -1}, among(), nil},
		{"a pod that is gone", Policy{0, -1, -1}, among("q"), []string{"c0", "c1"}},
		{"a pod that may be gone", Policy{0, -1, -1}, nil, nil},
		{"too young does not count", Policy{2 * time.Minute, 1, -1}, among(), []string{"a0", "b0", "a1"}},
		{"at most two units", Policy{0, 1, 2}, among(), []string{"a0", "b0", "a1", "c0", "b1"}},
		{"at most six", Policy{0, -1, 6}, among(), []string{"a0"}},
		{"at most none", Policy{0, -1, 0}, among(), []string{"a0", "b0", "a1", "c0", "b1", "a2", "c1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, ids(chooseContainers(node, tt.policy, tt.removable, at(10)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func ids(all []dead) []string {
	var out []string
	for _, d := range all {
		out = append(out, d.id)
	}
	return out
}

func TestChooseSandboxes(t *testing.T) {
	sandboxes := []*runtimeapi.PodSandbox{
		sandbox("p2", "p", true, 2), sandbox("p1", "p", false, 1), sandbox("p0", "p", false, 0), // p0 holds a container
		sandbox("q1", "q", false, 1), sandbox("q0", "q", false, 0),
		sandbox("r0", "r", true, 0),
	}
	containers := []*runtimeapi.Container{{Id: "c", PodSandboxId: "p0", State: exited}}
	for name, tt := range map[string]struct {
		removable func(types.UID) bool
		want      []string
	}{
		"all live": {among(), []string{"q0", "p1"}},
		"gone":     {among("q", "r"), []string{"q0", "p1", "q1"}},
	} {
		if diff := gocmp.Diff(tt.want, chooseSandboxes(sandboxes, containers, tt.removable, at(10))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// naiveContainers states the rules step by step, without the planner.
func naiveContainers(all []*runtimeapi.Container, p Policy, removable func(types.UID) bool, now time.Time) []string {
	units := map[string][]*runtimeapi.Container{}
	for _, c := range all {
		if c.State != running && now.Sub(time.Unix(0, c.CreatedAt)) >= p.MinAge {
			key := c.Labels[container.PodUIDLabel] + "/" + c.Metadata.Name
			units[key] = append(units[key], c)
		}
	}
	var gone []string
	count := 0
	for key, unit := range units {
		slices.SortFunc(unit, func(a, b *runtimeapi.Container) int {
			return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.Id, a.Id))
		})
		if removable != nil && removable(types.UID(unit[0].Labels[container.PodUIDLabel])) {
			gone = append(gone, names(unit)...)
			delete(units, key)
			continue
		}
		if p.MaxPerContainer >= 0 && len(unit) > p.MaxPerContainer {
			gone = append(gone, names(unit[p.MaxPerContainer:])...)
			units[key] = unit[:p.MaxPerContainer]
		}
		count += len(units[key])
	}
	if p.Max < 0 || count <= p.Max {
		return gone
	}
	per := max(1, p.Max/len(units))
	var left []*runtimeapi.Container
	for _, unit := range units {
		gone = append(gone, names(unit[min(per, len(unit)):])...)
		left = append(left, unit[:min(per, len(unit))]...)
	}
	slices.SortFunc(left, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.Id, a.Id))
	})
	return append(gone, names(left[min(p.Max, len(left)):])...)
}

func names(all []*runtimeapi.Container) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.Id)
	}
	return out
}

func naiveSandboxes(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, removable func(types.UID) bool) []string {
	var gone []string
	for _, s := range sandboxes {
		held := slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool { return c.PodSandboxId == s.Id })
		newer := slices.ContainsFunc(sandboxes, func(o *runtimeapi.PodSandbox) bool {
			return o.Metadata.Uid == s.Metadata.Uid && (o.CreatedAt > s.CreatedAt || o.CreatedAt == s.CreatedAt && o.Id > s.Id)
		})
		if s.State != runtimeapi.PodSandboxState_SANDBOX_READY && !held && (newer || removable(types.UID(s.Metadata.Uid))) {
			gone = append(gone, s.Id)
		}
	}
	return gone
}

// world makes a random node out of a seed.
func world(seed uint64) ([]*runtimeapi.Container, []*runtimeapi.PodSandbox, Policy, func(types.UID) bool) {
	r := rand.New(rand.NewPCG(seed, 2))
	var containers []*runtimeapi.Container
	var sandboxes []*runtimeapi.PodSandbox
	for i := range r.IntN(40) {
		containers = append(containers, listed(fmt.Sprintf("%03d", i), fmt.Sprint(r.IntN(4)), fmt.Sprint(r.IntN(3)), runtimeapi.ContainerState(r.IntN(4)), r.IntN(12)))
		containers[i].PodSandboxId = fmt.Sprintf("s%03d", r.IntN(20))
	}
	for i := range r.IntN(15) {
		sandboxes = append(sandboxes, sandbox(fmt.Sprintf("s%03d", i), fmt.Sprint(r.IntN(4)), r.IntN(3) == 0, r.IntN(10)))
	}
	gone := []string{fmt.Sprint(r.IntN(6)), fmt.Sprint(r.IntN(6))}
	policy := Policy{MinAge: time.Duration(r.IntN(5)) * time.Minute, MaxPerContainer: r.IntN(4) - 1, Max: r.IntN(20) - 3}
	return containers, sandboxes, policy, among(gone...)
}

func FuzzChoiceAgainstNaive(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		containers, sandboxes, policy, removable := world(seed)
		want, got := naiveContainers(containers, policy, removable, at(10)), ids(chooseContainers(containers, policy, removable, at(10)))
		slices.Sort(want)
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("containers, policy %+v: %s", policy, diff)
		}
		want, got = naiveSandboxes(sandboxes, containers, removable), chooseSandboxes(sandboxes, containers, removable, at(10))
		slices.Sort(want)
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("sandboxes: %s", diff)
		}
	})
}
