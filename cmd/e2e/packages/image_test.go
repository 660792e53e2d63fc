//go:build e2e

package packages

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// TestEndToEndImage builds the image and has the kubelet of a whole node run it as the pod of the DaemonSet, but for
// the API server, which the node has none of. The agent in it must see the host: runtime, kubelet, processes, journal.
func TestEndToEndImage(t *testing.T) {
	n := e2etest.BootNode(t)
	dir := t.TempDir()
	program := e2etest.Read(t, e2etest.Program(t))
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "kdiag"), []byte(program), 0o755))
	archive := filepath.Join(dir, "image.tar")
	build := exec.CommandContext(t.Context(), "buildah", "--root", filepath.Join(dir, "root"),
		"--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs", "build", "--isolation", "chroot",
		"-f", "deploy/image/Containerfile", "-t", "oci-archive:"+archive+":docker.io/local/kdiag:test", dir)
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	e2etest.Must(t, n.Box.CopyIn(archive, "/image.tar"))
	n.Sh(t, "ctr -n k8s.io images import /image.tar && rm /image.tar")

	text := e2etest.Read(t, "../../../deploy/kubernetes/daemonset.yaml")
	var set struct {
		Spec struct{ Template v1.PodTemplateSpec }
	}
	e2etest.Must(t, yaml.Unmarshal([]byte(text), &set))
	port := e2etest.FreePort(t)
	pod := v1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "kdiag", "kdiag"
	pod.Spec.ServiceAccountName = "" // a static pod has none
	c := &pod.Spec.Containers[0]
	c.Image, c.Ports[0].ContainerPort = "docker.io/local/kdiag:test", int32(port)
	c.Args = slices.DeleteFunc(c.Args, func(a string) bool {
		return a == "--publish" || strings.HasPrefix(a, "--listen")
	})
	c.Args = append(c.Args, fmt.Sprintf("--listen=:%d", port))
	manifest, err := yaml.Marshal(pod)
	e2etest.Must(t, err)
	n.Write(t, "etc/kubernetes/manifests/kdiag.yaml", string(manifest))

	report := fmt.Sprintf("bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; "+
		"printf \"GET /report HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3' | grep -A9999 '^{'", port)
	n.Await(t, report)
	var r checks.Report
	e2etest.Must(t, json.Unmarshal([]byte(n.Sh(t, report)), &r))
	if r.Runtime.Name != "containerd" || r.Relist == nil || r.Status == checks.Unknown {
		t.Errorf("the agent in the pod found %s, %+v", r.Status, r.Runtime)
	}
	for _, c := range r.Checks {
		if slices.Contains([]string{
			"host.mounts", "host.tasks", "host.shims", "systemd.units", "runtime.unit", "kubelet.unit", "kubelet.healthz",
			"journal.kubelet",
		}, c.ID) &&
			(c.Status == checks.StatusUnknown || c.Status == checks.StatusSkipped) {
			t.Errorf("%s: %s: %s", c.ID, c.Status, c.Summary)
		}
	}
	n.Sh(t, "kdiag history --since -1h >/dev/null || test $? = 1") // the records are on the host
}
