package kuberuntime

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
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// listed makes a container of this node, created so many minutes after the epoch.
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

func names(all []*runtimeapi.Container) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.Id)
	}
	return out
}

// naiveContainers states the rule without sorting: a dead container goes if its pod is removable, or if keep newer ones
// are dead.
func naiveContainers(all []*runtimeapi.Container, keep int, removable func(types.UID) bool) []string {
	var gone []string
	for _, c := range all {
		newer := 0
		for _, o := range all {
			same := o.Labels[container.PodUIDLabel] == c.Labels[container.PodUIDLabel] && o.Metadata.Name == c.Metadata.Name
			if same && o.State != running && cmp.Or(cmp.Compare(o.CreatedAt, c.CreatedAt), cmp.Compare(o.Id, c.Id)) > 0 {
				newer++
			}
		}
		if c.State != running && (newer >= keep || removable(types.UID(c.Labels[container.PodUIDLabel]))) {
			gone = append(gone, c.Id)
		}
	}
	return gone
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

func FuzzChoiceAgainstNaive(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		var containers []*runtimeapi.Container
		var sandboxes []*runtimeapi.PodSandbox
		for i := range r.IntN(40) {
			c := listed(fmt.Sprintf("%03d", i), fmt.Sprint(r.IntN(4)), fmt.Sprint(r.IntN(3)), runtimeapi.ContainerState(r.IntN(4)), r.IntN(12))
			c.PodSandboxId = fmt.Sprintf("s%03d", r.IntN(20))
			containers = append(containers, c)
		}
		for i := range r.IntN(15) {
			sandboxes = append(sandboxes, sandbox(fmt.Sprintf("s%03d", i), fmt.Sprint(r.IntN(4)), r.IntN(3) == 0, r.IntN(10)))
		}
		removable, keep := among(fmt.Sprint(r.IntN(6)), fmt.Sprint(r.IntN(6))), r.IntN(3)
		check := func(what string, want, got []string) {
			slices.Sort(want)
			slices.Sort(got)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		check("containers", naiveContainers(containers, keep, removable), names(chooseContainers(containers, keep, removable)))
		check("sandboxes", naiveSandboxes(sandboxes, containers, removable), chooseSandboxes(sandboxes, containers, removable))
	})
}
