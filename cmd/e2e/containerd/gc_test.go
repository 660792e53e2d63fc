//go:build e2e

package containerd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

// podLogs is where a kubelet has logs, and kdiag looks for them.
const podLogs = "/var/log/pods"

// A gcNode is a node on which things have exited.
type gcNode struct{ *node }

// inventory is what a runtime holds: containers and sandboxes by id, with what must not change.
type inventory map[string]string

func (n gcNode) inventory(t *testing.T) inventory {
	t.Helper()
	all := inventory{}
	sandboxes := n.client.ListPodSandbox(t.Context(), crictl.Filter{}, "")
	containers := n.client.ListContainers(t.Context(), crictl.Filter{}, "")
	if !sandboxes.Complete || !containers.Complete {
		t.Fatalf("listing: %+v %+v", sandboxes.Calls, containers.Calls)
	}
	for _, s := range sandboxes.Sandboxes {
		all[s.ID] = "sandbox " + s.State.String()
	}
	for _, c := range containers.Containers {
		all[c.ID] = "container " + c.State.String()
		if c.State == crictl.ContainerRunning {
			st, call := n.client.ContainerStatus(t.Context(), c.ID)
			all[c.ID] += " since " + st.StartedAt.String() + call.Err
		}
	}
	return all
}

// fill leaves what crash loops leave: pods with so many exited instances in a dead sandbox each; every other pod has
// come back since, with a new sandbox in which an instance runs. It returns the ids that must go.
func (n gcNode) fill(t *testing.T, prefix string, pods, exited int) (mustGo map[string]bool) {
	t.Helper()
	mustGo = map[string]bool{}
	made := n.RunPods(t, nodebox.Pods{
		Count: pods, Containers: 1, Attempts: exited, State: crictl.ContainerExited, NeverRan: true, Prefix: prefix,
		LogDirectory: podLogs,
	})
	for i, pod := range made {
		last := len(pod.Containers) - 1
		for _, c := range pod.Containers[:last] {
			mustGo[c.ID] = true
		}
		if i%2 == 1 {
			continue
		}
		pod.Config.Metadata.Attempt = 1
		sandbox, err := n.cri.RunPodSandbox(t.Context(), pod.Config, "")
		e2etest.Must(t, err)
		config := pod.Containers[last].Config
		config.Metadata.Attempt++
		config.Command = []string{"/bin/sleep", "2147483647"}
		id, err := n.cri.CreateContainer(t.Context(), sandbox, config, pod.Config)
		e2etest.Must(t, err)
		e2etest.Must(t, n.cri.StartContainer(t.Context(), id))
	}
	return mustGo
}

func (n gcNode) start(t *testing.T, args ...string) *e2etest.Process {
	t.Helper()
	args = append([]string{"gc-exited", "--yes", "-o", "json", "--runtime-endpoint", n.Endpoint()}, args...)
	return e2etest.Start(t, nil, args...)
}

// checkLeft checks that exactly what must go has gone, and the rest is as it was.
func checkLeft(t *testing.T, before, after inventory, mustGo map[string]bool) {
	t.Helper()
	for id := range mustGo {
		delete(before, id)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what is left (-want +got):\n%.4000s", diff)
	}
}

// A disturbance is a run that has something happen to it in its middle.
type disturbance struct {
	*e2etest.Process
	mustGo map[string]bool
	before inventory
	audit  string
}

// disturb starts a run of some 100 removals, slow enough to last for ten seconds or more on any machine, and waits
// until it is in its middle.
func (n gcNode) disturb(t *testing.T, name string) *disturbance {
	t.Helper()
	d := &disturbance{mustGo: n.fill(t, name, 5, 20), audit: filepath.Join(t.TempDir(), "audit.jsonl")}
	d.before = n.inventory(t)
	d.Process = n.start(t, "--audit", d.audit, "--rate", "10")
	e2etest.Eventually(t, "the run to get on", func() bool {
		text, err := os.ReadFile(d.audit)
		return err == nil && bytes.Count(text, []byte("\n")) >= 10
	})
	return d
}

// TestEndToEndGC cleans up a real containerd, undisturbed and disturbed in ways that the run must survive.
func TestEndToEndGC(t *testing.T) {
	e2etest.Must(t, unix.Mount("tmpfs", "/var/log", "tmpfs", 0, ""))
	t.Cleanup(func() { e2etest.Must(t, unix.Unmount("/var/log", unix.MNT_DETACH)) })
	n := gcNode{startNode(t)}
	t.Run("many exited", n.flood)
	t.Run("killed in the middle", n.killed)
	t.Run("restarted in the middle", n.restarted)
	t.Run("a list that is too large", func(t *testing.T) {
		n.MakeLargeList(t, crictl.DefaultMessageLimit)
		if r := n.pleg(t, "ListTooLarge"); *r.Relist.ResponseBytes <= crictl.DefaultMessageLimit {
			t.Errorf("%+v, %d bytes", r.Relist.Containers, *r.Relist.ResponseBytes)
		}
	})
}

// pleg wants a cause of kdiag pleg.
func (n gcNode) pleg(t *testing.T, cause string) *checks.Report {
	t.Helper()
	r := e2etest.Kdiag(t.Context(), t, "pleg", "-o", "json", "--runtime-endpoint", n.Endpoint(), "--exited-warning",
		"200").Report(t)
	if !slices.Contains(e2etest.Codes(r), cause) {
		t.Errorf("causes %v, want %s", e2etest.Codes(r), cause)
	}
	return r
}

func (n gcNode) flood(t *testing.T) {
	mustGo := n.fill(t, "loop", 20, 15)
	for _, pod := range n.RunPods(t, nodebox.Pods{Count: 5, Prefix: "empty", PodNetwork: true}) {
		e2etest.Must(t, n.cri.StopPodSandbox(t.Context(), pod.ID))
		mustGo[pod.ID] = true // there is a new one
		pod.Config.Metadata.Attempt = 1
		_, err := n.cri.RunPodSandbox(t.Context(), pod.Config, "")
		e2etest.Must(t, err)
	}
	for _, pod := range n.RunPods(t, nodebox.Pods{
		Count: 4, Containers: 1, Attempts: 4, State: crictl.ContainerExited, Prefix: "ran", LogDirectory: podLogs,
	}) {
		for _, c := range pod.Containers[:3] {
			mustGo[c.ID] = true
		}
		rotated := filepath.Join(pod.Config.LogDirectory, "c0", "0.log.20261124-101530")
		e2etest.Must(t, os.WriteFile(rotated, make([]byte, 4096), 0o600))
	}
	logFiles := func() []string {
		names, err := filepath.Glob(podLogs + "/*/*/*.log*")
		e2etest.Must(t, err)
		return names
	}
	before := n.inventory(t)
	logs := slices.DeleteFunc(logFiles(), func(name string) bool { return strings.Contains(name, ".log.") })
	for id := range mustGo {
		if st, call := n.client.ContainerStatus(t.Context(), id); call.OK() {
			logs = slices.DeleteFunc(logs, func(name string) bool { return name == st.LogPath })
		}
	}
	if r := n.pleg(t, "TooManyExited"); r.Relist.Containers.Exited != 20*15+4*4 {
		t.Errorf("%+v", r.Relist.Containers)
	}

	report, code := finish[render.GCReport](t, n.start(t))
	checkLeft(t, before, n.inventory(t), mustGo)
	if code != 0 || report.Removed != len(mustGo) || len(report.Failed)+len(report.Skipped) > 0 || report.DryRun {
		t.Errorf("exit code %d, want %d removed: %+v", code, len(mustGo), report.Result)
	}
	if diff := cmp.Diff(logs, logFiles()); diff != "" || len(logs) < 4 {
		t.Errorf("logs that are left (-want +got):\n%.2000s", diff)
	}
	if report.LogFiles < 4*3+4 || report.LogBytes < 4*4096 || report.LogBytes != report.Plan.LogBytes {
		t.Errorf("%d logs removed, %d bytes of %d", report.LogFiles, report.LogBytes, report.Plan.LogBytes)
	}
}

func (n gcNode) killed(t *testing.T) {
	d := n.disturb(t, "killed")
	second := e2etest.Kdiag(t.Context(), t, "gc-exited", "--yes", "--runtime-endpoint", n.Endpoint())
	if second.Code != 2 || !strings.Contains(second.Stderr, "another run removes from this runtime already") {
		t.Errorf("two at once: exit code %d: %s", second.Code, second.Stderr)
	}
	e2etest.Must(t, d.Process.Process.Kill())
	if o := d.Wait(); o.Stdout != "" {
		t.Errorf("it was killed and printed %q", o.Stdout)
	}
	info, err := os.Stat(d.audit)
	e2etest.Must(t, err)
	e2etest.Must(t, os.Truncate(d.audit, info.Size()-7)) // a line that was being written
	gone := len(d.before) - len(n.inventory(t))
	report, code := finish[render.GCReport](t, n.start(t, "--audit", d.audit)) // which finishes it
	if code != 0 || len(report.Failed) > 0 || report.Left > 0 || gone == 0 || gone == len(d.mustGo) {
		t.Errorf("%d had gone; exit code %d when run again, %+v", gone, code, report.Result)
	}
	checkLeft(t, d.before, n.inventory(t), d.mustGo)
	torn := 0
	for line := range strings.Lines(e2etest.Read(t, d.audit)) {
		var r gc.AuditRecord
		if json.Unmarshal([]byte(line), &r) != nil {
			torn++
		} else if r.Event == "removed" {
			if !d.mustGo[r.ID] {
				t.Errorf("%s was removed twice, or must not go", r.ID)
			}
			delete(d.mustGo, r.ID)
		}
	}
	if torn > 1 {
		t.Errorf("%d lines of the audit file are torn", torn)
	}
}

func (n gcNode) restarted(t *testing.T) {
	d := n.disturb(t, "restarted")
	e2etest.Must(t, n.Kill(t.Context()))
	e2etest.Must(t, n.Restart(t.Context()))
	report, code := finish[render.GCReport](t, d.Process)
	if code != 0 || report.Pauses == 0 || len(report.Failed) > 0 {
		t.Errorf("exit code %d, %d pauses, failed %v", code, report.Pauses, report.Failed)
	}
	checkLeft(t, d.before, n.inventory(t), d.mustGo)
}
