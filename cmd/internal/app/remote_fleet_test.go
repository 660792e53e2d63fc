package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
)

const (
	older     = "20261123T140512Z-ListHang.tar.zst"
	newer     = "20261123T150512Z-RuntimeHung.tar.zst"
	agent     = "/api/v1/namespaces/kdiag/pods/a:9478/proxy/"
	captures  = "/api/v1/namespaces/kdiag/secrets/" + checks.CapturesSecret
	agentPods = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"kdiag"},
"status":{"phase":"Running"}}]}`
)

// cluster has a node whose agent has a report of some age, the history of package render, and two captures.
func agentCluster(t *testing.T, age time.Duration) (flags []string, answers map[string]any) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), newer)
	var report outcome
	inFakeTime(t, func(t *testing.T, kdiag func(args ...string) outcome) {
		report = kdiag("pleg", "--simulate", "inspect-hang", "-o", "json")
		if o := kdiag("bundle", "--simulate", "healthy", archive); o.code != 0 {
			t.Fatal(o)
		}
	})
	lines := strings.Split(strings.ReplaceAll(report.stdout, `"simulated"`, `"flag"`), "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, `  "generatedAt"`):
			lines[i] = `  "generatedAt": "` + time.Now().Add(-age).UTC().Format(time.RFC3339) + `",`
		case strings.HasPrefix(line, `  "host"`):
			lines[i] = `  "host": "n1.example",`
		}
	}
	history, err := os.ReadFile("../render/testdata/history.json")
	must(t, err)
	data, err := os.ReadFile(archive)
	must(t, err)
	past := strings.ReplaceAll(string(history), "2026-11-23T", "2026-11-20T")
	list := fmt.Sprintf(`{"apiVersion":"kdiag/v1","kind":"CaptureList","command":"kdiag agent","host":"n1.example",
"generatedAt":"2026-11-23T15:10:00Z","kdiagVersion":"v1","status":"healthy","problems":[],"captures":[
{"name":%q,"at":"2026-11-23T15:05:12Z","cause":"RuntimeHung","bytes":%d},
{"name":%q,"at":"2026-11-23T14:05:12Z","cause":"ListHang","bytes":3}]}`, newer, len(data), older)
	answers = map[string]any{
		"/api/v1/pods": agentPods, agent + "report": strings.Join(lines, "\n"),
		agent + "history": past, agent + "captures/": list,
		agent + "captures/" + older: "bad",
		agent + "captures/" + newer: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(checks.CapturesToken) != "token" {
				http.Error(w, "archives take a token", http.StatusUnauthorized)
				return
			}
			_, _ = w.Write(data)
		},
		captures: `{"kind":"Secret","apiVersion":"v1","data":{"token":"dG9rZW4K"}}`,
	}
	return []string{"--kubeconfig", cluster(t, answers)}, answers
}

// TestFleetRemote runs each command, and looks for what it prints on standard output and standard error.
func TestFleetRemote(t *testing.T) {
	flags, answers := agentCluster(t, 10*time.Second)
	old, _ := agentCluster(t, 12*time.Minute)
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args, flags    []string
		code           int
		stdout, absent string
		stderr         string
	}{
		{
			[]string{"fleet", "report", "n1"}, flags, 1, "UNHEALTHY  n1.example  InspectHang: ", "old: the agent", "",
		},
		{[]string{"fleet", "report", "n1"}, flags, 1, "\nMore: kdiag fleet report n1 --kubeconfig ", "runtime-endpoint", ""},
		{[]string{"fleet", "report", "n1"}, flags, 1, "Note: next steps are for n1.example\n", "", ""},
		{[]string{"fleet", "report", "n1"}, old, 1, "Note: this report is 12m", "", ""},
		{[]string{"fleet", "report", "n1", "-o", "brief"}, flags, 1, "UNHEALTHY InspectHang: ", "", ""},
		{[]string{"fleet", "report", "n1", "-o", "brief"}, old, 1, "UNHEALTHY InspectHang: ", "", "report is 12m"},
		{[]string{"fleet", "report", "n1", "-o", "json"}, flags, 1, `"host": "n1.example"`, "", ""},
		{[]string{"fleet", "history", "n1", "--since", "-24h"}, flags, 1, "RECOVERED  node-7  RuntimeHung from ", "", ""},
		{[]string{"fleet", "history", "n1"}, flags, 1, "--capture 20261123T140530Z-RuntimeHung.tar.zst", " --from ", ""},
		{[]string{"fleet", "history", "n1"}, flags, 1, "old: the agent is stuck", "", ""},
		{[]string{"fleet", "history", "n1", "--since", "soon"}, flags, 2, "", "", `"soon" is not a time`},
		{[]string{"fleet", "bundle", "n1", "--list"}, flags, 0, "2 archives  n1.example\n\nCAPTURED  ", "", ""},
		{[]string{"fleet", "bundle", "n1", "--list", "-o", "brief"}, flags, 0, "n1.example 2 archives\n", "", ""},
		{[]string{"fleet", "bundle", "n1", "--list", "x"}, flags, 2, "", "", "--list fetches nothing"},
		{[]string{"fleet", "bundle", "n1", "--capture", older}, flags, 2, "", "", older + " arrived damaged: "},
		{[]string{"fleet", "bundle", "n1", "--capture", "../" + newer}, flags, 2, "", "", "has no such archive"},
		{[]string{"fleet", "report", ""}, flags, 2, "", "", "an argument is empty"},
		{[]string{"fleet", "report", "n2"}, []string{"--kubeconfig", "none"}, 2, "", "", "finding the API server: "},
		{[]string{"fleet", "bundle", "n1", "none/x"}, flags, 2, "", "", "no such file or directory"},
		{[]string{"fleet", "bundle", "n1"}, flags, 0, "WRITTEN  " + newer, "", ""},
		{[]string{"fleet", "bundle", "n1"}, flags, 2, "", "", newer + " is there already"},
		{[]string{"fleet", "bundle", "n1", "-"}, flags, 0, "\x28\xb5\x2f\xfd", "WRITTEN", "WRITTEN"},
	} {
		o := kdiag(t.Context(), append(tt.args, tt.flags...)...)
		if o.code != tt.code || !strings.Contains(o.stdout, tt.stdout) || !strings.Contains(o.stderr, tt.stderr) ||
			tt.absent != "" && strings.Contains(o.stdout, tt.absent) || tt.stderr == "" && o.stderr != "" {
			t.Errorf("%v: %+v", tt.args, o)
		}
	}
	if o := kdiag(t.Context(), "node", "--from", newer, "-o", "brief"); !strings.HasPrefix(o.stdout, "HEALTHY ") {
		t.Errorf("the archive that was fetched: %+v", o)
	}
	answers[captures] = http.StatusForbidden
	if o := kdiag(t.Context(), append(flags, "fleet", "bundle", "n1", "new")...); o.code != 2 ||
		!strings.Contains(o.stderr, "archives take a token") || !strings.Contains(o.stderr, "kubectl get secret -n kdiag") {
		t.Errorf("without the right to read the secret: %+v", o)
	}
	// A name that is a path must not become one here.
	answers[agent+"captures/"] = `{"kind":"CaptureList","captures":[{"name":"../x","bytes":3}]}`
	if o := kdiag(t.Context(), append(flags, "fleet", "bundle", "n1")...); o.code != 2 ||
		!strings.Contains(o.stderr, "has no such archive") {
		t.Errorf("a path: %+v", o)
	}
	left, err := os.ReadDir(".")
	must(t, err)
	if len(left) != 1 || left[0].Name() != newer {
		t.Errorf("left in the folder: %v", left)
	}
}

// TestFleetCutShort ends a transfer early: nothing is written.
func TestFleetCutShort(t *testing.T) {
	flags, answers := agentCluster(t, 0)
	t.Chdir(t.TempDir())
	answers[agent+"captures/"+newer] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write([]byte("begun"))
	}
	o := kdiag(t.Context(), append(flags, "fleet", "bundle", "n1")...)
	left, err := os.ReadDir(".")
	must(t, err)
	if o.code != 2 || !strings.Contains(o.stderr, "does not answer") || len(left) != 0 {
		t.Errorf("%+v, left %v", o, left)
	}
}

// TestFleetNothingThere has documents of the right kind with nothing in them, as an older or a false agent may send.
func TestFleetNothingThere(t *testing.T) {
	flags, answers := agentCluster(t, 0)
	for name, kind := range map[string]string{
		"report": checks.KindReport, "history": checks.KindHistory, "captures/": checks.KindCaptureList,
	} {
		answers[agent+name] = `{"kind":"` + kind + `"}`
	}
	for line, code := range map[string]int{
		"fleet report n1": 0, "fleet report n1 --details": 0, "fleet history n1": 0, "fleet history n1 --details": 0,
		"fleet bundle n1 --list": 0, "fleet bundle n1": 2, "node n1": 0,
	} {
		if o := kdiag(t.Context(), append(strings.Fields(line), flags...)...); o.code != code {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
