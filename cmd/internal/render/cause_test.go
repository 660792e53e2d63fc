package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench"
)

func TestProcessesOfOneName(t *testing.T) {
	process := func(pid int, id, uid string) checks.Subject {
		return checks.Subject{
			Kind: "Process", ID: id, Name: "runc:[2:INIT]", Namespace: "shop", Pod: "web", PodUID: uid,
			Processes: []checks.Process{{PID: pid, Name: "runc:[2:INIT]", State: "stopped", Age: "1m29s"}},
		}
	}
	r := &checks.Report{Status: checks.Unhealthy, Causes: []checks.Cause{{
		Code: "TaskStuck", Severity: checks.Critical, Summary: "tasks are stuck", Subject: new(process(11, "11", "u")),
		Related: []checks.Subject{process(12, "12", "u"), process(13, "13", "u"), process(14, "14", "other"), {Kind: "Process", ID: "15", Name: "sleep"}},
	}}}
	var b bytes.Buffer
	if err := Report(&b, r, Options{Width: 120, ASCII: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"also process runc:[2:INIT] of shop/web, pids 12, 13, pod uid u\n", "also process runc:[2:INIT] of shop/web, pid 14, pod uid other\n",
		"also process sleep, pid 15\n", "pid 11  age 1m29s  stopped",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}

func TestForecastWithoutLists(t *testing.T) {
	r := &checks.RelistBenchmark{Status: checks.Unhealthy, Relist: &plegbench.Summary{ThresholdSeconds: 180, ResponseLimitBytes: 16 << 20, List: &plegbench.ListSummary{Samples: 1, Errors: 1}}}
	print := func() string {
		var b bytes.Buffer
		if err := RelistBenchmark(&b, r, nil, Options{Width: 80}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := print(); strings.Contains(got, "not growing") || strings.Contains(got, "At today's growth") {
		t.Errorf("a growth is claimed of lists that never came:\n%s", got)
	}
	r.Relist.List.P50Seconds = new(0.01)
	if got := print(); !strings.Contains(got, "not growing towards 16 MiB") {
		t.Errorf("no forecast:\n%s", got)
	}
}

func TestWhyACanaryFailedInOneLine(t *testing.T) {
	r := &checks.CanaryReport{Header: checks.Header{Host: "node-a"}, Status: checks.Unhealthy, Summary: "RunPodSandbox failed after 12 ms: Unknown: failed to create sandbox: mkdir /run/containerd/io.containerd.grpc.v1.cri/sandboxes/392bbd: read-only file system"}
	var b bytes.Buffer
	if err := Canary(&b, r, Options{Format: Brief}); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(b.String()); len(got) > 80 || !strings.HasPrefix(got, "UNHEALTHY node-a RunPodSandbox") || !strings.HasSuffix(got, "read-only file system") {
		t.Errorf("%q", got)
	}
}
