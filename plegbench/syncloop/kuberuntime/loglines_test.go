package kuberuntime

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2/textlogger"
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
	r.SyncPod(t.Context(), p, r.now(t, p))
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
	r.SyncPod(t.Context(), p, st)
	same(t, "of waiting for an image", []string(nil), lines())
}
