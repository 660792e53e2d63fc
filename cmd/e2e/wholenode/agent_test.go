//go:build e2e

package wholenode

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// unit has the agent look each two seconds, so that an incident of a minute has a story, and lets it use the CPU for
// that.
const unit = `[Service]
CPUQuota=
Environment="KDIAG_AGENT_ARGS=--interval 2s --rpc-timeout 2s --listen 127.0.0.1:%PORT --capture-stacks"
`

// transition is a command that fails until RuntimeHung has become a state.
const transition = `kdiag history -o json | tr -d ' \n' | grep -q '"to":"%s","cause":"RuntimeHung"'`

var lastRun = regexp.MustCompile(`(?m)^kdiag_last_run_timestamp_seconds (.*)`)

// runAgent runs the agent as its unit. containerd is frozen for some looks, and thawed; the node loses its power while
// the agent writes, and its disk tells the story.
func runAgent(t *testing.T, n e2etest.Node) {
	// What the tests before have left in the journal, such as a canary's attempts, would count for a minute.
	n.Sh(t, "journalctl --rotate --vacuum-size=1")
	shipped := e2etest.Read(t, "../../../deploy/systemd/kdiag-agent.service")
	n.Write(t, "etc/systemd/system/kdiag-agent.service", shipped)
	port := strconv.Itoa(e2etest.FreePort(t))
	n.Write(t, "etc/systemd/system/kdiag-agent.service.d/often.conf", strings.ReplaceAll(unit, "%PORT", port))
	n.Sh(t, "systemctl daemon-reload && systemctl enable --now kdiag-agent")
	n.Await(t, "systemctl status kdiag-agent | grep -E 'Status: \"(HEALTHY|DEGRADED)'")
	get := func(path string) string { // a box shares the network
		_, text, err := e2etest.Get(t.Context(), "http://127.0.0.1:"+port+path, "")
		e2etest.Must(t, err)
		return text
	}
	if report := get("/report"); strings.Contains(report, "not permitted") || strings.Contains(report, "permission") {
		t.Errorf("the unit forbids what the agent looks at:\n%s", report)
	}
	// The keys of the back-off are of systemd 254; older ones leave them out.
	for line := range strings.Lines(n.Sh(t, "systemd-analyze verify kdiag-agent.service 2>&1")) {
		if strings.Contains(line, "kdiag-agent") && !strings.Contains(line, "'Restart") &&
			!strings.Contains(line, "executable") { // as all files of the test are
			t.Error(line)
		}
	}

	hung := func() string { // calls of Version; none unless the box booted on a busy machine
		return regexp.MustCompile(`kdiag_rpc_hung_total\{method="Version"\} (\d+)|$`).FindStringSubmatch(get("/metrics"))[1]
	}
	before, _ := strconv.Atoi(hung())
	seconds, err := strconv.ParseFloat(lastRun.FindStringSubmatch(get("/metrics"))[1], 64)
	e2etest.Must(t, err)
	// The kubelet's last good relist, which dates the cause, may be this much before the last look (incident.tolerance).
	healthy := time.Unix(int64(seconds), 0).Add(-3 * time.Second)
	n.Sh(t, "kill -STOP $(pidof containerd)")
	n.Await(t, fmt.Sprintf(transition, "confirmed"))
	confirmed := time.Now()
	n.Await(t, "ls /var/lib/kdiag/captures/*-RuntimeHung.tar.zst")
	if metrics := get("/metrics"); !strings.Contains(metrics, `kdiag_status{status="unhealthy"} 1`) {
		t.Errorf("the metrics while containerd is frozen:\n%s", metrics)
	}
	n.Sh(t, "systemctl reload kdiag-agent")
	looks := map[string]bool{} // by their time
	e2etest.Eventually(t, "looks while containerd is frozen", func() bool {
		looks[lastRun.FindString(get("/metrics"))] = true
		return len(looks) == 5
	})
	if got := get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz after containerd was frozen for some looks, and a reload: %q", got)
	}
	// No two calls of one kind were sent while containerd could not answer.
	if now := hung(); now != strconv.Itoa(before+1) {
		t.Errorf("%q calls of Version hung, want one after %d", now, before)
	}

	n.Sh(t, "systemctl restart kdiag-agent") // which goes on with the incident
	if log := n.Sh(t, "journalctl -u kdiag-agent"); strings.Contains(log, "timed out") {
		t.Errorf("the agent did not end in time:\n%s", log)
	}
	thawed := time.Now().Truncate(time.Second)
	n.Sh(t, "kill -CONT $(pidof containerd)")
	n.Await(t, "systemctl status kdiag-agent | grep -E 'Status: \"(HEALTHY|DEGRADED)'")
	n.Await(t, fmt.Sprintf(transition, "clear"))
	cleared := time.Now()

	e2etest.Must(t, syscall.Kill(n.Box.Leader(), syscall.SIGKILL)) // a power cut
	o := e2etest.Kdiag(t.Context(), t, "history", "--root", n.Box.Root(), "--since", "24h", "-o", "json")
	h := e2etest.Decode[checks.History](t, o)
	var times []time.Time // of the onset and of the end
	for _, tr := range h.Transitions {
		if tr.Cause == "RuntimeHung" && (tr.To == checks.CauseClear) == (len(times) == 1) && len(times) < 2 {
			times = append(times, tr.At)
		}
	}
	if len(times) != 2 {
		t.Fatalf("no onset or no end in %s", o.Stdout)
	}
	if at := times[0]; at.Before(healthy) || at.After(confirmed) {
		t.Errorf("the onset is at %v; containerd was frozen after %v, which was seen by %v", at, healthy, confirmed)
	}
	if at := times[1]; at.Before(thawed) || at.After(cleared) {
		t.Errorf("the end is at %v; containerd was thawed at %v, which was seen by %v", at, thawed, cleared)
	}
	i := slices.IndexFunc(h.Captures, func(c checks.TakenCapture) bool {
		return strings.Contains(c.Path, "-RuntimeHung.")
	})
	if i < 0 {
		t.Fatalf("no capture: %s", o.Stdout)
	}
	archive := filepath.Join(n.Box.Root(), "var/lib/kdiag", recorder.CapturesDir, filepath.Base(h.Captures[i].Path))
	again := e2etest.Kdiag(t.Context(), t, "node", "--from", archive, "-o", "json")
	if got := e2etest.Codes(again.Report(t)); len(got) == 0 || got[0] != "RuntimeHung" {
		t.Errorf("the archive shows %v", got)
	}
}
