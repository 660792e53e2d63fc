package syncloop_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// grpcProbed is a pod on the host's network whose container is a gRPC server, built here, with all three probes.
func grpcProbed(t *testing.T) *v1.Pod {
	t.Helper()
	program := filepath.Join(t.TempDir(), "health")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/health")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no libc
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v: %s", err, out)
	}
	port := freePort(t)
	asks := func(service string) *v1.Probe {
		return probe(v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: &service}})
	}
	c := shell("c", "")
	c.Command = []string{"/server/health", fmt.Sprintf(":%d", port), "/tmp/ill"}
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = asks(""), asks("live"), asks("ready")
	c.StartupProbe.FailureThreshold = 60
	c.VolumeMounts = []v1.VolumeMount{{Name: "server", MountPath: "/server", ReadOnly: true}}
	p := newPod("grpc", c)
	p.Spec.HostNetwork = true
	p.Spec.Volumes = []v1.Volume{
		{
			Name: "server", VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: filepath.Dir(program)},
			},
		},
	}
	return p
}

// freePort is a port that is free and below those that the kernel gives away by itself (ip_local_port_range, from 32768
// on), so that no connection and no other test takes it before a server does.
func freePort(t testing.TB) int32 {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.Int32N(10000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (n *node) checkGRPC() {
	n.awaitReady("grpc")
	before := n.running("grpc")
	n.exec("grpc", "touch /tmp/ill")
	n.awaitPod("the pod not to be ready", "grpc", func(p *v1.Pod) bool { return !hasCondition(p, v1.PodReady) })
	n.event("grpc", "Unhealthy", `Readiness probe failed: service unhealthy (responded with "NOT_SERVING")`)
	n.exec("grpc", "rm /tmp/ill")
	n.awaitReady("grpc")
	if diff := cmp.Diff(before, n.running("grpc")); diff != "" {
		n.t.Errorf("the server was restarted:\n%s", diff)
	}
}

// exec runs a script in the container c of a pod and returns what it wrote.
func (n *node) exec(name, script string) string {
	n.t.Helper()
	resp, err := n.cri.ExecSync(n.t.Context(), n.running(name)["c of "+string(n.pod(name).UID)],
		[]string{"sh", "-c", script}, e2ePatience)
	if err != nil || resp.GetExitCode() != 0 {
		n.t.Fatalf("%s in %s: %v, %v", script, name, resp, err)
	}
	return string(resp.GetStdout())
}
