package kuberuntime

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"message": "I am done\n", "long": strings.Repeat("x", 5000) + "end"} {
		looptest.Write(t, filepath.Join(dir, name), text)
	}
	looptest.Must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666))
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
