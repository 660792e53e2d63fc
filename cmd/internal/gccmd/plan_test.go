package gccmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/gc"
)

// TestGCForeignPlans gives kdiag gc-exited plans that were made elsewhere or in another time: each is refused, and says why.
func TestGCForeignPlans(t *testing.T) {
	root := t.TempDir() // of a node with an identity of its own
	for name, text := range map[string]string{"etc/machine-id": "f00d\n", "proc/sys/kernel/random/boot_id": "beef\n"} {
		apptest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		apptest.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	here := gc.Identity{MachineID: "f00d", BootID: "beef", Endpoint: "simulated: healthy", RuntimeName: "containerd"}
	for _, tt := range []struct {
		name   string
		change func(*gc.Identity)
		code   int
		stderr string
	}{
		{"from here", func(*gc.Identity) {}, 0, ""},
		{"from another node", func(id *gc.Identity) { id.MachineID = "0123" }, 2, "the plan was made on another node: machine id 0123 there"},
		{"from before a boot", func(id *gc.Identity) { id.BootID = "0123" }, 2, "the node has booted since the plan was made: boot id 0123 then"},
		{"for another endpoint", func(id *gc.Identity) { id.Endpoint = "unix:///run/x.sock" }, 2, "the plan was made for another runtime"},
		{"for another runtime", func(id *gc.Identity) { id.RuntimeName = "cri-o" }, 2, "the plan was made for another runtime"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made := here
			tt.change(&made)
			name := filepath.Join(t.TempDir(), "plan.json")
			f, err := os.Create(name)
			apptest.Must(t, err)
			apptest.Must(t, gc.WritePlan(f, gc.Plan{}, made, time.Now()))
			apptest.Must(t, f.Close())
			var stdout, stderr strings.Builder
			code := app.Main(t.Context(), cli.Env{
				In: strings.NewReader(""), Out: &stdout, Err: &stderr, Now: time.Now, Getenv: func(string) string { return "" },
				Hostname: os.Hostname, Root: root, Width: 80,
			}, []string{"gc-exited", "--simulate", "healthy", "--apply", name, "--yes"})
			got := apptest.Outcome{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
			if got.Code != tt.code || !strings.Contains(got.Stderr, tt.stderr) || tt.code != 0 && got.Stdout != "" {
				t.Errorf("exit code %d\n%s%s", got.Code, got.Stdout, got.Stderr)
			}
		})
	}
}

// TestGCAsks runs kdiag gc-exited at a terminal: only a yes removes, and whether pods live is asked about on its own.
func TestGCAsks(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "node.yaml")
	apptest.Must(
		t,
		os.WriteFile(scenario, []byte("name: node\npods:\n- {name: web, containers: [{name: app, exited: 5}]}\n"), 0o644),
	)
	for _, tt := range []struct {
		name, in string
		args     []string
		code     int
		stdout   string
		stderr   string
	}{
		{"yes", "y\n", nil, 0, "removed 4 of 4", "Remove these 4? [y/N] "},
		{"YES without an end", "YES", nil, 0, "removed 4 of 4", ""},
		{"no", "n\n", nil, 0, "", "Nothing was removed."},
		{"enter", "\n", nil, 0, "", "Nothing was removed."},
		{"end of file", "", nil, 0, "", "Nothing was removed."},
		{"something else", "yesterday\n", nil, 0, "", "Nothing was removed."},
		{"yes, but pods may live", "y\ny\n", []string{"--ignore-pod-liveness"}, 0, "", "Type yes-i-know to go on: Nothing was removed."},
		{"yes, and that is known", "y\nyes-i-know\n", []string{"--ignore-pod-liveness"}, 0, "removed 4 of 4", "may lose its last sandbox"},
		{"already said", "y\n", []string{"--ignore-pod-liveness=yes-i-know"}, 0, "removed 4 of 4", ""},
		{"a document does not ask", "", []string{"-o", "json"}, 0, `"dryRun": true`, ""},
		{"nothing to ask about", "", []string{"--namespace", "none"}, 0, "nothing may go", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := app.Main(t.Context(), cli.Env{
				In: strings.NewReader(tt.in), Out: &stdout, Err: &stderr, Now: time.Now, Getenv: func(string) string { return "" },
				Hostname: os.Hostname, Root: "/", Width: 80, InTTY: true, OutTTY: true,
			}, append([]string{"gc-exited", "--simulate", scenario, "--color", "never"}, tt.args...))
			if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) ||
				!strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("exit code %d\n%s\n%s", code, stdout.String(), stderr.String())
			}
			if tt.stdout == "" && strings.Contains(stdout.String(), "removed 4") {
				t.Errorf("removed without a yes:\n%s", stdout.String())
			}
		})
	}
}
