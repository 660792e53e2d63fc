package fake

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A client is the generated client of a served scenario.
type client struct {
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	server *Server
}

// serve serves a scenario in memory until the test ends.
func serve(t *testing.T, s Scenario) *client {
	t.Helper()
	srv := must(New(s))(t)
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	conn := dial(t, "passthrough:///bufconn", func(ctx context.Context, _ string) (net.Conn, error) {
		return lis.DialContext(ctx)
	})
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve after Stop: %v", err)
		}
	})
	return &client{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), srv}
}

func dial(t *testing.T, target string, dialer func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	return must(grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30))))(t)
}

// small is a scenario with two pods, one of them with dead containers.
func small() Scenario {
	return Scenario{
		Name: "small",
		Pods: []PodGroup{
			{
				Namespace: "web", Name: "shop", Labels: map[string]string{"tier": "front"}, Age: Duration(time.Hour),
				Containers: []ContainerGroup{
					{Name: "app", Image: "app:1", Exited: 2, ExitCode: 1},
					{Name: "proxy", Image: "proxy:1", State: "created"},
				},
			},
			{
				Namespace: "pay", Name: "job", NotReady: true, DeadBefore: 1,
				Containers: []ContainerGroup{{Name: "run", Image: "app:1"}},
			},
		},
	}
}

func codeOf(err error) codes.Code { return status.Code(err) }

// must fails the test on an error and returns the answer otherwise.
func must[T any](answer T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

func (c *client) containers(t *testing.T, f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	t.Helper()
	return must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f}))(t).GetContainers()
}

func (c *client) sandboxes(t *testing.T) []*runtimeapi.PodSandbox {
	t.Helper()
	return must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}))(t).GetItems()
}

// start runs a sandbox with one created container in it and returns both ids. The container's log is main/0.log in a
// new folder.
func (c *client) start(t *testing.T) (sandboxID, containerID string) {
	t.Helper()
	logs := t.TempDir()
	if err := os.Mkdir(filepath.Join(logs, "main"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "new", Namespace: "web", Uid: "u-1"},
		LogDirectory: logs,
		Labels:       map[string]string{"tier": "new"},
	}
	image := &runtimeapi.ImageSpec{Image: "busybox"}
	must(c.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: image}))(t)
	sb := must(c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}))(t)
	made := must(c.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sb.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: image, LogPath: "main/0.log",
		},
		SandboxConfig: config,
	}))(t)
	return sb.GetPodSandboxId(), made.GetContainerId()
}

func (c *client) status(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	return must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t).GetStatus()
}
