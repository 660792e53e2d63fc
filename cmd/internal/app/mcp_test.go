package app

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestMCP asks kdiag mcp what an assistant asks, with the protocol's own client.
func TestMCP(t *testing.T) {
	t.Parallel()
	server := exec.Command("/proc/self/exe", "mcp", "--simulate", "inspect-hang")
	server.Args[0] = "kdiag" // TestMain runs it
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: server}, nil)
	must(t, err)
	defer session.Close()

	offered, err := session.ListTools(t.Context(), nil)
	must(t, err)
	var names []string
	for _, tool := range offered.Tools {
		if names = append(names, tool.Name); !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s may write", tool.Name)
		}
	}
	want := []string{"diagnose_node", "explain_cause", "fleet_nodes", "read_bundle", "read_journal"}
	testkit.Equal(t, "tools", want, names)

	for _, test := range []struct {
		tool   string
		args   any
		failed bool
		want   string // in the text
		cause  string // the first of the verdict
	}{
		{"diagnose_node", map[string]any{"quick": true}, false, "payments/ledger-db-0 (ledger)", "InspectHang"},
		{"explain_cause", map[string]any{"name": "ShimStuck"}, false, "ShimStuck", ""},
		{"explain_cause", map[string]any{"name": "--help"}, true, `there is no cause "--help"`, ""},
		{"read_journal", map[string]any{"files": []string{"../../../journal/testdata/incidents/H3.log.gz"}}, false, "PLEG", ""},
		{"read_bundle", map[string]any{"path": "/nowhere.tar.zst"}, true, "/nowhere.tar.zst", ""},
		{"fleet_nodes", map[string]any{"context": "nowhere", "logs": true}, true, "nowhere", ""},
		{"diagnose_node", map[string]any{"slow": true}, true, "slow", ""},
	} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: test.args})
		must(t, err)
		text := result.Content[0].(*mcp.TextContent).Text
		if result.IsError != test.failed || !strings.Contains(text, test.want) {
			t.Errorf("%s %v answers %q (failed: %t), want %q", test.tool, test.args, text, result.IsError, test.want)
		}
		if test.cause == "" {
			continue
		}
		var verdict checks.Report
		document, err := json.Marshal(result.StructuredContent)
		must(t, err)
		must(t, json.Unmarshal(document, &verdict))
		if verdict.Status != checks.Unhealthy || len(verdict.Causes) == 0 || verdict.Causes[0].Code != test.cause {
			t.Errorf("%s %v: the verdict is %s", test.tool, test.args, document)
		}
	}
}
