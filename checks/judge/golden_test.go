package judge

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/internal/testkit"
)

// golden compares the lines of each file of an archive that begin with ">" with what find makes of those before them.
// -update rewrites them.
func golden(t *testing.T, path string, find func(t *testing.T, lines string) string) {
	t.Helper()
	testkit.Archive(t, path, func(t *testing.T, text string) string {
		lines, _, _ := strings.Cut("\n"+text, "\n>")
		lines = strings.TrimPrefix(lines+"\n", "\n")
		return lines + find(t, lines)
	})
}

// setPaths applies lines of PATH = VALUE to what a pointer points to.
func setPaths(t *testing.T, to any, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		path, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		if err := setPath(reflect.ValueOf(to).Elem(), strings.Split(path, "."), value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// stated writes the verdict of a document, its problems and the commands of its next steps.
func stated(h checks.Header, summary string, steps []checks.NextStep) string {
	all := []string{strings.TrimSpace(string(h.Status) + " " + summary)}
	for _, p := range h.Problems {
		all = append(all, "problem "+p)
	}
	for _, s := range steps {
		all = append(all, "does "+s.Command)
	}
	return "> " + strings.Join(all, "\n> ") + "\n"
}

func TestCanary(t *testing.T) {
	golden(t, "testdata/canary.txtar", func(t *testing.T, lines string) string {
		f := CanaryFacts{Result: &canary.Result{
			Version: crictl.Version{RuntimeName: "containerd", RuntimeVersion: "v2.1.4", RuntimeAPIVersion: "v1"},
			Image:   "docker.io/library/busybox:1", SandboxID: strings.Repeat("5f0e1d2c", 8), Attempts: 1,
			CleanedUp: true,
		}}
		const names = "RunPodSandbox CreateContainer StartContainer StopPodSandbox RemovePodSandbox"
		for name := range strings.FieldsSeq(names) {
			f.Result.Steps = append(f.Result.Steps,
				canary.Step{Name: name, Elapsed: 100 * time.Millisecond, Outcome: canary.OK})
		}
		setPaths(t, &f, lines)
		r := NewCanaryReport(checks.Header{}, f)
		if r.Steps == nil || f.Result != nil && (r.Runtime.Name != "containerd" || r.CleanedUp != f.Result.CleanedUp) {
			t.Errorf("%+v", r)
		}
		found := stated(r.Header, r.Summary, r.NextSteps)
		for _, s := range r.Steps {
			if s.Status != checks.StatusOK {
				found += strings.TrimSpace(fmt.Sprint("> ", s.Name, " ", s.Status, " ", s.Error+s.Skipped)) + "\n"
			}
		}
		return found
	})
}

func TestStacks(t *testing.T) {
	golden(t, "testdata/stacks.txtar", func(t *testing.T, lines string) string {
		var r checks.StacksReport
		file, ofFile := strings.CutPrefix(lines, "of a file\n")
		setPaths(t, &r, file)
		Stacks(&r, StackCommands{
			Stacks: "kdiag stacks", Pleg: "kdiag pleg", Bundle: "kdiag bundle", Elsewhere: ofFile,
		})
		return stated(r.Header, "", r.NextSteps)
	})
}
