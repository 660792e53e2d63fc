//go:build e2e

package containerd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

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
		if c.State != crictl.ContainerRunning {
			continue
		}
		st, call := n.client.ContainerStatus(t.Context(), c.ID)
		if !call.OK() {
			t.Fatalf("%+v", call)
		}
		all[c.ID] += " since " + st.StartedAt.String()
	}
	return all
}

// fill leaves what crash loops leave: pods with so many exited instances in a dead sandbox each; every other pod has
// come back since, with a new sandbox in which an instance runs. It returns the ids that must go.
func (n gcNode) fill(t *testing.T, prefix string, pods, exited int) (mustGo map[string]bool) {
	t.Helper()
	mustGo = map[string]bool{}
	made := e2etest.RunPods(t, n.Containerd, nodebox.Pods{
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

// emptySandboxes leaves pods whose first sandbox is dead and without containers, and must go.
func (n gcNode) emptySandboxes(t *testing.T, pods int, mustGo map[string]bool) {
	t.Helper()
	for _, pod := range e2etest.RunPods(t, n.Containerd, nodebox.Pods{Count: pods, Prefix: "empty", PodNetwork: true}) {
		e2etest.Must(t, n.cri.StopPodSandbox(t.Context(), pod.ID))
		mustGo[pod.ID] = true
		pod.Config.Metadata.Attempt = 1
		_, err := n.cri.RunPodSandbox(t.Context(), pod.Config, "")
		e2etest.Must(t, err)
	}
}

func (n gcNode) start(t *testing.T, args ...string) *e2etest.Process {
	t.Helper()
	all := append([]string{"gc-exited", "-o", "json", "--runtime-endpoint", n.Endpoint()}, args...)
	return e2etest.Start(t, nil, all...)
}

// checkLeft checks that exactly what must go has gone, and the rest is as it was.
func checkLeft(t *testing.T, before, after inventory, mustGo map[string]bool) {
	t.Helper()
	want := inventory{}
	for id, what := range before {
		if !mustGo[id] {
			want[id] = what
		}
	}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("what is left (-want +got):\n%.4000s", diff)
	}
}

// audited returns the ids that an audit file lists as removed. So many of its lines are cut short.
func audited(t *testing.T, name string, torn int) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	e2etest.Must(t, err)
	var ids []string
	for line := range bytes.Lines(text) {
		var r gc.AuditRecord
		if err := json.Unmarshal(line, &r); err != nil {
			if torn--; torn < 0 {
				t.Errorf("the audit file is torn: %q: %v", line, err)
			}
		}
		if r.Event == "removed" {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// A disturbance is a run that has something happen to it in its middle.
type disturbance struct {
	gcNode
	*e2etest.Process
	mustGo map[string]bool
	before inventory
	audit  string
}

// disturb starts a run of some 100 removals, slow enough to last for ten seconds or more on any machine, and waits
// until it is in its middle.
func (n gcNode) disturb(t *testing.T, name string, args ...string) *disturbance {
	t.Helper()
	d := &disturbance{gcNode: n, mustGo: n.fill(t, name, 5, 20), audit: filepath.Join(t.TempDir(), "audit.jsonl")}
	d.before = n.inventory(t)
	d.Process = n.start(t, append([]string{"--yes", "--audit", d.audit, "--rate", "10"}, args...)...)
	awaitAudited(t, d.audit, 10)
	return d
}

// gone counts what has gone since before the run.
func (d *disturbance) gone(t *testing.T) int {
	t.Helper()
	return len(d.before) - len(d.inventory(t))
}

// again runs the clean-up once more, which must finish it.
func (d *disturbance) again(t *testing.T) *render.GCReport {
	t.Helper()
	report, code := finish[render.GCReport](t, d.start(t, "--yes", "--audit", d.audit))
	if code != 0 || len(report.Failed) > 0 || report.Left > 0 {
		t.Errorf("exit code %d when run again, %+v", code, report.Result)
	}
	checkLeft(t, d.before, d.inventory(t), d.mustGo)
	return report
}

// awaitAudited waits until an audit file has so many lines.
func awaitAudited(t *testing.T, name string, lines int) {
	t.Helper()
	e2etest.Eventually(t, "the run to get on", func() bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Count(text, []byte("\n")) >= lines
	})
}

// podLogs is where a kubelet has logs, and kdiag looks for them.
const podLogs = "/var/log/pods"

// logFiles returns the names of the logs.
func logFiles(t *testing.T) map[string]bool {
	t.Helper()
	names, err := filepath.Glob(podLogs + "/*/*/*.log*")
	e2etest.Must(t, err)
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// TestEndToEndGC cleans up a real containerd, undisturbed and disturbed in every way that the run must survive.
func TestEndToEndGC(t *testing.T) {
	e2etest.Must(t, unix.Mount("tmpfs", "/var/log", "tmpfs", 0, ""))
	t.Cleanup(func() { e2etest.Must(t, unix.Unmount("/var/log", unix.MNT_DETACH)) })
	n := gcNode{startNode(t, nodebox.Options{Network: true, RootSize: 1 << 30})}
	t.Run("many exited", n.flood)
	t.Run("killed in the middle", n.killed)
	t.Run("interrupted in the middle", n.interrupted)
	t.Run("frozen in the middle", n.frozen)
	t.Run("restarted in the middle", n.restarted)
	t.Run("two at once", n.twice)
}

func (n gcNode) flood(t *testing.T) {
	mustGo := n.fill(t, "loop", 20, 15)
	n.emptySandboxes(t, 5, mustGo)
	ran := e2etest.RunPods(t, n.Containerd,
		nodebox.Pods{
			Count: 4, Containers: 1, Attempts: 4, State: crictl.ContainerExited, Prefix: "ran", LogDirectory: podLogs,
		})
	for _, pod := range ran {
		for _, c := range pod.Containers[:len(pod.Containers)-1] {
			mustGo[c.ID] = true
		}
	}
	before, logs := n.inventory(t), logFiles(t)
	for id := range mustGo {
		if st, call := n.client.ContainerStatus(t.Context(), id); call.OK() {
			delete(logs, st.LogPath)
		}
	}
	rotated := filepath.Join(ran[0].Config.LogDirectory, ran[0].Containers[0].Name, "0.log.20261124-101530")
	e2etest.Must(t, os.WriteFile(rotated, make([]byte, 4096), 0o600))

	report, code := finish[render.GCReport](t, n.start(t, "--yes"))
	checkLeft(t, before, n.inventory(t), mustGo)
	if code != 0 || report.Removed != len(mustGo) || len(report.Failed)+len(report.Skipped) > 0 || report.DryRun {
		t.Errorf("exit code %d, want %d removed: %+v", code, len(mustGo), report.Result)
	}
	if diff := cmp.Diff(logs, logFiles(t)); diff != "" || len(logs) < 4 {
		t.Errorf("logs that are left (-want +got):\n%.2000s", diff)
	}
	if report.LogFiles < 4*3+1 || report.LogBytes < 4096 || report.LogBytes != report.Plan.LogBytes {
		t.Errorf("%d logs removed, %d bytes of %d", report.LogFiles, report.LogBytes, report.Plan.LogBytes)
	}
	again, code := finish[render.GCReport](t, n.start(t, "--yes"))
	if code != 0 || len(again.Plan.Remove) != 0 {
		t.Errorf("exit code %d, a second run plans %d", code, len(again.Plan.Remove))
	}
}

func (n gcNode) killed(t *testing.T) {
	d := n.disturb(t, "killed")
	e2etest.Must(t, d.Process.Process.Kill())
	if o := d.Wait(); o.Stdout != "" {
		t.Errorf("it was killed and printed %q", o.Stdout)
	}
	if gone := d.gone(t); gone == 0 || gone == len(d.mustGo) {
		t.Fatalf("%d have gone: it was not killed in the middle", gone)
	}
	info, err := os.Stat(d.audit)
	e2etest.Must(t, err)
	e2etest.Must(t, os.Truncate(d.audit, info.Size()-7)) // a line that was being written
	if report := d.again(t); report.Removed >= len(d.mustGo) {
		t.Errorf("%d removed", report.Removed)
	}
	seen := map[string]bool{}
	for _, id := range audited(t, d.audit, 1) {
		if seen[id] || !d.mustGo[id] {
			t.Errorf("%s was removed twice, or must not go", id)
		}
		seen[id] = true
	}
}

func (n gcNode) interrupted(t *testing.T) {
	d := n.disturb(t, "interrupted")
	e2etest.Must(t, d.Process.Process.Signal(syscall.SIGINT))
	report, code := finish[render.GCReport](t, d.Process)
	gone, inFile := d.gone(t), len(audited(t, d.audit, 0))
	if code != 2 || report.Stopped != "interrupted" || report.Removed != gone || report.Left == 0 || inFile != gone {
		t.Errorf("exit code %d, stopped %q, %d removed of %d gone, %d left, %d in the audit file",
			code, report.Stopped, report.Removed, gone, report.Left, inFile)
	}
	d.again(t)
}

func (n gcNode) frozen(t *testing.T) {
	d := n.disturb(t, "frozen", "--timeout", "15s", "--rpc-timeout", "2s")
	e2etest.Must(t, n.Pause(t.Context()))
	o := d.Wait()
	report := e2etest.Decode[render.GCReport](t, o)
	e2etest.Must(t, n.Resume())
	if o.Code != 1 || report.Pauses == 0 || report.Stopped != "the deadline was reached" || report.Left == 0 {
		t.Errorf("exit code %d, %d pauses, stopped %q, %d left", o.Code, report.Pauses, report.Stopped, report.Left)
	}
	gone := d.gone(t) // what was asked for before the freeze may be done later
	if report.Removed == 0 || report.Removed > gone || gone > report.Removed+len(report.Failed) {
		t.Errorf("%d claimed and %d not known, %d have gone", report.Removed, len(report.Failed), gone)
	}
	if !strings.Contains(o.Stderr, "paused: the runtime does not answer") {
		t.Errorf("stderr %q", o.Stderr)
	}
	d.again(t)
}

func (n gcNode) restarted(t *testing.T) {
	d := n.disturb(t, "restarted")
	e2etest.Must(t, n.Kill(t.Context()))
	e2etest.Must(t, n.Restart(t.Context()))
	report, code := finish[render.GCReport](t, d.Process)
	if code != 0 || report.Pauses == 0 || len(report.Failed) > 0 {
		t.Errorf("exit code %d, %d pauses, failed %v", code, report.Pauses, report.Failed)
	}
	checkLeft(t, d.before, d.inventory(t), d.mustGo)
}

func (n gcNode) twice(t *testing.T) {
	n.fill(t, "twice", 4, 40)
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	r := n.start(t, "--yes", "--rate", "5", "--audit", audit)
	awaitAudited(t, audit, 1)
	second := e2etest.Kdiag(t.Context(), t, "gc-exited", "--yes", "--runtime-endpoint", n.Endpoint())
	if second.Code != 2 || !strings.Contains(second.Stderr, "another run removes from this runtime already") {
		t.Errorf("exit code %d: %s", second.Code, second.Stderr)
	}
	e2etest.Must(t, r.Process.Signal(syscall.SIGINT))
	r.Wait()
}
