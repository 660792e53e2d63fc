//go:build e2e

package judge

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestEndToEndStepsAreShell has a shell read every command of the recorded cases, without running it.
func TestEndToEndStepsAreShell(t *testing.T) {
	var script strings.Builder
	for _, f := range gallery() {
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				fmt.Fprintln(&script, s.Command)
			}
		}
	}
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(script.String())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, script.String())
	}
}
