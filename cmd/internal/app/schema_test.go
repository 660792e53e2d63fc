package app

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kdiag/kdiag/internal/testkit"
)

// schemaOf returns the schema of a kind of document. It refuses fields that it does not know, which readers accept.
func schemaOf(t *testing.T, kind string) *jsonschema.Resolved {
	t.Helper()
	root := new(jsonschema.Schema)
	must(t, root.UnmarshalJSON([]byte(testkit.Read(t, "../../../docs/schema/"+kind+".json"))))
	for _, s := range append(slices.Collect(maps.Values(root.Defs)), root) {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	resolved, err := root.Resolve(nil)
	must(t, err)
	return resolved
}

// TestSchemas has each command print its documents, on runtimes that are well, sick, and not there, and checks them
// against the schemas, and the frame that all have.
func TestSchemas(t *testing.T) {
	box := t.TempDir()
	blank, archive := filepath.Join(box, "blank.log"), filepath.Join(box, "b.tar.zst")
	must(t, os.WriteFile(blank, []byte("nothing of interest\n"), 0o600))
	const dump = "../../../checks/stacks/testdata/dumps/kubelet-pleg.txt"
	const log = "../../../journal/testdata/incidents/H3.log.gz"
	tell(t, filepath.Join(box, "agent"), incident)
	nodes := nodesOf(t, map[string]string{"a": "", "b": pleg, "c": "?"}, nil)
	flags, _ := agentCluster(t, 0)
	remote := " " + strings.Join(flags, " ")
	seen := map[string]bool{}
	for _, line := range []string{
		"pleg --simulate healthy", "pleg --simulate inspect-hang", "pleg --simulate runtime-down",
		"node --simulate runtime-hung", "node --timeout 8s",
		"runtime --simulate healthy", "runtime --simulate network-not-ready", "runtime -r " + box,
		"relist --simulate healthy --count 2 --interval 1ms --deep --against ../render/testdata/relist.json",
		"relist --simulate runtime-down",
		"exited --simulate healthy --watch 10ms", "exited --simulate runtime-down", "exited -r " + box,
		"gc-exited --simulate healthy", "gc-exited --simulate healthy --yes", "gc-exited --simulate runtime-down",
		"journal " + log, "journal " + blank, "journal " + box + "/none", "canary --simulate healthy",
		"canary --simulate runtime-hung", "canary -r " + box, "reproduce healthy",
		"reproduce nothing-like-it", "stacks " + dump, "stacks " + dump + " " + dump, "stacks", "stacks " + blank,
		"bundle --simulate healthy " + archive, "bundle --list " + archive, "bundle --list " + blank,
		"history --root / --data-dir " + box + "/agent", "history --root / --data-dir " + box,
		"fleet --kubeconfig " + nodes, "fleet --checks --kubeconfig " + nodes, "fleet --kubeconfig " + box,
		"fleet bundle n1 --list" + remote, "fleet report n1" + remote,
		"explain", "explain InspectHang", "explain advisories", "explain runc-2404", "version",
		"explain settings", "explain settings maxPods", "explain settings nothing", "explain Nonsense",
		"pleg --timeout 5", "plegg", "node --bad", "proxy --fault x", "syncloop --simulate healthy",
	} {
		args := append(strings.Fields(line), "-o", "json")
		var o outcome
		if slices.Contains(args, "--simulate") || args[0] == "reproduce" {
			inFakeTime(t, func(_ *testing.T, kdiag func(args ...string) outcome) { o = kdiag(args...) })
		} else {
			o = kdiag(t.Context(), args...)
		}
		doc := *decode[map[string]any](t, o)
		kind, _ := doc["kind"].(string)
		seen[kind+".json"] = true
		if err := schemaOf(t, kind).Validate(doc); err != nil {
			t.Errorf("kdiag %s: %v", line, err)
		}
		for _, field := range []string{"command", "generatedAt", "kdiagVersion", "status", "problems"} {
			if _, ok := doc[field]; !ok {
				t.Errorf("kdiag %s: %s is missing in the frame", line, field)
			}
		}
		if problems, _ := doc["problems"].([]any); o.code == 2 && (doc["status"] != "unknown" || len(problems) == 0) {
			t.Errorf("kdiag %s: exit code 2, status %v, problems %v", line, doc["status"], problems)
		}
	}
	all, err := filepath.Glob("../../../docs/schema/*.json")
	must(t, err)
	for _, file := range all {
		if !seen[filepath.Base(file)] {
			t.Errorf("no command printed a document for %s", file)
		}
	}
}
