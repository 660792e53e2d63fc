package render

import (
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
)

// canaries are documents of kdiag canary: one that went well, one that left something, and one that was not begun.
func canaries() map[string]*checks.CanaryReport {
	head := checks.Header{
		APIVersion: checks.APIVersion, Kind: checks.KindCanaryReport, Host: "worker-17", KdiagVersion: "v1.0.0",
		GeneratedAt: time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC),
	}
	runtime := checks.Runtime{
		Endpoint: "unix:///run/containerd/containerd.sock", EndpointSource: "kubelet", EndpointReason: "the running kubelet uses it",
		Name: "containerd", Version: "v2.1.4", APIVersion: "v1",
	}
	step := func(name string, seconds float64) checks.CanaryStep {
		return checks.CanaryStep{Name: name, Seconds: seconds, Status: checks.StatusOK}
	}
	const id = "5f0e1d2c3b4a59687786958473625140f1e2d3c4b5a69788796a5b4c3d2e1f00"
	hung := step("StopPodSandbox", 9.8)
	hung.Status, hung.Error = checks.StatusCritical, "no answer within 9.78s"
	slow := step("CreateContainer", 6.2)
	slow.Status = checks.StatusWarning
	return map[string]*checks.CanaryReport{
		"canary-healthy": {
			Header: head, Runtime: runtime, Status: checks.Healthy, Summary: "a new sandbox and container went through their whole life",
			Network: "host", Image: "registry.k8s.io/pause:3.10", SandboxID: id, Attempts: 1, Seconds: 0.5131, CleanedUp: true,
			Steps: []checks.CanaryStep{
				step("Version", 0.0004), step("ListImages", 0.0012), step("RunPodSandbox", 0.231), step("CreateContainer", 0.041),
				step("StartContainer", 0.062),
				{Name: "ExecSync", Status: checks.StatusSkipped, Skipped: "the image holds nothing to execute"},
				step("ListContainerStats", 0.0032), step("StopContainer", 0.034), step("RemoveContainer", 0.021),
				step("StopPodSandbox", 0.083), step("RemovePodSandbox", 0.036),
			},
			Earlier: []string{"a"}, NextSteps: []checks.NextStep{},
		},
		"canary-left": {
			Header: head, Runtime: runtime, Status: checks.Unhealthy, Summary: "StopPodSandbox did not answer in 9.8 s",
			Network: "cni", Image: "docker.io/library/busybox:1", SandboxID: id, Attempts: 2, Seconds: 16.4, Left: []string{id},
			Steps: []checks.CanaryStep{step("RunPodSandbox", 0.4), slow, hung},
			NextSteps: []checks.NextStep{{
				Why:     "Removes what is left of the canary, once the runtime answers again.",
				Command: "crictl -r unix:///run/containerd/containerd.sock -t 60s rmp -f " + id, Touches: checks.TouchesPod,
			}},
			Problems: []string{"1 earlier attempt had its sandbox stopped by something else: a running kubelet stops pods that it does not know every 2 s"},
		},
		"canary-none": {
			Header: head, Status: checks.Unknown, Summary: "no runtime socket was found; name one with --runtime-endpoint",
			Network: "host", Steps: []checks.CanaryStep{}, CleanedUp: true, NextSteps: []checks.NextStep{},
			Problems: []string{"there is no such file: /run/containerd/containerd.sock, /run/crio/crio.sock"},
		},
	}
}

func TestCanaryGoldens(t *testing.T) {
	for name, r := range canaries() {
		for _, view := range []struct {
			name string
			o    Options
		}{
			{"text.txt", Options{}},
			{"ascii.txt", Options{ASCII: true, Width: 60}},
			{"json.json", Options{Format: JSON}},
			{"brief.txt", Options{Format: Brief}},
		} {
			var b strings.Builder
			if err := Canary(&b, r, view.o); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+view.name, b.String())
		}
	}
}

func TestCanaryBriefFits(t *testing.T) {
	r := canaries()["canary-left"]
	r.Host, r.Summary = strings.Repeat("long-", 30), strings.Repeat("what\x1b[31m ", 200)
	var b strings.Builder
	if err := Canary(&b, r, Options{Format: Brief}); err != nil {
		t.Fatal(err)
	}
	if line := b.String(); len(line) > BriefWidth+1 || !strings.HasPrefix(line, "UNHEALTHY ") || strings.Contains(line, "\x1b") {
		t.Errorf("%q", line)
	}
}
