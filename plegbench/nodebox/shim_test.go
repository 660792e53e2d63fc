package nodebox

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestOvertaken wants a container that alone is not answered to be told from a runtime, or a machine, that is slow.
func TestOvertaken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fake.Fault
		want  bool
	}{
		{"locked", fake.Fault{RPC: "ContainerStatus", Hang: true}, true},
		{"healthy", fake.Fault{RPC: "Version", Error: "Internal", After: 1000}, false},
		{"everything slow", fake.Fault{RPC: "*", Hang: true, Thaw: true, Until: fake.Duration(10 * time.Second)}, false},
		{"frozen", fake.Fault{RPC: "*", Hang: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := overtaken(t.Context(), serve(t, tt.fault), "none")
				if got != tt.want || got == (err != nil) {
					t.Errorf("%v, %v; want %v", got, err, tt.want)
				}
			})
		})
	}
}

// serve serves an embedded runtime with a fault and returns a client of it.
func serve(t *testing.T, fault fake.Fault) *crictl.Client {
	t.Helper()
	server, err := fake.New(fake.Scenario{Name: "nodebox", Faults: []fake.Fault{fault}})
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	client, err := crictl.Dial("/run/cri.sock", crictl.Options{
		RPCTimeout: runPatience, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close() // nothing was written
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return client
}
