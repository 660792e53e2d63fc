package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
)

// A validator checks a document against a schema of docs/schema, and that the schema knows all of its fields.
type validator struct {
	defs     map[string]any
	problems []string
}

func (v *validator) check(at string, s map[string]any, doc any) {
	bad := func(format string, args ...any) {
		v.problems = append(v.problems, at+": "+fmt.Sprintf(format, args...))
	}
	if ref, ok := s["$ref"].(string); ok {
		v.check(at, v.defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), doc)
		return
	}
	if want, ok := s["const"]; ok && want != doc {
		bad("%v, want %v", doc, want)
	}
	if values, ok := s["enum"].([]any); ok && !slices.Contains(values, doc) {
		bad("%v is none of %v", doc, values)
	}
	kind := "null"
	switch d := doc.(type) {
	case map[string]any:
		kind = "object"
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := d[name.(string)]; !ok {
				bad("%s is missing", name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(d)) {
			of, known := properties[name].(map[string]any)
			if !known {
				of, known = s["additionalProperties"].(map[string]any)
			}
			if !known {
				bad("%s is not in the schema", name)
				continue
			}
			v.check(at+"."+name, of, d[name])
		}
	case []any:
		kind = "array"
		for i := range d {
			v.check(fmt.Sprintf("%s[%d]", at, i), s["items"].(map[string]any), d[i])
		}
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; s["type"] == "integer" && d == float64(int64(d)) {
			kind = "integer"
		}
	}
	if want, ok := s["type"]; ok && want != kind {
		bad("is of type %s, want %s", kind, want)
	}
}

// TestSchemas has each command print its documents, on runtimes that are well, sick, and not there, and checks them
// against the schemas, and the frame that all have.
func TestSchemas(t *testing.T) {
	box := t.TempDir()
	log, blank := filepath.Join(box, "kubelet.log"), filepath.Join(box, "blank.log")
	must(t, os.WriteFile(log, []byte(incidentLog), 0o600))
	must(t, os.WriteFile(blank, []byte("nothing of interest\n"), 0o600))
	dump, archive := filepath.Join(box, "dump.txt"), filepath.Join(box, "b.tar.zst")
	must(t, os.WriteFile(dump, []byte(goroutines), 0o600))
	saved := filepath.Join(box, "saved.json")
	if o := kdiag(t.Context(), "relist", "--simulate", "healthy", "--count", "2", "--interval", "1ms",
		"--save", saved); o.code != 0 {
		t.Fatal(o)
	}
	agent, err := recorder.Open(filepath.Join(box, "agent"), 0)
	must(t, err)
	now := time.Now()
	agent.Append(now, recorder.KindSample, checks.LookSample{At: now, Status: checks.Healthy, ListSeconds: new(0.004)})
	must(t, agent.Close(t.Context()))
	nodes := cluster(t, map[string]any{
		"/api/v1/nodes": nodeList(map[string]string{"a": "", "b": "PLEG is not healthy", "c": "?"}),
	})
	cluster := cluster(t, map[string]any{
		"/api/v1/pods": `{"kind":"PodList","apiVersion":"v1","items":[
{"metadata":{"name":"a","namespace":"b"},"status":{"phase":"Running"}}]}`,
		"/api/v1/namespaces/b/pods/a:9478/proxy/captures/": `{"apiVersion":"kdiag/v1","kind":"CaptureList",
"command":"kdiag agent","generatedAt":"2026-11-23T14:05:12Z","kdiagVersion":"v1","status":"healthy","problems":[],
"captures":[{"name":"n","at":"2026-11-23T14:05:12Z","cause":"RuntimeHung","bytes":7}]}`,
	})
	seen := map[string]bool{}
	for _, line := range []string{
		"pleg --simulate healthy", "pleg --simulate inspect-hang", "pleg --simulate runtime-down",
		"node --simulate runtime-hung", "node --timeout 8s",
		"runtime --simulate healthy", "runtime --simulate network-not-ready", "runtime -r " + box,
		"relist --simulate healthy --count 2 --interval 1ms --deep --against " + saved,
		"relist --simulate runtime-down",
		"exited --simulate healthy --watch 10ms", "exited --simulate runtime-down", "exited -r " + box,
		"gc-exited --simulate healthy", "gc-exited --simulate healthy --yes", "gc-exited --simulate runtime-down",
		"journal " + log, "journal " + blank, "journal " + box + "/none", "canary --simulate healthy",
		"canary --simulate runtime-hung", "canary -r " + box, "reproduce healthy",
		"reproduce nothing-like-it", "stacks " + dump, "stacks " + dump + " " + dump, "stacks", "stacks " + blank,
		"bundle --simulate healthy " + archive, "bundle --list " + archive, "bundle --list " + blank,
		"history --data-dir " + box + "/agent", "history --data-dir " + box,
		"fleet --kubeconfig " + nodes, "fleet --checks --kubeconfig " + nodes, "fleet --kubeconfig " + box,
		"fleet bundle n1 --list --kubeconfig " + cluster, "fleet report n1 --kubeconfig " + cluster,
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
		text, err := os.ReadFile("../../../docs/schema/" + kind + ".json")
		must(t, err)
		var schema map[string]any
		must(t, json.Unmarshal(text, &schema))
		v := &validator{defs: schema["$defs"].(map[string]any)}
		v.check(kind, schema, doc)
		for _, field := range []string{"command", "generatedAt", "kdiagVersion", "status", "problems"} {
			if _, ok := doc[field]; !ok {
				v.problems = append(v.problems, field+" is missing in the frame")
			}
		}
		if problems, _ := doc["problems"].([]any); o.code == 2 && (doc["status"] != "unknown" || len(problems) == 0) {
			v.problems = append(v.problems, fmt.Sprintf("exit code 2, status %v, problems %v", doc["status"], problems))
		}
		if len(v.problems) > 0 {
			t.Errorf("kdiag %s:\n%s", line, strings.Join(v.problems, "\n"))
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

const incidentLog = `I1121 03:00:00.000000     812 kubelet_node_status.go:1] "Fine"
E1121 03:12:09.000000     812 kubelet.go:2450] "Skipping pod synchronization" err="PLEG is not healthy: ` +
	`pleg was last seen active 3m4.1s ago; threshold is 3m0s"
E1121 03:12:14.000000     812 kubelet.go:2450] "Skipping pod synchronization" err="PLEG is not healthy: ` +
	`pleg was last seen active 3m9.1s ago; threshold is 3m0s"
`

const goroutines = `goroutine 1 [select, 4 minutes]:
main.main()
	/src/main.go:12 +0x25

goroutine 7 [sync.Mutex.Lock, 3 minutes]:
sync.runtime_SemacquireMutex(0xc000012340, 0x0, 0x1)
	/go/src/runtime/sema.go:95 +0x25
sync.(*Mutex).lockSlow(0xc000012340)
	/go/src/sync/mutex.go:173 +0x15d
sync.(*Mutex).Lock(...)
	/go/src/sync/mutex.go:92
main.work(0xc000012340)
	/src/main.go:20 +0x31
created by main.main in goroutine 1
	/src/main.go:10 +0x1a
`
