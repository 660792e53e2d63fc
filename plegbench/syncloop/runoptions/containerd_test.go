package runoptions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/runoptions"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// startRuntime starts a private containerd, or skips the test on a machine that has none.
func startRuntime(t *testing.T) (*nodebox.Containerd, *remote.Service) {
	t.Helper()
	nodebox.Need(t, nodebox.Missing(false))
	c, err := nodebox.Start(t.Context(), nodebox.Options{Network: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	runtime, err := remote.Dial(c.Endpoint(), remote.Options{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	return c, runtime
}

func volumesPod() *v1.Pod {
	source := func(name string, s v1.VolumeSource) v1.Volume { return v1.Volume{Name: name, VolumeSource: s} }
	mount := func(name, path, sub string) v1.VolumeMount {
		return v1.VolumeMount{Name: name, MountPath: path, SubPath: sub}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "f3a1-volumes"},
		Spec: v1.PodSpec{
			DNSPolicy:       v1.DNSNone,
			DNSConfig:       &v1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.org"}},
			SecurityContext: &v1.PodSecurityContext{FSGroup: new(int64(4242))},
			Volumes: []v1.Volume{
				source("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
				source("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
				source("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}),
				source("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}),
			},
			Containers: []v1.Container{{
				Name: "c", TerminationMessagePath: "/dev/termination-log",
				Env: []v1.EnvVar{{Name: "POD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
				VolumeMounts: []v1.VolumeMount{
					mount("disk", "/disk", ""), mount("memory", "/memory", ""), mount("config", "/config", ""), mount("secret", "/config/keys", ""),
					mount("disk", "/part", "a/b"), mount("config", "/one", "mode"),
				},
			}},
		},
	}
}

const objects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {mode: fast}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: shop}
stringData: {pass: word}
`

// TestContainerSeesItsVolumes runs a container on a real runtime with all that the volume manager and the options say.
func TestContainerSeesItsVolumes(t *testing.T) {
	box, runtime := startRuntime(t)
	ctx, dir, recorder := t.Context(), t.TempDir(), record.NewFakeRecorder(100)
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	files := volumemanager.NewFileObjects(dir)
	volumes := volumemanager.New(volumemanager.Config{
		RootDir: filepath.Join(dir, "root"), Objects: files, Recorder: recorder, Log: logr.Discard(),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	options := runoptions.New(runoptions.Config{
		Volumes: volumes, Objects: files, RootDir: filepath.Join(dir, "root"), HostIPs: func() []string { return []string{"192.0.2.1"} },
		CgroupRoot: "/" + filepath.Base(box.Dir()), Recorder: recorder, Log: logr.Discard(),
	})
	pod := volumesPod()
	if err := volumes.WaitForAttachAndMount(ctx, pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = volumes.WaitForUnmount(t.Context(), pod) }) // of a test that failed halfway
	dns, err := options.DNS(pod)
	if err != nil {
		t.Fatal(err)
	}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)}, DnsConfig: dns,
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: options.CgroupParent(pod)},
	}
	sandboxID, err := runtime.RunPodSandbox(ctx, sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	status, err := runtime.PodSandboxStatus(ctx, sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	ip := status.GetNetwork().GetIp()
	run, err := options.RunOptions(ctx, pod, &pod.Spec.Containers[0], ip, []string{ip})
	if err != nil {
		t.Fatal(err)
	}
	id, err := runtime.CreateContainer(ctx, sandboxID, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: nodebox.ImageBusybox},
		Command: []string{"sleep", "600"}, Envs: run.Env, Mounts: run.Mounts,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{Value: 1000}, SupplementalGroups: []int64{4242},
		}},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	got, err := runtime.ExecSync(ctx, id, []string{"/bin/sh", "-c", `
		echo env $POD; cat /config/mode /config/keys/pass /one; echo
		echo x >/disk/x && echo x >/memory/x && echo x >/part/x && echo written
		ls /disk/a/b; stat -c '%g %a' /disk/x /part /memory
		(echo no >/config/new) 2>/dev/null || echo read-only
		echo died >/dev/termination-log; tail -1 /etc/hosts; cat /etc/resolv.conf; stat -f -c %T /memory /config/keys`}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := "env web\nfastwordfast\nwritten\nx\n4242 644\n4242 2777\n4242 3777\nread-only\n" + ip + "\tweb\n" +
		"search example.org\nnameserver 192.0.2.53\ntmpfs\ntmpfs\n"
	if diff := cmp.Diff(want, string(got.GetStdout())+string(got.GetStderr())); diff != "" {
		t.Errorf("in the container (-want +got):\n%s", diff)
	}
	message, err := os.ReadFile(run.Mounts[len(run.Mounts)-1].HostPath)
	if err != nil || strings.TrimSpace(string(message)) != "died" {
		t.Errorf("termination message %q, %v", message, err)
	}
	if err := volumes.CleanupOrphans(nil); err == nil {
		t.Error("a pod in use was cleaned up")
	}
	if err := runtime.StopPodSandbox(ctx, sandboxID); err != nil {
		t.Fatal(err)
	}
	if err := volumes.WaitForUnmount(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if err := volumes.CleanupOrphans(nil); err != nil {
		t.Error(err)
	}
	if left := volumes.PodDirs(); len(left) > 0 {
		t.Errorf("folders are left: %v", left)
	}
}
