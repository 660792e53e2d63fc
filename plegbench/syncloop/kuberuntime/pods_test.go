package kuberuntime

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

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
