package kuberuntime

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func TestResources(t *testing.T) {
	r := newHarness(t)
	r.CgroupV2 = true
	for text, want := range map[string][4]int64{ // CPU shares and quota, memory, OOM score
		"{}":                                     {2, 0, 0, 1000},
		"{requests: {cpu: 500m, memory: 512Mi}}": {512, 0, 0, 500},
		"{limits: {cpu: 2, memory: 1Gi}}":        {2048, 200000, 1 << 30, 999},
		"{requests: {cpu: 0, memory: 1Gi}, limits: {cpu: 1m}}":             {2, 1000, 0, 3},
		"{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}": {2048, 200000, 1 << 30, -997},
		"{requests: {cpu: 1000}}":                                          {262144, 0, 0, 999},
	} {
		p := testPod("main")
		looptest.Decode(t, text, &p.Spec.Containers[0].Resources)
		testkit.Equal(t, text, &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100000, CpuShares: want[0], CpuQuota: want[1], MemoryLimitInBytes: want[2],
			OomScoreAdj: want[3], Unified: map[string]string{"memory.oom.group": "1"},
		}, r.linuxResources(p, &p.Spec.Containers[0]), protocmp.Transform())
	}
}

func TestDNS(t *testing.T) {
	r, p := newHarness(t), testPod("main")
	r.ClusterDNS, r.ClusterDomain, p.Spec.DNSPolicy = []string{"10.0.0.10"}, "cluster.local", v1.DNSClusterFirst
	testkit.Equal(t, "DNS", &runtimeapi.DNSConfig{
		Servers: r.ClusterDNS, Options: []string{"ndots:5"},
		Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
	}, r.sandboxConfig(p, 0).GetDnsConfig(), protocmp.Transform())
}

// TestVerifyNonRoot has the pod's words, the container's and the image's. One that is refused leaves no file behind.
func TestVerifyNonRoot(t *testing.T) {
	const where = ` (pod: "web_shop(uid-1)", container: main)`
	for _, tt := range []struct {
		pod, container string
		image          *runtimeapi.Image
		want           string
	}{
		{"{runAsNonRoot: true}", "{runAsNonRoot: false}", nil, ""},
		{"{runAsNonRoot: true}", "{}", nil, "container has runAsNonRoot and image will run as root" + where},
		{"{}", "{runAsNonRoot: true}", &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}}, ""},
		{
			"{}", "{runAsNonRoot: true}", &runtimeapi.Image{Username: "www"},
			"container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root" + where,
		},
		{"{runAsUser: 0}", "{runAsNonRoot: true}", nil, "container's runAsUser breaks non-root policy" + where},
	} {
		r, p := newHarness(t, fake.Fault{RPC: "CreateContainer", Error: "Unknown: no disk"}), testPod("main")
		looptest.Decode(t, tt.pod, &p.Spec.SecurityContext)
		looptest.Decode(t, tt.container, &p.Spec.Containers[0].SecurityContext)
		p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		r.cri.image = tt.image
		got := r.sync(t, p).Actions[2].Message
		files, err := filepath.Glob(filepath.Join(r.RootDir, "pods", "*", "containers", "*", "*"))
		if got != cmp.Or(tt.want, "no disk") || err != nil || len(files) > 0 {
			t.Errorf("%+v: got %s, left %v, %v", tt, got, files, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	var c v1.Container
	looptest.Decode(t, testkit.Read(t, "testdata/environment.yaml"), &c)
	p := testPod("main")
	p.Spec.ServiceAccountName = "robot"
	s := &podSync{Manager: newHarness(t).Manager, pod: p, ip: "10.1.0.5"}
	env, err := s.environment(t.Context(), &c)
	testkit.Must(t, err)
	testkit.Equal(t, "environment", map[string]string{
		"APP": "web", "FROM_CM": "$(mode)", "FROM_SECRET": "word", "HOST": "192.0.2.1", "IP": "10.1.0.5",
		"LATER": "x", "NODE_NAME": "node-a", "PLAIN": "fast word $(LATER) $(mode)", "SA": "robot", "S_pass": "word",
		"mode": "own", "size": "$(mode)",
	}, env)
	p.Spec.HostNetwork = true
	ip, err := s.field("status.podIP")
	testkit.Must(t, err)
	testkit.Equal(t, "address on the node's network", "192.0.2.1", ip)
	for text, want := range map[string]string{
		"env: [{name: V, valueFrom: {configMapKeyRef: {name: none, key: x}}}]":     `configmap "none" not found`,
		"env: [{name: V, valueFrom: {configMapKeyRef: {name: settings, key: x}}}]": "couldn't find key x",
		"env: [{name: V, valueFrom: {fieldRef: {fieldPath: status.phase}}}]":       "fieldPath: status.phase",
		"env: [{name: V, valueFrom: {fileKeyRef: {key: x}}}]":                      "variable V is not supported",
	} {
		var c v1.Container
		looptest.Decode(t, text, &c)
		_, err := s.environment(t.Context(), &c)
		testkit.Contains(t, text, want, testkit.Text(err))
	}
}

func TestMounts(t *testing.T) {
	r := newHarness(t)
	r.volumes = map[string]source.Volume{
		"disk": {HostPath: "/d", Managed: true}, "config": {HostPath: "/c", Managed: true, ReadOnly: true},
		"host": {HostPath: "/h"},
	}
	s := &podSync{Manager: r.Manager, pod: testPod("main"), ip: "10.1.0.5"}
	c := &v1.Container{Name: "c", TerminationMessagePath: "dev/termination-log", VolumeMounts: []v1.VolumeMount{
		{Name: "disk", MountPath: "again", ReadOnly: true},
		{Name: "config", MountPath: "/config"},
		{Name: "host", MountPath: "/host"},
		{Name: "disk", MountPath: "/part", SubPathExpr: "$(WHO)/x"},
	}}
	r.PrepareSafeSubpath = func(_ types.UID, volume, container string, i int, path string) (string, error) {
		if path == "out" {
			return "", errors.New("/secret of the node")
		}
		return fmt.Sprintf("/%s/%s/%d/%s", volume, container, i, path), nil
	}
	got, err := s.containerMounts(c, map[string]string{"WHO": "me"})
	if err != nil || len(got) != 6 {
		t.Fatalf("%v, %v", got, err)
	}
	dir := filepath.Join(r.RootDir, "pods", "uid-1")
	log := got[5].HostPath
	testkit.Equal(t, "mounts", []*runtimeapi.Mount{
		{ContainerPath: "/again", HostPath: "/d", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/config", HostPath: "/c", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/host", HostPath: "/h"},
		{ContainerPath: "/part", HostPath: "/disk/c/3/me/x", SelinuxRelabel: true},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"), SelinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: log, SelinuxRelabel: true},
	}, got, protocmp.Transform())
	info, err := os.Stat(log)
	if err != nil || info.Mode().Perm() != 0o666 || filepath.Dir(log) != filepath.Join(dir, "containers", "c") {
		t.Errorf("termination message: %s, %v, %v", log, info, err)
	}
	testkit.Contains(t, "hosts", "\n10.1.0.5\tweb\n", testkit.Read(t, filepath.Join(dir, "etc-hosts")))
	if again, err := s.containerMounts(c, map[string]string{"WHO": "me"}); err != nil || again[5].HostPath == log {
		t.Errorf("the next instance writes into the same file: %v, %v", again, err)
	}
	c.VolumeMounts = []v1.VolumeMount{{Name: "disk", SubPath: "out"}}
	_, err = s.containerMounts(c, nil)
	const want = `failed to prepare subPath for volumeMount "disk" of container "c"`
	testkit.Contains(t, "a path that leads out", want, testkit.Text(err))
}

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"message": "I am done\n", "long": strings.Repeat("x", 5000) + "end"} {
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666))
	for _, tt := range []struct{ file, message, want string }{
		{"message", "", "I am done\n"},
		{"message", "OOM", "OOM: I am done\n"},
		{"long", "", strings.Repeat("x", 4093) + "end"},
		{"none", "why", "why"},
		{"pipe", "why", "why"}, // nobody writes into it
		{".", "why", "why"},
	} {
		got := newHarness(t).status(&runtimeapi.ContainerStatus{
			State: exited, ExitCode: 1, Message: tt.message,
			Annotations: map[string]string{container.TerminationMessagePathAnnotation: "/dev/termination-log"},
			Mounts: []*runtimeapi.Mount{
				{ContainerPath: "/etc/hosts", HostPath: "/etc/hosts"},
				{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(dir, tt.file)},
			},
		})
		testkit.Equal(t, tt.file, tt.want, got.Message)
	}
}
