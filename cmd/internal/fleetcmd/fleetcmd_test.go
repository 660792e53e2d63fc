package fleetcmd_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
)

const (
	nodesPath  = "/api/v1/nodes"
	pleg       = "PLEG is not healthy: pleg was last seen active 3m5.9s ago; threshold is 3m0s"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// cluster serves nodes, and more answers, which may replace those.
func cluster(t *testing.T, nodes map[string]string, more map[string]any) string {
	t.Helper()
	answers := map[string]any{
		nodesPath: apptest.NodeList(nodes), leasesPath: apptest.EmptyList("coordination.k8s.io/v1", "Lease"),
		"/apis/coordination.k8s.io/v1/leases": apptest.EmptyList("coordination.k8s.io/v1", "Lease"),
		"/api/v1/events":                      apptest.EmptyList("v1", "Event"),
		"/api/v1/pods":                        apptest.EmptyList("v1", "Pod"),
		"/version":                            map[string]any{"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
	}
	maps.Copy(answers, more)
	return apptest.Kube(t, answers)
}

// TestFormats has each format of a cluster with two causes.
func TestFormats(t *testing.T) {
	config := cluster(t, map[string]string{
		"a": "", "b": pleg, "c": pleg, "d": "? Kubelet stopped posting node status.\x1b[31m", "e": "",
	}, nil)
	for _, tt := range []struct {
		flags string
		want  []string // parts of the output, in order
	}{
		{"-o brief", []string{"UNHEALTHY prod-eu 3 of 5 nodes not ready: 2 PLEGUnhealthy, 1 NodeStatusUnknown\n"}},
		{"-o name", []string{"node/b\nnode/c\nnode/d\n"}},
		{"-o wide --no-headers", []string{
			"b  NotReady  1h  ", "v1.36.2  containerd://2.1.4", "\nc ", "\nd ", "\na ", "\ne ",
		}},
		{"-o wide", []string{"NODE  READY     SINCE  LEASE  CAUSE ", "\nb  "}},
		{"-o yaml", []string{"groups:\n- cause: PLEGUnhealthy\n"}},
		{"", []string{
			"UNHEALTHY  prod-eu  3 of 5", "\nPLEGUnhealthy  2 nodes: ",
			"\n       kdiag node b --kubeconfig " + config + "\n",
			"\n       kubectl describe node b --kubeconfig " + config + "\n", "\n       kdiag explain PLEGUnhealthy\n",
			"\nNodeStatusUnknown  1 node: ", "\n  NODE  READY ", "\n  d     Unknown",
			"\nMore: kdiag fleet --kubeconfig " + config + " --details",
		}},
		{"--context prod-eu --details", []string{"\n       kdiag node b --context prod-eu --kubeconfig "}},
	} {
		out := apptest.Kdiag(t.Context(), append([]string{"fleet", "--kubeconfig", config}, strings.Fields(tt.flags)...)...)
		if out.Code != 1 || out.Stderr != "" || strings.Contains(out.Stdout, "\x1b") {
			t.Errorf("%s: exit code %d, %q\n%q", tt.flags, out.Code, out.Stderr, out.Stdout)
		}
		rest := out.Stdout
		for _, part := range tt.want {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: %q is not where it should be in\n%s", tt.flags, part, out.Stdout)
			}
			rest = after
		}
	}
	r := apptest.Decode[checks.FleetReport](t, apptest.Kdiag(t.Context(), "fleet", "-o", "json", "--kubeconfig", config))
	if diff := cmp.Diff(checks.FleetCounts{Nodes: 5, Ready: 2, NotReady: 2, Silent: 1}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if r.Command != "kdiag fleet" || r.Cluster != "prod-eu" || r.Status != checks.Unhealthy || len(r.NextSteps) == 0 {
		t.Errorf("frame: %+v", r.Header)
	}
}

// TestOutcomes has the exit codes and messages of clusters that are well, or cannot be read.
func TestOutcomes(t *testing.T) {
	well := map[string]string{"a": "", "b": ""}
	for _, tt := range []struct {
		name   string
		config string
		flags  string
		code   int
		stdout string // what it begins with
		stderr string // a part
	}{
		{"well", cluster(t, well, nil), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n", ""},
		{"no node is sick", cluster(t, well, nil), "-o name", 0, "", ""},
		{"no nodes", cluster(t, nil, nil), "", 2, "UNKNOWN  prod-eu  the API server has no such nodes\n", ""},
		{
			"leases forbidden", cluster(t, well, map[string]any{
				leasesPath: http.StatusForbidden, "/apis/coordination.k8s.io/v1/leases": http.StatusForbidden,
			}), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n\n  ? ", "",
		},
		{
			"forbidden", cluster(t, nil, map[string]any{nodesPath: http.StatusForbidden}),
			"", 2, "", "  hint: kdiag fleet needs to list nodes and leases; docs/fleet.md has the ClusterRole\n",
		},
		{
			"unauthorized", cluster(t, nil, map[string]any{nodesPath: http.StatusUnauthorized}),
			"", 2, "", "does not accept the credentials",
		},
		{
			"refused", apptest.Kubeconfig(t, "http://127.0.0.1:1"), "", 2, "",
			"kdiag: asking http://127.0.0.1:1: ",
		},
		{"no server", apptest.Kubeconfig(t, "http://%zz"), "", 2, "", "kdiag: "},
		{"other context", cluster(t, well, nil), "--context other", 2, "", `context "other" does not exist`},
		{"watch and checks", cluster(t, well, nil), "-w --checks", 2, "", "--watch excludes --checks"},
		{"format", cluster(t, well, nil), "-o xml", 2, "", "not one of text, json, yaml, brief, wide, name"},
		{"empty", cluster(t, well, nil), "--selector=", 2, "", "--selector is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"fleet", "--kubeconfig", tt.config}, strings.Fields(tt.flags)...)
			out := apptest.Kdiag(t.Context(), args...)
			if out.Code != tt.code || !strings.HasPrefix(out.Stdout, tt.stdout) || tt.stdout == "" && out.Stdout != "" ||
				!strings.Contains(out.Stderr, tt.stderr) || (tt.stderr == "") != (out.Stderr == "") {
				t.Errorf("%+v", out)
			}
		})
	}
}

// TestHangs has a server that accepts and does not answer.
func TestHangs(t *testing.T) {
	config := cluster(t, nil, nil)
	blocked := apptest.Hanging(t)
	for _, tt := range []struct{ config, flags, want string }{
		{blocked, "--timeout 300ms", "wait longer with --timeout"}, {config, "--timeout 1ms", "leaves no time to look"},
	} {
		began := time.Now()
		args := append([]string{"fleet", "--kubeconfig", tt.config}, strings.Fields(tt.flags)...)
		out := apptest.Kdiag(t.Context(), args...)
		if out.Code != 2 || !strings.Contains(out.Stderr, tt.want) || time.Since(began) > time.Minute {
			t.Errorf("%s: %+v", tt.flags, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if out := apptest.Kdiag(ctx, "fleet", "--kubeconfig", blocked); out.Code != 2 || out.Stdout != "" {
		t.Errorf("interrupted: %+v", out)
	}
}

// TestWatch ends a watch with the verdict of the last state.
func TestWatch(t *testing.T) {
	for message, code := range map[string]int{"": 0, pleg: 1} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		out := apptest.Kdiag(ctx, "fleet", "-w", "-o", "brief", "--kubeconfig",
			cluster(t, map[string]string{"a": message}, nil))
		if out.Code != code || strings.Count(out.Stdout, "\n") != 1 {
			t.Errorf("%q: %+v", message, out)
		}
	}
}
