package app_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/app"
)

const (
	nodesPath  = "/api/v1/nodes"
	pleg       = "PLEG is not healthy: pleg was last seen active 3m5.9s ago; threshold is 3m0s"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// nodesOf serves nodes, and more answers, which may replace those.
func nodesOf(t *testing.T, nodes map[string]string, more map[string]any) string {
	t.Helper()
	answers := map[string]any{
		nodesPath: nodeList(nodes), leasesPath: listOf("coordination.k8s.io/v1", "Lease"),
		"/apis/coordination.k8s.io/v1/leases": listOf("coordination.k8s.io/v1", "Lease"),
		"/api/v1/events":                      listOf("v1", "Event"),
		"/api/v1/pods":                        listOf("v1", "Pod"),
		"/version":                            map[string]any{"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
	}
	maps.Copy(answers, more)
	return cluster(t, answers)
}

// TestFleetFormats has each format of a cluster with two causes.
func TestFleetFormats(t *testing.T) {
	config := nodesOf(t, map[string]string{
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
			"\n       scp $(command -v kdiag) b:/tmp/ && ssh b sudo /tmp/kdiag node\n",
			"\n       kubectl describe node b --kubeconfig " + config + "\n", "\n       kdiag explain PLEGUnhealthy\n",
			"\nNodeStatusUnknown  1 node: ", "\n  NODE  READY ", "\n  d     Unknown",
			"\nMore: kdiag fleet --kubeconfig " + config + " --details",
		}},
		{"--context prod-eu --details", []string{"\n       kubectl describe node b --context prod-eu --kubeconfig "}},
	} {
		out := kdiag(t.Context(), append([]string{"fleet", "--kubeconfig", config}, strings.Fields(tt.flags)...)...)
		if out.code != 1 || out.stderr != "" || strings.Contains(out.stdout, "\x1b") {
			t.Errorf("%s: exit code %d, %q\n%q", tt.flags, out.code, out.stderr, out.stdout)
		}
		rest := out.stdout
		for _, part := range tt.want {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: %q is not where it should be in\n%s", tt.flags, part, out.stdout)
			}
			rest = after
		}
	}
	r := decode[checks.FleetReport](t, kdiag(t.Context(), "fleet", "-o", "json", "--kubeconfig", config))
	if diff := cmp.Diff(checks.FleetCounts{Nodes: 5, Ready: 2, NotReady: 2, Silent: 1}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if r.Command != "kdiag fleet" || r.Cluster != "prod-eu" || r.Status != checks.Unhealthy || len(r.NextSteps) == 0 {
		t.Errorf("frame: %+v", r.Header)
	}
}

// TestFleetOutcomes has the exit codes and messages of clusters that are well, or cannot be read.
func TestFleetOutcomes(t *testing.T) {
	well := map[string]string{"a": "", "b": ""}
	for _, tt := range []struct {
		name   string
		config string
		flags  string
		code   int
		stdout string // what it begins with
		stderr string // a part
	}{
		{"well", nodesOf(t, well, nil), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n", ""},
		{"no node is sick", nodesOf(t, well, nil), "-o name", 0, "", ""},
		{"no nodes", nodesOf(t, nil, nil), "", 2, "UNKNOWN  prod-eu  the API server has no such nodes\n", ""},
		{
			"leases forbidden", nodesOf(t, well, map[string]any{
				leasesPath: http.StatusForbidden, "/apis/coordination.k8s.io/v1/leases": http.StatusForbidden,
			}), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n\n  ? ", "",
		},
		{
			"forbidden", nodesOf(t, nil, map[string]any{nodesPath: http.StatusForbidden}),
			"", 2, "", "  hint: kdiag fleet needs to list nodes and leases; docs/fleet.md has the ClusterRole\n",
		},
		{
			"unauthorized", nodesOf(t, nil, map[string]any{nodesPath: http.StatusUnauthorized}),
			"", 2, "", "does not accept the credentials",
		},
		{
			"refused", writeKubeconfig(t, "http://127.0.0.1:1"), "", 2, "",
			"kdiag: asking http://127.0.0.1:1: ",
		},
		{"no server", writeKubeconfig(t, "http://%zz"), "", 2, "", "kdiag: "},
		{"other context", nodesOf(t, well, nil), "--context other", 2, "", `context "other" does not exist`},
		{
			"logs forbidden", nodesOf(t, well, map[string]any{
				nodesPath + "/a/proxy/logs/": http.StatusForbidden, nodesPath + "/b/proxy/logs/": http.StatusForbidden,
			}), "--logs", 2, "UNKNOWN  prod-eu  log of 2 nodes not read (a and b): forbidden: it takes the right to get", "",
		},
		{"watch and logs", nodesOf(t, well, nil), "-w --logs", 2, "", "--watch and --logs exclude each other"},
		{"watch and checks", nodesOf(t, well, nil), "-w --checks", 2, "", "--watch and --checks exclude each other"},
		{"format", nodesOf(t, well, nil), "-o xml", 2, "", "not one of text, json, yaml, brief, wide, name"},
		{"no time", nodesOf(t, well, nil), "--timeout 1ms", 2, "", "leaves no time to look"},
		{"empty", nodesOf(t, well, nil), "--selector=", 2, "", "--selector is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"fleet", "--kubeconfig", tt.config}, strings.Fields(tt.flags)...)
			out := kdiag(t.Context(), args...)
			if out.code != tt.code || !strings.HasPrefix(out.stdout, tt.stdout) || tt.stdout == "" && out.stdout != "" ||
				!strings.Contains(out.stderr, tt.stderr) || (tt.stderr == "") != (out.stderr == "") {
				t.Errorf("%+v", out)
			}
		})
	}
}

// TestFleetHangs has a server that accepts and does not answer.
func TestFleetHangs(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupted := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})
	blocked := serving(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if o := kdiag(t.Context(), "fleet", "--kubeconfig", blocked, "--timeout", "300ms"); o.code != 2 ||
		!strings.Contains(o.stderr, "wait longer with --timeout") {
		t.Errorf("late: %+v", o)
	}
	if o := kdiag(ctx, "fleet", "--kubeconfig", interrupted); o.code != 2 || o.stdout != "" {
		t.Errorf("interrupted: %+v", o)
	}
}

// A stopper calls stop when something is written.
type stopper struct {
	strings.Builder
	stop func()
}

func (s *stopper) Write(b []byte) (int, error) {
	s.stop()
	return s.Builder.Write(b)
}

// TestFleetWatch ends a watch with the verdict of the last state.
func TestFleetWatch(t *testing.T) {
	for message, code := range map[string]int{"": 0, pleg: 1} {
		ctx, stop := context.WithCancel(t.Context())
		out := &stopper{stop: stop}
		env, _, stderr := surroundings()
		env.Out = out
		got := app.Main(ctx, env, []string{
			"fleet", "-w", "-o", "brief", "--kubeconfig", nodesOf(t, map[string]string{"a": message}, nil),
		})
		if got != code || strings.Count(out.String(), "\n") != 1 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, want %d; %s%s", message, got, code, out, stderr)
		}
	}
}
