package runoptions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is what the options ask: one config map, one secret, and the volumes of one pod.
type world map[string]Volume

func (w world) Mounts(uid types.UID) map[string]Volume {
	if uid != "uid-1" {
		return nil
	}
	return w
}

func (world) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if namespace != "shop" || name != "settings" {
		return nil, apierrors.NewNotFound(v1.Resource("configmaps"), name)
	}
	return &v1.ConfigMap{Data: map[string]string{"mode": "fast", "size": "$(mode)"}}, nil
}

func (world) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if namespace != "shop" || name != "key" {
		return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
	}
	return &v1.Secret{Data: map[string][]byte{"pass": []byte("word")}}, nil
}

func newOptions(t *testing.T, volumes world) (*Options, *record.FakeRecorder) {
	t.Helper()
	recorder := record.NewFakeRecorder(100)
	return New(Config{
		Volumes: volumes, Objects: volumes, RootDir: t.TempDir(), HostIPs: func() []string { return []string{"10.0.0.1", "fd00::1"} },
		Allocatable: func() v1.ResourceList { return v1.ResourceList{"memory": resource.MustParse("2Gi")} },
		NodeName:    "node-2", ClusterDomain: "cluster.local", Recorder: recorder, Log: logr.Discard(),
	}), recorder
}

func newPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-1", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "robot", DNSPolicy: v1.DNSClusterFirst, Containers: []v1.Container{{Name: "c"}},
		},
	}
}

func TestEnvironment(t *testing.T) {
	o, _ := newOptions(t, nil)
	field := func(name, path string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	settings, none := v1.LocalObjectReference{Name: "settings"}, v1.LocalObjectReference{Name: "none"}
	c := &v1.Container{
		Name: "c",
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: settings}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "key"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: none, Optional: new(true)}},
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: none, Optional: new(true)}},
		},
		Env: []v1.EnvVar{
			{Name: "EMPTY"},
			{Name: "PLAIN", Value: "$(mode) $(S_pass) $(LATER) $$(mode)"},
			{Name: "LATER", Value: "x"},
			{Name: "mode", Value: "own"},
			field("NODE_NAME", "spec.nodeName"), field("SA", "spec.serviceAccountName"), field("HOST", "status.hostIP"),
			field("HOSTS", "status.hostIPs"), field("IP", "status.podIP"), field("IPS", "status.podIPs"),
			field("APP", "metadata.labels['app']"),
			{Name: "MEM", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{
				Resource: "limits.memory", Divisor: resource.MustParse("1Mi"),
			}}},
			{Name: "FROM_CM", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "size"}}},
			{Name: "FROM_SECRET", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "key"}, Key: "pass",
			}}},
			{Name: "ABSENT", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "key"}, Key: "none", Optional: new(true),
			}}},
			{Name: "ABSENT2", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
				LocalObjectReference: none, Key: "none", Optional: new(true),
			}}},
		},
	}
	got, err := o.RunOptions(t.Context(), newPod(), c, "10.1.0.5", []string{"10.1.0.5", "fd01::5"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, kv := range got.Env {
		lines = append(lines, kv.Key+"="+string(kv.Value))
	}
	want := []string{
		"APP=web", "EMPTY=", "FROM_CM=$(mode)", "FROM_SECRET=word", "HOST=10.0.0.1", "HOSTS=10.0.0.1,fd00::1", "IP=10.1.0.5",
		"IPS=10.1.0.5,fd01::5", "LATER=x", "MEM=2048", "NODE_NAME=node-1", "PLAIN=fast word $(LATER) $(mode)", "SA=robot", "S_pass=word",
		"mode=own", "size=$(mode)",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEnvironmentErrors(t *testing.T) {
	o, _ := newOptions(t, nil)
	o.cfg.HostIPs = func() []string { return nil }
	settings := v1.LocalObjectReference{Name: "settings"}
	for want, source := range map[string]v1.EnvVarSource{
		`configmaps "none" not found`:                       {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "none"}}},
		`secrets "settings" not found`:                      {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: settings}},
		"couldn't find key x in ConfigMap shop/settings":    {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "x"}},
		"unsupported fieldPath: status.phase":               {FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.phase"}},
		"the node has no address yet":                       {FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}},
		"unsupported container resource : limits.x":         {ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.x"}},
		"the source of environment variable V is not suppo": {FileKeyRef: &v1.FileKeySelector{}},
	} {
		c := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "V", ValueFrom: &source}}}
		if _, err := o.RunOptions(t.Context(), newPod(), c, "", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, c := range map[string]v1.Container{
		"block devices are not supported": {Name: "c", VolumeDevices: []v1.VolumeDevice{{Name: "disk"}}},
		"is no name of a folder":          {Name: "../c"},
		`secrets "none" not found`: {Name: "c", EnvFrom: []v1.EnvFromSource{
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}}},
		}},
	} {
		if _, err := o.RunOptions(t.Context(), newPod(), &c, "", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestHostname(t *testing.T) {
	o, _ := newOptions(t, nil)
	long := strings.Repeat("x", 62) + "-y"
	tests := []struct {
		name, hostname, subdomain string
		override                  *string
		host, domain              string
		fails                     bool
	}{
		{name: "web", host: "web"},
		{name: long, host: strings.Repeat("x", 62)},
		{name: "web", hostname: "front", subdomain: "sub", host: "front", domain: "sub.shop.svc.cluster.local"},
		{name: "web", hostname: "Front", fails: true},
		{name: "web", subdomain: "a.b", fails: true},
		{name: "web", hostname: "front", subdomain: "sub", override: new("a.example.org"), host: "a.example.org"},
		{name: "web", override: new("-"), fails: true},
	}
	for _, tt := range tests {
		p := newPod()
		p.Name, p.Spec.Hostname, p.Spec.Subdomain, p.Spec.HostnameOverride = tt.name, tt.hostname, tt.subdomain, tt.override
		host, domain, err := o.Hostname(p)
		if host != tt.host || domain != tt.domain || (err != nil) != tt.fails {
			t.Errorf("%+v: got %q, %q, %v", tt, host, domain, err)
		}
	}
}

func TestCgroupParent(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for k, v := range map[v1.ResourceName]string{"cpu": cpu, "memory": memory} {
			if v != "" {
				l[k] = resource.MustParse(v)
			}
		}
		return l
	}
	tests := []struct {
		limits, requests v1.ResourceList
		systemd          bool
		root, want       string
	}{
		{want: "/kubepods/besteffort/poda-b"},
		{limits: list("1", "1Gi"), requests: list("1", "1Gi"), want: "/kubepods/poda-b"},
		{limits: list("1", "1Gi"), want: "/kubepods/burstable/poda-b"}, // the sources make limits requests
		{limits: list("1", "1Gi"), requests: list("1", "1Mi"), want: "/kubepods/burstable/poda-b"},
		{limits: list("1", ""), want: "/kubepods/burstable/poda-b"},
		{root: "/kdiag", want: "/kdiag/kubepods/besteffort/poda-b"},
		{root: "/", systemd: true, want: "kubepods-besteffort-poda_b.slice"},
		{root: "/k-diag.slice", systemd: true, limits: list("1", "1Gi"), requests: list("1", "1Gi"), want: "k_diag-kubepods-poda_b.slice"},
	}
	for _, tt := range tests {
		o := New(Config{CgroupRoot: tt.root, SystemdCgroups: tt.systemd})
		p := newPod()
		p.UID, p.Spec.Containers[0].Resources = "a-b", v1.ResourceRequirements{Limits: tt.limits, Requests: tt.requests}
		if got := o.CgroupParent(p); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
	p := newPod()
	p.Status.QOSClass = v1.PodQOSBurstable
	if got := New(Config{}).CgroupParent(p); got != "/kubepods/burstable/poduid-1" {
		t.Errorf("with a class in the status: %s", got)
	}
}

func TestMounts(t *testing.T) {
	o, _ := newOptions(t, world{
		"disk": {HostPath: "/d", Managed: true}, "config": {HostPath: "/c", Managed: true, ReadOnly: true}, "host": {HostPath: "/h"},
	})
	c := &v1.Container{Name: "c", TerminationMessagePath: "dev/termination-log", VolumeMounts: []v1.VolumeMount{
		{Name: "disk", MountPath: "/disk", MountPropagation: new(v1.MountPropagationBidirectional)},
		{Name: "disk", MountPath: "again", ReadOnly: true, SubPath: ".", MountPropagation: new(v1.MountPropagationNone)},
		{Name: "config", MountPath: "/config"},
		{Name: "host", MountPath: "/host", MountPropagation: new(v1.MountPropagationHostToContainer)},
	}}
	pod := newPod()
	pod.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}}
	pod.Spec.Subdomain = "sub"
	got, err := o.RunOptions(t.Context(), pod, c, "10.1.0.5", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := got.Mounts[len(got.Mounts)-1].HostPath
	hosts := filepath.Join(o.PodDir("uid-1"), "etc-hosts")
	want := []*runtimeapi.Mount{
		{ContainerPath: "/disk", HostPath: "/d", SelinuxRelabel: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{ContainerPath: "/again", HostPath: "/d", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/config", HostPath: "/c", SelinuxRelabel: true, Readonly: true},
		{ContainerPath: "/host", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		{ContainerPath: "/etc/hosts", HostPath: hosts, SelinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: log},
	}
	if diff := cmp.Diff(want, got.Mounts, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o666 || filepath.Dir(log) != filepath.Join(o.PodDir("uid-1"), "containers", "c") {
		t.Errorf("%s: %v, %v", log, info, err)
	}
	text, err := os.ReadFile(hosts)
	if err != nil {
		t.Fatal(err)
	}
	wantHosts := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.1.0.5\tweb.sub.shop.svc.cluster.local\tweb\n" +
		"\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
	if diff := cmp.Diff(wantHosts, string(text)); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	o.cfg.SELinux = true
	again, err := o.RunOptions(t.Context(), pod, c, "10.1.0.5", nil)
	if err != nil || !again.Mounts[5].SelinuxRelabel {
		t.Errorf("not to be relabelled: %v, %v", again.Mounts, err)
	}
	if again.Mounts[5].HostPath == log {
		t.Errorf("the next instance writes into the same file: %v, %v", again.Mounts, err)
	}
}

func TestHostsFileOnTheNodesNetwork(t *testing.T) {
	o, _ := newOptions(t, world{"own": {HostPath: "/own"}})
	pod := newPod()
	pod.Spec.HostNetwork = true
	pod.Spec.NodeName = ""
	got, err := o.RunOptions(t.Context(), pod, &v1.Container{Name: "c", Env: []v1.EnvVar{
		{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "NODE", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}}, "", nil)
	if err != nil || len(got.Mounts) != 1 || string(got.Env[0].Value) != "10.0.0.1" || string(got.Env[1].Value) != "node-2" {
		t.Fatalf("%v, %v", got, err)
	}
	text, err := os.ReadFile(got.Mounts[0].HostPath)
	node, _ := os.ReadFile("/etc/hosts")
	if err != nil || string(text) != "# Kubernetes-managed hosts file (host network).\n"+string(node) {
		t.Errorf("got %q, %v", text, err)
	}
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "own", MountPath: "/etc/hosts"}}}
	if got, err := o.RunOptions(t.Context(), pod, c, "", nil); err != nil || len(got.Mounts) != 1 || got.Mounts[0].HostPath != "/own" {
		t.Errorf("with hosts of its own: %v, %v", got, err)
	}
	pod.Spec.HostNetwork = false
	if got, err := o.RunOptions(t.Context(), pod, &v1.Container{Name: "c"}, "", nil); err != nil || len(got.Mounts) != 0 {
		t.Errorf("without an address: %v, %v", got, err)
	}
}

func TestMountErrors(t *testing.T) {
	o, _ := newOptions(t, world{"disk": {HostPath: t.TempDir()}})
	for want, vm := range map[string]v1.VolumeMount{
		`cannot find volume "none" to mount into container "c"`:             {Name: "none", MountPath: "/x"},
		"error SubPath `/abs` must not be an absolute path":                 {Name: "disk", SubPath: "/abs"},
		"unable to provision SubPath `a/../../b`":                           {Name: "disk", SubPath: "a/../../b"},
		`missing value for "NAME"`:                                          {Name: "disk", SubPathExpr: "$(NAME)/x"},
		"must not contain '..'":                                             {Name: "disk", SubPathExpr: "x/$(UP)"},
		"invalid MountPropagation mode":                                     {Name: "disk", MountPropagation: new(v1.MountPropagationMode("x"))},
		"recursive read-only mount":                                         {Name: "disk", RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
		`failed to prepare subPath for volumeMount "disk" of container "c"`: {Name: "disk", SubPath: strings.Repeat("n", 300)},
	} {
		c := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "UP", Value: ".."}}, VolumeMounts: []v1.VolumeMount{vm}}
		if _, err := o.RunOptions(t.Context(), newPod(), c, "10.1.0.5", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
