package gccmd_test

import (
	"bytes"
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

// TestGCForeignPlans applies plans that were made elsewhere or in another time: each is refused with its reason.
func TestGCForeignPlans(t *testing.T) {
	root := t.TempDir() // of a node with another identity
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
		{
			"from another node", func(id *gc.Identity) { id.MachineID = "0123" }, 2,
			`the plan was made on another node: machine id "0123"`,
		},
		{
			"from before a boot", func(id *gc.Identity) { id.BootID = "0123" }, 2,
			"the node has booted since the plan was made",
		},
		{
			"for another endpoint", func(id *gc.Identity) { id.Endpoint = "unix:///run/x.sock" }, 2,
			"the plan was made for another runtime",
		},
		{
			"for another runtime", func(id *gc.Identity) { id.RuntimeName = "cri-o" }, 2,
			"the plan was made for another runtime",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made := here
			tt.change(&made)
			var plan, stdout, stderr bytes.Buffer
			apptest.Must(t, gc.WritePlan(&plan, gc.Plan{}, made, time.Now()))
			name := filepath.Join(root, "plan.json")
			apptest.Must(t, os.WriteFile(name, plan.Bytes(), 0o600))
			code := app.Main(t.Context(), cli.Env{
				Out: &stdout, Err: &stderr, Now: time.Now, Getenv: func(string) string { return "" },
				Hostname: os.Hostname, Root: root, Width: 80,
			}, []string{"gc-exited", "--simulate", "healthy", "--apply", name, "--yes"})
			if code != tt.code || !strings.Contains(stderr.String(), tt.stderr) || tt.code != 0 && stdout.Len() > 0 {
				t.Errorf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
			}
		})
	}
}
