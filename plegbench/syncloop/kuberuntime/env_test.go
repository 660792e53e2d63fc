package kuberuntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

func envRig(t *testing.T) *rig {
	r := newRig(t)
	r.world.configMaps = map[string]map[string]string{"shop/settings": {"mode": "fast", "size": "$(mode)"}}
	r.world.secrets = map[string]map[string][]byte{"shop/key": {"pass": []byte("word")}}
	r.HostIPs = []string{"10.0.0.1", "fd00::1"}
	return r
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func TestEnvironment(t *testing.T) {
	from := func(name string, s v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &s} }
	field := func(name, path string) v1.EnvVar {
		return from(name, v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}})
	}
	configKey := func(name, key string, optional *bool) v1.EnvVarSource {
		return v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named(name), Key: key, Optional: optional}}
	}
	secretKey := func(name, key string, optional *bool) v1.EnvVarSource {
		return v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named(name), Key: key, Optional: optional}}
	}
	c := &v1.Container{
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("settings")}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("key")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("none"), Optional: new(true)}},
		},
		Env: []v1.EnvVar{
			{Name: "EMPTY"},
			{Name: "PLAIN", Value: "$(mode) $(S_pass) $(LATER) $$(mode)"},
			{Name: "LATER", Value: "x"},
			{Name: "mode", Value: "own"},
			field("NODE_NAME", "spec.nodeName"), field("SA", "spec.serviceAccountName"), field("HOST", "status.hostIP"),
			field("IP", "status.podIP"), field("APP", "metadata.labels['app']"),
			from("FROM_CM", configKey("settings", "size", nil)), from("FROM_SECRET", secretKey("key", "pass", nil)),
			from("ABSENT", secretKey("key", "none", new(true))), from("ABSENT2", configKey("none", "none", new(true))),
		},
	}
	p := testPod("main")
	p.Spec.ServiceAccountName = "robot"
	env, err := envRig(t).environment(t.Context(), p, c, []string{"10.1.0.5", "fd01::5"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "environment", map[string]string{
		"APP": "web", "EMPTY": "", "FROM_CM": "$(mode)", "FROM_SECRET": "word", "HOST": "10.0.0.1", "IP": "10.1.0.5", "LATER": "x",
		"NODE_NAME": "node-a", "PLAIN": "fast word $(LATER) $(mode)", "SA": "robot", "S_pass": "word", "mode": "own", "size": "$(mode)",
	}, env)
	p.Spec.HostNetwork = true
	c.EnvFrom, c.Env = nil, []v1.EnvVar{field("IP", "status.podIP")}
	if env, err := envRig(t).environment(t.Context(), p, c, nil); err != nil || env["IP"] != "10.0.0.1" {
		t.Errorf("on the node's network: %v, %v", env, err)
	}
	for want, source := range map[string]v1.EnvVarSource{
		`configmaps "none" not found`:                       configKey("none", "x", nil),
		`secrets "settings" not found`:                      secretKey("settings", "x", nil),
		"couldn't find key x for environment variable V":    configKey("settings", "x", nil),
		"unsupported fieldPath: status.phase":               {FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.phase"}},
		"the source of environment variable V is not suppo": {FileKeyRef: &v1.FileKeySelector{}},
	} {
		c.Env = []v1.EnvVar{{Name: "V", ValueFrom: &source}}
		if _, err := envRig(t).environment(t.Context(), p, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestMounts(t *testing.T) {
	r := newRig(t)
	r.world.volumes = map[string]source.Volume{
		"disk": {HostPath: "/d", Managed: true}, "config": {HostPath: "/c", Managed: true, ReadOnly: true}, "host": {HostPath: "/h"},
	}
	c := &v1.Container{Name: "c", TerminationMessagePath: "dev/termination-log", VolumeMounts: []v1.VolumeMount{
		{Name: "disk", MountPath: "again", ReadOnly: true}, {Name: "config", MountPath: "/config"}, {Name: "host", MountPath: "/host"},
	}}
	p := testPod("main")
	got, err := r.containerMounts(p, c, []string{"10.1.0.5"})
	if err != nil || len(got) != 5 {
		t.Fatalf("%v, %v", got, err)
	}
	dir := filepath.Join(r.RootDir, "pods", "uid-1")
	log := got[4].HostPath
	want := []*runtimeapi.Mount{
		{ContainerPath: "/again", HostPath: "/d", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/config", HostPath: "/c", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/host", HostPath: "/h"},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"), SelinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: log, SelinuxRelabel: true},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o666 || filepath.Dir(log) != filepath.Join(dir, "containers", "c") {
		t.Errorf("termination message: %s, %v, %v", log, info, err)
	}
	if hosts, err := os.ReadFile(filepath.Join(dir, "etc-hosts")); err != nil || !strings.HasSuffix(string(hosts), "\n10.1.0.5\tweb\n") {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	if again, err := r.containerMounts(p, c, []string{"10.1.0.5"}); err != nil || again[4].HostPath == log {
		t.Errorf("the next instance writes into the same file: %v, %v", again, err)
	}
	own := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "disk", MountPath: "/etc/hosts"}}}
	if got, err := r.containerMounts(p, own, []string{"10.1.0.5"}); err != nil || len(got) != 1 || got[0].HostPath != "/d" {
		t.Errorf("with its own hosts: %v, %v", got, err)
	}
	for want, mount := range map[string]v1.VolumeMount{
		`cannot find volume "none" to mount into container "c"`:  {Name: "none", MountPath: "/x"},
		`subPath, as in volume mount "disk" of container "c", i`: {Name: "disk", SubPath: "x"},
	} {
		c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{mount}}
		if _, err := r.containerMounts(p, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
