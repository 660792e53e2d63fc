package kuberuntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func envRig(t *testing.T) *rig {
	r := newRig(t)
	r.world.configMaps = map[string]map[string]string{"shop/settings": {"mode": "fast", "size": "$(mode)"}}
	r.world.secrets = map[string]map[string][]byte{"shop/key": {"pass": []byte("word")}}
	r.HostIPs = []string{"10.0.0.1", "fd00::1"}
	r.Allocatable = func() v1.ResourceList { return v1.ResourceList{"memory": resource.MustParse("2Gi")} }
	return r
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func TestEnvironment(t *testing.T) {
	field := func(name, path string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	from := func(name string, s v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &s} }
	c := &v1.Container{
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("settings")}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("key")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("none"), Optional: new(true)}},
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("none"), Optional: new(true)}},
		},
		Env: []v1.EnvVar{
			{Name: "EMPTY"},
			{Name: "PLAIN", Value: "$(mode) $(S_pass) $(LATER) $$(mode)"},
			{Name: "LATER", Value: "x"},
			{Name: "mode", Value: "own"},
			field("NODE_NAME", "spec.nodeName"), field("SA", "spec.serviceAccountName"), field("HOST", "status.hostIP"), field("HOSTS", "status.hostIPs"),
			field("IP", "status.podIP"), field("IPS", "status.podIPs"), field("APP", "metadata.labels['app']"),
			from("MEM", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}),
			from("FROM_CM", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("settings"), Key: "size"}}),
			from("FROM_SECRET", v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("key"), Key: "pass"}}),
			from("ABSENT", v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("key"), Key: "none", Optional: new(true)}}),
			from("ABSENT2", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("none"), Key: "none", Optional: new(true)}}),
		},
	}
	p := testPod("main")
	p.Spec.ServiceAccountName = "robot"
	env, err := envRig(t).environment(t.Context(), p, c, []string{"10.1.0.5", "fd01::5"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, kv := range keyValues(env) {
		lines = append(lines, kv.Key+"="+string(kv.Value))
	}
	same(t, "environment", []string{
		"APP=web", "EMPTY=", "FROM_CM=$(mode)", "FROM_SECRET=word", "HOST=10.0.0.1", "HOSTS=10.0.0.1,fd00::1", "IP=10.1.0.5",
		"IPS=10.1.0.5,fd01::5", "LATER=x", "MEM=2048", "NODE_NAME=node-a", "PLAIN=fast word $(LATER) $(mode)", "SA=robot", "S_pass=word",
		"mode=own", "size=$(mode)",
	}, lines)
	p.Spec.HostNetwork = true
	if env, err := envRig(t).environment(t.Context(), p, &v1.Container{Env: []v1.EnvVar{field("IP", "status.podIP")}}, nil); err != nil || env["IP"] != "10.0.0.1" {
		t.Errorf("on the node's network: %v, %v", env, err)
	}
}

func TestEnvironmentErrors(t *testing.T) {
	for want, source := range map[string]v1.EnvVarSource{
		`configmaps "none" not found`:                       {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("none")}},
		`secrets "settings" not found`:                      {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("settings")}},
		"couldn't find key x in ConfigMap shop/settings":    {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("settings"), Key: "x"}},
		"unsupported fieldPath: status.phase":               {FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.phase"}},
		"unsupported container resource : limits.x":         {ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.x"}},
		"the source of environment variable V is not suppo": {FileKeyRef: &v1.FileKeySelector{}},
	} {
		c := &v1.Container{Env: []v1.EnvVar{{Name: "V", ValueFrom: &source}}}
		if _, err := envRig(t).environment(t.Context(), testPod("main"), c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestMounts(t *testing.T) {
	r := newRig(t)
	r.world.volumes = map[string]Volume{"disk": {HostPath: "/d", Managed: true}, "config": {HostPath: "/c", Managed: true, ReadOnly: true}, "host": {HostPath: "/h"}}
	c := &v1.Container{Name: "c", TerminationMessagePath: "dev/termination-log", VolumeMounts: []v1.VolumeMount{
		{Name: "disk", MountPath: "/disk", MountPropagation: new(v1.MountPropagationBidirectional)},
		{Name: "disk", MountPath: "again", ReadOnly: true, MountPropagation: new(v1.MountPropagationNone)},
		{Name: "config", MountPath: "/config"},
		{Name: "host", MountPath: "/host", MountPropagation: new(v1.MountPropagationHostToContainer)},
	}}
	p := testPod("main")
	p.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}}
	got, err := r.mounts(p, c, []string{"10.1.0.5"})
	if err != nil || len(got) != 6 {
		t.Fatalf("%v, %v", got, err)
	}
	dir := filepath.Join(r.RootDir, "pods", "uid-1")
	log := got[5].HostPath
	want := []*runtimeapi.Mount{
		{ContainerPath: "/disk", HostPath: "/d", SelinuxRelabel: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{ContainerPath: "/again", HostPath: "/d", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/config", HostPath: "/c", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/host", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"), SelinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: log, SelinuxRelabel: true},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o666 || filepath.Dir(log) != filepath.Join(dir, "containers", "c") {
		t.Errorf("termination message: %s, %v, %v", log, info, err)
	}
	hosts, err := os.ReadFile(filepath.Join(dir, "etc-hosts"))
	if err != nil || !strings.HasSuffix(string(hosts), "\n10.1.0.5\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n") {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	again, err := r.mounts(p, c, []string{"10.1.0.5"})
	if err != nil || again[5].HostPath == log {
		t.Errorf("the next instance writes into the same file: %v, %v", again, err)
	}
	own := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "disk", MountPath: "/etc/hosts"}}}
	if got, err := r.mounts(p, own, []string{"10.1.0.5"}); err != nil || len(got) != 1 || got[0].HostPath != "/d" {
		t.Errorf("with its own hosts: %v, %v", got, err)
	}
	if got, err := r.mounts(p, &v1.Container{Name: "c"}, nil); err != nil || len(got) != 0 {
		t.Errorf("without an address: %v, %v", got, err)
	}
}

func TestMountErrors(t *testing.T) {
	r := newRig(t)
	r.world.volumes = map[string]Volume{"disk": {HostPath: "/d"}}
	for want, c := range map[string]v1.Container{
		`cannot find volume "none" to mount into container "c"`:  {Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "none", MountPath: "/x"}}},
		`subPath, as in volume mount "disk" of container "c", i`: {Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "disk", SubPath: "x"}}},
		"block devices, as disk of container c, are not suppor":  {Name: "c", VolumeDevices: []v1.VolumeDevice{{Name: "disk"}}},
		"is no name of a folder":                                 {Name: "../c"},
	} {
		if _, err := r.mounts(testPod("main"), &c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
