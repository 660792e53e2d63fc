//go:build e2e

package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
)

const deploy = "../../deploy/prometheus/"

// promtool runs a check of promtool and wants it to find nothing.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("kdiag_")) {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestEndToEndPromtool(t *testing.T) {
	m := NewMetrics("v1.2.3", false)
	look(t, m, sick)
	promtool(t, scrape(t, m, "text/plain"), "check", "metrics")
	promtool(t, "", "check", "rules", deploy+"rules.yaml")
	promtool(t, "", "test", "rules", deploy+"rules_test.yaml")
}

// TestEndToEndNodeExporter has a real node_exporter read the textfile, and wants each sample to come out again.
func TestEndToEndNodeExporter(t *testing.T) {
	m, dir := NewMetrics("v1.2.3", false), t.TempDir()
	look(t, m, sick)
	must(t, m.WriteTextfile(dir))
	text := testkit.Read(t, dir+"/kdiag.prom")
	exporter := nodebox.StartServer(t, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
		"--collector.textfile.directory="+dir)
	exporter.Await(t, "/metrics", func(page string) bool {
		return strings.Contains(page, "node_textfile_scrape_error 0\n") && strings.Contains(page, text)
	})
}

// sickAgent serves the metrics of a sick node, which is looked at with each scrape, and returns its address.
func sickAgent(t *testing.T, compact bool) string {
	m := NewMetrics("v1.2.3", compact)
	served, looks, looking := m.Handler(), int64(0), sync.Mutex{}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		looking.Lock()
		defer looking.Unlock()
		looks++
		in := look(t, m, sick, func(in *facts.Input) {
			in.Measurement.Interrupted = "the time was up"
			in.Journal = &journal.Report{Signatures: []journal.Count{{Code: "PLEGNotHealthy", Count: looks}}}
		})
		m.Call(in.Measurement.Probes[0])
		m.Call(crictl.Call{Method: "ContainerStatus", Code: crictl.DeadlineExceeded})
		m.Captured("InspectHang")
		served.ServeHTTP(w, r)
	}))
	t.Cleanup(agent.Close)
	return agent.Listener.Addr().String()
}

// TestEndToEndPrometheus has a real Prometheus scrape a sick node, with the alerts, and runs every query of the
// dashboards: those of a fleet on compact metrics.
func TestEndToEndPrometheus(t *testing.T) {
	rules, target := deploy+"rules.yaml", sickAgent(t, false)
	p := nodebox.StartPrometheus(t, rules, target)
	native := nodebox.StartPrometheus(t, rules, target, "--enable-feature=native-histograms")
	compact := nodebox.StartPrometheus(t, rules, sickAgent(t, true))
	for _, query := range dashboardQueries(t, "dashboard.json") {
		p.Finds(t, query)
	}
	for _, query := range dashboardQueries(t, "dashboard-fleet.json") {
		compact.Finds(t, query)
	}
	for _, alert := range []string{ // the recorded look is long ago
		"KdiagCriticalCause", "KdiagCallsHung", "KdiagRelistSlow", "KdiagAgentSilent",
	} {
		p.Finds(t, `ALERTS{alertname="`+alert+`", alertstate="pending"}`)
	}
	native.Finds(t, `histogram_count(kdiag_rpc_duration_seconds{method="Version"}) > 0`)
}

// dashboardQueries returns the queries of a dashboard, with Grafana's variables filled in.
func dashboardQueries(t *testing.T, name string) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(testkit.Read(t, deploy+name)), &dashboard))
	var all []string
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$node", ".*", "$__rate_interval", "10s").Replace(target.Expr))
		}
	}
	if len(all) < 10 {
		t.Errorf("%s has no more queries than %q", name, all)
	}
	return all
}

// TestEndToEndKustomize builds the manifests as kubectl does. It has components since 1.21, and Debian 12 has 1.20:
// those are left out.
func TestEndToEndKustomize(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", manifests).Output()
	must(t, err)
	if n, agent := decode(t, string(out)); n != 8 || agent == nil {
		t.Errorf("%d objects", n)
	}
}
