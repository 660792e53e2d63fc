package fake

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestTransitions asks for every change of a container in every state and compares the outcome with the table.
func TestTransitions(t *testing.T) {
	const (
		created = runtimeapi.ContainerState_CONTAINER_CREATED
		running = runtimeapi.ContainerState_CONTAINER_RUNNING
		exited  = runtimeapi.ContainerState_CONTAINER_EXITED
		unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		gone    = runtimeapi.ContainerState(-1)
	)
	start := func(t *testing.T, c *client, id string) error {
		_, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
		return err
	}
	stop := func(t *testing.T, c *client, id string) error {
		_, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10})
		return err
	}
	remove := func(t *testing.T, c *client, id string) error {
		_, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	}
	tests := []struct {
		from string
		op   string
		do   func(*testing.T, *client, string) error
		code codes.Code
		to   runtimeapi.ContainerState
	}{
		{"created", "start", start, codes.OK, running},
		{"created", "stop", stop, codes.OK, created},
		{"created", "remove", remove, codes.OK, gone},
		{"running", "start", start, codes.FailedPrecondition, running},
		{"running", "stop", stop, codes.OK, exited},
		{"running", "remove", remove, codes.OK, gone},
		{"exited", "start", start, codes.FailedPrecondition, exited},
		{"exited", "stop", stop, codes.OK, exited},
		{"exited", "remove", remove, codes.OK, gone},
		{"unknown", "start", start, codes.FailedPrecondition, unknown},
		{"unknown", "stop", stop, codes.OK, exited},
		{"unknown", "remove", remove, codes.OK, gone},
	}
	for _, test := range tests {
		t.Run(test.from+" "+test.op, func(t *testing.T) {
			c := serve(t, Scenario{Name: "one", Pods: []PodGroup{
				{Name: "p", Containers: []ContainerGroup{{Name: "c", State: test.from}}},
			}})
			id := c.containers(t, nil)[0].GetId()
			if err := test.do(t, c, id); codeOf(err) != test.code {
				t.Errorf("code %s, want %s (%v)", codeOf(err), test.code, err)
			}
			left := c.containers(t, nil)
			switch {
			case test.to == gone:
				if len(left) != 0 {
					t.Errorf("still listed as %s", left[0].GetState())
				}
				if err := test.do(t, c, id); err != nil {
					t.Errorf("removing it again: %v", err)
				}
			case len(left) != 1 || left[0].GetState() != test.to:
				t.Errorf("listed as %v, want %s", left, test.to)
			case c.status(t, id).GetState() != test.to:
				t.Errorf("status %s, want %s", c.status(t, id).GetState(), test.to)
			}
		})
	}
}

func TestLifeOfAPod(t *testing.T) {
	c := serve(t, Scenario{Name: "empty"})
	sandboxID, id := c.start(t, nil)
	log := c.status(t, id).GetLogPath()
	if got := c.status(t, id); got.GetStartedAt() != 0 || !strings.HasSuffix(log, "/main/0.log") {
		t.Errorf("created: started at %d, log %q", got.GetStartedAt(), log)
	}
	must(c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
	must(c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}}))(t)
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}
	must(c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}))(t)
	got := c.status(t, id)
	if got.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || got.GetExitCode() != 137 ||
		got.GetReason() != "Error" {
		t.Errorf(
			"after StopPodSandbox: %s, exit code %d, reason %q",
			got.GetState(),
			got.GetExitCode(),
			got.GetReason(),
		)
	}
	if got.GetCreatedAt() > got.GetStartedAt() || got.GetStartedAt() > got.GetFinishedAt() {
		t.Errorf("times out of order: %d, %d, %d", got.GetCreatedAt(), got.GetStartedAt(), got.GetFinishedAt())
	}
	if _, err := c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id}); codeOf(
		err,
	) != codes.FailedPrecondition {
		t.Errorf("ExecSync in an exited container: %v", err)
	}
	_, err := c.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandboxID,
		Config:       &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "late"}},
	})
	if codeOf(err) != codes.FailedPrecondition {
		t.Errorf("CreateContainer in a stopped sandbox: %v", err)
	}

	for range 2 { // the second time it is gone, which is no error
		must(c.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}))(t)
	}
	if n := len(c.containers(t, nil)) + len(c.sandboxes(t, nil)); n != 0 {
		t.Errorf("%d objects left", n)
	}
	if _, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}); codeOf(
		err,
	) != codes.NotFound {
		t.Errorf("status of a removed container: %v", err)
	}
}

func TestNetworkNotReadyFailsPods(t *testing.T) {
	s, _ := Builtin("network-not-ready")
	c := serve(t, s)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "b", Uid: "c"},
	}
	if _, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}); codeOf(
		err,
	) != codes.Unknown {
		t.Errorf("a pod with its own network: %v", err)
	}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	must(c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}))(t)
}
