package kuberuntime

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// logged returns the lines that a rig logs, from then on, without their headers.
func logged(r *rig) func() []string {
	var out bytes.Buffer
	r.Log = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out), textlogger.Verbosity(2)))
	return func() []string {
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(line, "] ")
			lines = append(lines, line[:1]+" "+strings.TrimSpace(text))
		}
		out.Reset()
		return lines
	}
}

func TestLogLines(t *testing.T) {
	r := newRig(t)
	lines := logged(r)
	p := testPod("main")
	r.cri.fail["StartContainer"] = errors.New("no")
	r.SyncPod(t.Context(), p, r.now(t, p), nil)
	same(t, "of a container that does not start", []string{
		`I "No sandbox for pod can be found. Need to start a new one" pod="shop/web"`,
		`E "Unhandled Error" err="container main start failed in pod web_shop(uid-1): RunContainerError: no" logger="UnhandledError"`,
	}, lines())
	delete(r.cri.fail, "StartContainer")
	live := r.running(t, p)
	lines()
	r.cri.fail["StopContainer"], r.cri.fail["StopPodSandbox"] = errors.New("stuck"), errors.New("no CNI")
	r.KillPod(t.Context(), p, live, nil)
	about := `pod="shop/web" podUID="uid-1" containerName="main" containerID="fake://c3" gracePeriod=30`
	same(t, "of a kill that fails", []string{
		`I "Killing container with a grace period" ` + about,
		`E "Container termination failed with gracePeriod" err="stuck" ` + about,
		`E "Kill container failed" err="stuck" pod="shop/web" podUID="uid-1" containerName="main" containerID={"Type":"fake","ID":"c3"}`,
		`E "Failed to stop sandbox" podSandboxID={"Type":"fake","ID":"sb1"}`,
	}, lines())
	r.images.reason = errors.New("ImagePullBackOff")
	st := r.now(t, p)
	st.ContainerStatuses = nil
	r.SyncPod(t.Context(), p, st, nil)
	same(t, "of waiting for an image", []string(nil), lines())
}

func FuzzRestoreSpec(f *testing.F) {
	f.Add("30", "5", `{"exec":{"command":["a"]}}`, `[{"containerPort":80}]`, "ff")
	f.Add("", "-1", "null", "{}", "-")
	f.Add("99999999999999999999", "x", "[", `[{"containerPort":"80"}]`, "ffffffffffffffffffff")
	f.Fuzz(func(t *testing.T, termination, deletion, preStop, ports, hash string) {
		s := &runtimeapi.ContainerStatus{Annotations: map[string]string{
			container.TerminationGracePeriodAnnotation: termination, container.DeletionGracePeriodAnnotation: deletion,
			container.PreStopHandlerAnnotation: preStop, container.PortsAnnotation: ports, container.HashAnnotation: hash,
		}}
		pod, c := restoreSpec(s)
		if pod == nil || c == nil || graceOf(pod, c, reasonUnknown) != graceOf(pod, c, reasonLivenessProbe) {
			t.Errorf("pod %+v, container %+v", pod, c)
		}
		if number(s.Annotations, container.HashAnnotation, 16) > 1<<63-1 {
			t.Error("a hash of more than 63 bits")
		}
	})
}
