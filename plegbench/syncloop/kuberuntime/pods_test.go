package kuberuntime

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestGetPods(t *testing.T) {
	r := newHarness(t)
	unowned, others := map[string]string{container.PodUIDLabel: "u3"}, owned("u4", "other-node")
	others[container.OwnerLabel] = "node-b"
	r.addSandbox("s2", "u1", ready).Metadata.Attempt = 1
	r.addSandbox("s1", "u1", ready) // created later, but of an older attempt
	r.addSandbox("s3", "u2", ready)
	r.addSandbox("x1", "u3", ready).Labels = unowned
	r.addSandbox("x2", "u4", ready).Labels = others
	r.addContainer("c1", "s1", exited, 10, owned("u1", "u1"))
	r.addContainer("c3", "s2", running, 20, owned("u1", "u1"))
	r.addContainer("c2", "s2", running, 20, owned("u1", "u1"))
	r.addContainer("c9", "gone", running, 20, owned("u9", "u9"))
	r.addContainer("x3", "x1", running, 20, unowned)

	// get returns the pods in one line each.
	get := func(all bool) []string {
		pods, err := r.GetPods(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range pods {
			line := p.FullName() + ":"
			for _, s := range p.Sandboxes {
				line += " " + s.ID.ID
			}
			for _, s := range p.Containers {
				line += fmt.Sprintf(" %s(%s)", s.ID.ID, s.SandboxID)
			}
			out = append(out, line)
		}
		return out
	}
	const live, second, orphan = "u1_shop: s2 s1 c3(s2) c2(s2)", "u2_shop: s3", "u9_shop: c9(gone)"
	looptest.Equal(t, "all", []string{live + " c1(s1)", second, orphan}, get(true))
	looptest.Equal(t, "running", []string{live, second, orphan}, get(false))
	looptest.Equal(t, "foreign pods", 2, r.Foreign())
	if one, err := r.GetPod(t.Context(), "u2"); err != nil || one.Name != "u2" {
		t.Errorf("one pod: %+v, %v", one, err)
	}
	for _, uid := range []types.UID{"u3", "u4", "u5"} {
		if _, err := r.GetPod(t.Context(), uid); !errors.Is(err, ErrPodNotFound) {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
	r.cri.took()
	r.cri.fail["ListPodSandbox"] = errors.New("hung")
	if _, err := r.GetPods(t.Context(), true); err == nil || err.Error() != "hung" {
		t.Errorf("error %v", err)
	}
	looptest.Equal(t, "calls after a failed list", []string{"ListPodSandbox"}, r.cri.took())
}

func TestGetPodStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t)
		var log looptest.Log
		r.Log = log.Logger(0)
		p := testPod("a")
		r.running(t, p)
		listed, err := r.GetPod(t.Context(), p.UID)
		if err != nil {
			t.Fatal(err)
		}
		listed.Sandboxes = append(listed.Sandboxes, &container.Container{ID: r.id("gone")})
		listed.Containers = append(listed.Containers, &container.Container{ID: r.id("gone")})
		r.cri.took()
		st, err := r.GetPodStatus(t.Context(), listed)
		if err != nil || len(st.ContainerStatuses) != 1 || len(st.SandboxStatuses) != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		looptest.Equal(t, "calls", []string{
			"PodSandboxStatus sb1", "PodSandboxStatus gone", "ContainerStatus a", "ContainerStatus gone",
		}, r.cri.took())
		a := st.Find("a")
		if !st.TimeStamp.Equal(time.Now()) || a.SandboxID != "sb1" || a.State != container.Running {
			t.Errorf("status %+v", st)
		}
		r.cri.fail["ContainerStatus a"] = errors.New("hung")
		for range 70 {
			if _, err := r.GetPodStatus(t.Context(), listed); err == nil {
				t.Fatal("no error")
			}
			time.Sleep(time.Second)
		}
		looptest.Equal(t, "lines about the error in 70 s", 2, len(log.Lines("getPodContainerStatuses for pod failed")))
		r.cri.fail["PodSandboxStatus"] = errors.New("hung")
		if _, err := r.GetPodStatus(t.Context(), listed); err == nil {
			t.Error("a sandbox without status is no error")
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"message": "I am done\n", "long": strings.Repeat("x", 5000) + "end"} {
		looptest.Write(t, filepath.Join(dir, name), text)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
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
		looptest.Equal(t, tt.file, tt.want, got.Message)
	}
}
