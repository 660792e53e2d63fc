//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A pod through a crash and the death of its sandbox, and volumes. How other pods fare is compared with a kubelet's
// record, in cmd/e2e/kubelet.
func TestEndToEndContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	n.cfg.Kubelet.ClusterDNS, n.cfg.Kubelet.ClusterDomain = []string{"192.0.2.53"}, "example.org"
	n.write(n.cfg.Objects, "settings", fmt.Appendf(nil, configMap, "green"))
	n.write(n.cfg.Objects, "password", []byte(secret))
	for _, p := range podsOf(t, "containers.yaml") {
		n.apply(p)
	}
	n.start()
	n.sub("life", n.checkLife)
	n.sub("volumes", n.checkVolumes)
}

// checkLife takes a pod through a crash, and through the death of its sandbox, in which everything begins again.
func (n *node) checkLife() {
	n.awaitReady("life")
	uid, ip := string(n.pod("life").UID), n.pod("life").Status.PodIP
	want := ip + "\tlife-" + e2eNode + "\nsearch shop.svc.example.org svc.example.org example.org\n" +
		"nameserver 192.0.2.53\noptions ndots:5\n"
	testkit.Equal(n.t, "hosts and resolv.conf", want,
		n.exec("life", "test -e /started && tail -1 /etc/hosts; cat /etc/resolv.conf"))
	logged := func(file, text string, times int) {
		n.t.Helper()
		n.await("the log "+file, func() error {
			files, _ := filepath.Glob(filepath.Join(n.cfg.LogDir, "pods", "*_"+uid, file))
			data, err := os.ReadFile(strings.Join(files, ""))
			if strings.Count(string(data), text) != times {
				return fmt.Errorf("%v holds %q, %w", files, data, err)
			}
			return nil
		})
	}
	logged("init/0.log", " stdout F init works\n", 1)
	logged("c/0.log", " stdout F hello from "+ip+"\n", 2) // its trap is set now
	restarted := func(times int32) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool { return containerOf(p).RestartCount >= times && isReady(p) }
	}
	e2etest.Must(n.t, n.cri.StopContainer(n.t.Context(), n.running("life")["c of "+uid], e2ePatience))
	p := n.awaitPod("the restart after a crash", "life", restarted(1))
	last := containerOf(p).LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || last.Message != "bye\n" {
		n.t.Errorf("the instance that crashed is %+v", last)
	}
	logged("c/1.log", " stdout F hello from "+ip+"\n", 2)

	labels := map[string]string{container.PodUIDLabel: uid}
	sandboxes, _ := n.list(n.t.Context(), labels)
	e2etest.Must(n.t, n.cri.StopPodSandbox(n.t.Context(), sandboxes[0].GetId()))
	// The runtime stops the container first, which may be started once more before its sandbox is seen as dead.
	p = n.awaitPod("the new sandbox", "life", restarted(2))
	sandboxes, _ = n.list(n.t.Context(), labels)
	second := func(s *runtimeapi.PodSandbox) bool { return s.GetMetadata().GetAttempt() == 1 }
	if !slices.ContainsFunc(sandboxes, second) || p.Status.InitContainerStatuses[0].RestartCount != 1 {
		n.t.Errorf("sandboxes %v, init containers %+v", sandboxes, p.Status.InitContainerStatuses)
	}
}

const (
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {colour: %s}\n"
	secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: password, namespace: shop}\nstringData: {key: s3cret}\n"
)

func (n *node) checkVolumes() {
	n.awaitReady("volumes")
	uid := string(n.pod("volumes").UID)
	read := func(script string) string { return strings.TrimSpace(n.exec("volumes", script)) }
	for script, want := range map[string]string{
		"cat /v/settings/colour":                                  "green",
		"cat /v/password/key; stat -Lc %a /v/password/key":        "s3cret400",
		"cat /v/info/labels":                                      `app="volumes"`,
		"grep -o '/v/memory tmpfs' /proc/mounts":                  "/v/memory tmpfs",
		"df -k /v/memory | tail -n 1 | tr -s ' ' | cut -d' ' -f2": "1024",
		"echo kept > /v/memory/file; cat /v/memory/file":          "kept",
	} {
		testkit.Equal(n.t, script, want, read(script))
	}
	n.write(n.cfg.Objects, "settings", fmt.Appendf(nil, configMap, "blue"))
	changed := func() bool { return read("cat /v/settings/colour") == "blue" }
	e2etest.Eventually(n.t, "the changed ConfigMap", changed)
	dir := filepath.Join(n.cfg.RootDir, "pods", uid, "volumes", "kubernetes.io~empty-dir", "memory", "file")
	if files, err := filepath.Glob(dir); err != nil || len(files) != 1 {
		n.t.Errorf("%s: %v, %v", dir, files, err)
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
