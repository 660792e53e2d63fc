package fake

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPatterns makes the calls of a probe in every scenario that serves its socket: which of them fail is what the
// cause is recognised by.
func TestPatterns(t *testing.T) {
	hang, large := codes.DeadlineExceeded, codes.ResourceExhausted
	type failures map[string]codes.Code
	tests := map[string]failures{
		"healthy": {}, "runtime-slow": {}, "runtime-not-ready": {}, "network-not-ready": {}, "exited-flood": {}, "relist-overloaded": {},
		"runtime-hung": {
			"Version": hang, "Status": hang, "ListPodSandbox": hang, "ListContainers": hang, "ListImages": hang, "ImageFsInfo": hang,
			"first sandbox": hang, "first container": hang,
		},
		"cni-hung":           {"Status": hang},
		"list-hang":          {"ListContainers": hang, "web/session-cache-0/redis": hang},
		"inspect-hang":       {"payments/ledger-db-0/ledger": hang},
		"sandbox-hang":       {"web/checkout-7d9f8b6c54-gk2rn": hang},
		"image-service-hung": {"ListImages": hang, "ImageFsInfo": hang},
		"list-too-large":     {"ListContainers": large},
		"flapping":           {}, // frozen for less than the minute that ask waits
	}
	for _, s := range Builtins() {
		if s.Socket != SocketListen {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, ok := tests[s.Name]
				if !ok {
					t.Fatal("not in the table")
				}
				got := failures{}
				for what, call := range serve(t, s).probe() {
					if code := ask(t, call).Code; code != codes.OK {
						got[what] = code
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("what fails (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// probe returns the read-only calls of a probe, and the status calls about the first sandbox and container and those
// that some scenario hangs.
func (c *client) probe() map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Version": c.version,
		"Status": func(ctx context.Context) error {
			_, err := c.Status(ctx, &runtimeapi.StatusRequest{})
			return err
		},
		"ListPodSandbox": func(ctx context.Context) error {
			_, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			return err
		},
		"ListContainers": func(ctx context.Context) error {
			_, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			return err
		},
		"ListImages": func(ctx context.Context) error {
			_, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
			return err
		},
		"ImageFsInfo": func(ctx context.Context) error {
			_, err := c.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
			return err
		},
	}
	inspected := "web/session-cache-0/redis payments/ledger-db-0/ledger web/checkout-7d9f8b6c54-gk2rn"
	if c.server.scenario.Name == "runtime-hung" {
		inspected = "" // everything would be in its list
	}
	for sb := range c.server.store.sandboxes.all() {
		name := sb.meta.GetNamespace() + "/" + sb.meta.GetName()
		if _, done := calls["first sandbox"]; !done {
			name = "first sandbox"
		} else if !strings.Contains(inspected+" ", name+" ") {
			continue
		}
		calls[name] = func(ctx context.Context) error {
			_, err := c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb.id})
			return err
		}
	}
	for container := range c.server.store.containers.all() {
		meta := container.sandbox.meta
		name := meta.GetNamespace() + "/" + meta.GetName() + "/" + container.name
		if _, done := calls["first container"]; !done {
			name = "first container"
		} else if !strings.Contains(inspected+" ", name+" ") {
			continue
		}
		calls[name] = func(ctx context.Context) error {
			_, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container.id})
			return err
		}
	}
	return calls
}
