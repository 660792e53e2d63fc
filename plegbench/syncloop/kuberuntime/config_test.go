package kuberuntime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func TestHash(t *testing.T) { // the first is a kubelet's
	c := &v1.Container{Name: "test_container", Image: "foo/image:v1", Command: []string{"x"}}
	same(t, "hash", "8e45cbd0", fmt.Sprintf("%x", ContainerHash(c)))
}

func TestResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	r := newRig(t)
	r.CgroupV2 = true
	for name, tt := range map[string]struct {
		requests, limits           v1.ResourceList
		shares, quota, memory, oom int64
	}{
		"nothing":                  {nil, nil, 2, 0, 0, 1000},
		"request":                  {list("500m", "512Mi"), nil, 512, 0, 0, 500},
		"limit stands for request": {nil, list("2", "1Gi"), 2048, 200000, 1 << 30, 999},
		"least":                    {list("0", "1Gi"), list("1m", ""), 2, 1000, 0, 3},
		"guaranteed":               {list("2", "1Gi"), list("2", "1Gi"), 2048, 200000, 1 << 30, -997},
		"most":                     {list("1000", ""), nil, 262144, 0, 0, 999},
	} {
		p := testPod("main")
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
		same(t, name, &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100000, CpuShares: tt.shares, CpuQuota: tt.quota, MemoryLimitInBytes: tt.memory,
			OomScoreAdj: tt.oom, Unified: map[string]string{"memory.oom.group": "1"},
		}, r.linuxResources(p, &p.Spec.Containers[0]), protocmp.Transform())
	}
}

func TestContainerSecurity(t *testing.T) {
	p := testPod("main")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1)), RunAsGroup: new(int64(2))}
	p.Spec.HostPID, p.Spec.HostIPC, p.Spec.HostNetwork = true, true, true
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		RunAsUser: new(int64(3)), Privileged: new(true), ReadOnlyRootFilesystem: new(true),
		AllowPrivilegeEscalation: new(false),
	}
	n := runtimeapi.NamespaceMode_NODE
	hidden := containerSecurity(testPod("main"), &v1.Container{})
	want := &runtimeapi.LinuxContainerSecurityContext{
		Privileged: true, ReadonlyRootfs: true, NoNewPrivs: true, RunAsUser: &runtimeapi.Int64Value{Value: 3},
		RunAsGroup: &runtimeapi.Int64Value{Value: 2}, MaskedPaths: hidden.GetMaskedPaths(),
		ReadonlyPaths:    hidden.GetReadonlyPaths(),
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: n, Pid: n, Ipc: n},
	}
	got := containerSecurity(p, &p.Spec.Containers[0])
	same(t, "security context", want, got, protocmp.Transform(), cmpopts.EquateEmpty())
	if len(got.GetMaskedPaths()) == 0 || len(got.GetReadonlyPaths()) == 0 {
		t.Error("nothing of /proc is hidden")
	}
	if !newRig(t).sandboxConfig(p, 0).GetLinux().GetSecurityContext().GetPrivileged() {
		t.Error("a privileged container is in a sandbox that is not")
	}
	if hidden.GetNoNewPrivs() || hidden.GetPrivileged() || hidden.GetRunAsUser() != nil {
		t.Errorf("by default: %v", hidden)
	}
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func TestEnvironment(t *testing.T) {
	from := func(name string, s v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &s} }
	field := func(name, path string) v1.EnvVar {
		return from(name, v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}})
	}
	config := func(name, key string, optional *bool) v1.EnvVarSource {
		return v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: named(name), Key: key, Optional: optional,
		}}
	}
	secret := func(name, key string, optional *bool) v1.EnvVarSource {
		return v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: named(name), Key: key, Optional: optional,
		}}
	}
	c := &v1.Container{
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("settings")}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("key")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("none"), Optional: new(true)}},
		},
		Env: []v1.EnvVar{
			{Name: "PLAIN", Value: "$(mode) $(S_pass) $(LATER) $$(mode)"},
			{Name: "LATER", Value: "x"},
			{Name: "mode", Value: "own"},
			field("NODE_NAME", "spec.nodeName"), field("SA", "spec.serviceAccountName"),
			field("HOST", "status.hostIP"), field("IP", "status.podIP"), field("APP", "metadata.labels['app']"),
			from("FROM_CM", config("settings", "size", nil)), from("FROM_SECRET", secret("key", "pass", nil)),
			from("ABSENT", secret("key", "none", new(true))), from("ABSENT2", config("none", "none", new(true))),
		},
	}
	p := testPod("main")
	p.Spec.ServiceAccountName = "robot"
	s := &syncing{Manager: newRig(t).Manager, pod: p, ip: "10.1.0.5"}
	env, err := s.environment(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "environment", map[string]string{
		"APP": "web", "FROM_CM": "$(mode)", "FROM_SECRET": "word", "HOST": "192.0.2.1", "IP": "10.1.0.5",
		"LATER": "x", "NODE_NAME": "node-a", "PLAIN": "fast word $(LATER) $(mode)", "SA": "robot", "S_pass": "word",
		"mode": "own", "size": "$(mode)",
	}, env)
	p.Spec.HostNetwork = true
	if ip, err := s.field("status.podIP"); err != nil || ip != "192.0.2.1" {
		t.Errorf("on the node's network: %v, %v", ip, err)
	}
	for want, source := range map[string]v1.EnvVarSource{
		`configmaps "none" not found`:                       config("none", "x", nil),
		`secrets "settings" not found`:                      secret("settings", "x", nil),
		"couldn't find key x for environment variable V":    config("settings", "x", nil),
		"unsupported fieldPath: status.phase":               {FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.phase"}},
		"the source of environment variable V is not suppo": {FileKeyRef: &v1.FileKeySelector{}},
	} {
		c := &v1.Container{Env: []v1.EnvVar{from("V", source)}}
		if _, err := s.environment(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := s.environment(t.Context(), &v1.Container{EnvFrom: []v1.EnvFromSource{{}}}); err == nil {
		t.Error("a source that names no object is no error")
	}
}

func TestMounts(t *testing.T) {
	r := newRig(t)
	r.volumes = map[string]source.Volume{
		"disk": {HostPath: "/d", Managed: true}, "config": {HostPath: "/c", Managed: true, ReadOnly: true},
		"host": {HostPath: "/h"},
	}
	s := &syncing{Manager: r.Manager, pod: testPod("main"), ip: "10.1.0.5"}
	c := &v1.Container{Name: "c", TerminationMessagePath: "dev/termination-log", VolumeMounts: []v1.VolumeMount{
		{Name: "disk", MountPath: "again", ReadOnly: true},
		{Name: "config", MountPath: "/config"},
		{Name: "host", MountPath: "/host"},
	}}
	got, err := s.containerMounts(c)
	if err != nil || len(got) != 5 {
		t.Fatalf("%v, %v", got, err)
	}
	dir := filepath.Join(r.RootDir, "pods", "uid-1")
	log := got[4].HostPath
	same(t, "mounts", []*runtimeapi.Mount{
		{ContainerPath: "/again", HostPath: "/d", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/config", HostPath: "/c", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/host", HostPath: "/h"},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"), SelinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: log, SelinuxRelabel: true},
	}, got, protocmp.Transform())
	info, err := os.Stat(log)
	if err != nil || info.Mode().Perm() != 0o666 || filepath.Dir(log) != filepath.Join(dir, "containers", "c") {
		t.Errorf("termination message: %s, %v, %v", log, info, err)
	}
	hosts, err := os.ReadFile(filepath.Join(dir, "etc-hosts"))
	if err != nil || !strings.HasSuffix(string(hosts), "\n10.1.0.5\tweb\n") {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	if again, err := s.containerMounts(c); err != nil || again[4].HostPath == log {
		t.Errorf("the next instance writes into the same file: %v, %v", again, err)
	}
	own := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "disk", MountPath: "/etc/hosts"}}}
	if got, err := s.containerMounts(own); err != nil || len(got) != 1 || got[0].HostPath != "/d" {
		t.Errorf("with its own hosts: %v, %v", got, err)
	}
	for want, mount := range map[string]v1.VolumeMount{
		`cannot find volume "none" to mount into container "c"`:  {Name: "none", MountPath: "/x"},
		`subPath, as in volume mount "disk" of container "c", i`: {Name: "disk", SubPath: "x"},
	} {
		_, err := s.containerMounts(&v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{mount}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
