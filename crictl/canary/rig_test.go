package canary

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/crictl/remote"
)

// rpcTimeout is the deadline of the calls in these tests.
const rpcTimeout = 2 * time.Second

// serve serves an embedded runtime with a busybox and one pod, in which these faults are in force, until the test ends.
func serve(t *testing.T, images []string, faults ...fake.Fault) *remote.Service {
	t.Helper()
	dialer := faketest.Serve(t, fake.Scenario{
		Name: "canary", Images: images, Faults: faults,
		Pods: []fake.PodGroup{{
			Namespace: "web", Name: "shop",
			Containers: []fake.ContainerGroup{{Name: "app", Image: "app:1"}},
		}},
	})
	cri, err := remote.Dial("/run/cri.sock", remote.Options{Timeout: rpcTimeout, Dialer: dialer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cri.Close() })
	return cri
}

func options() Options {
	return Options{RPCTimeout: rpcTimeout, Course: 20 * time.Second, Cleanup: 10 * time.Second}
}

// sandboxes are the ids of all sandboxes, or of the canaries alone.
func sandboxes(t *testing.T, cri *remote.Service, canaries bool) []string {
	t.Helper()
	var filter *runtimeapi.PodSandboxFilter
	if canaries {
		filter = &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{Label: "true"}}
	}
	list, err := cri.ListPodSandbox(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, s := range list {
		ids = append(ids, s.GetId())
	}
	return ids
}
