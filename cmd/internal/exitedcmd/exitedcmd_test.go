package exitedcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/exitedcmd"
)

// TestInterruptedWatch interrupts the wait for the second look: what the first has counted is there, and neither the
// exit code nor the status calls the node healthy.
func TestInterruptedWatch(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	asked := 0
	var stdout bytes.Buffer
	env := cli.Env{
		Out: &stdout, Err: &bytes.Buffer{}, Getenv: func(string) string { return "" },
		Hostname: func() (string, error) { return "node-7", nil },
		Now: func() time.Time {
			if asked++; asked == 2 { // after that of the header the census's: the first look is over
				interrupt()
			}
			return time.Now()
		},
	}
	cmd := exitedcmd.NewCommand(env)
	cmd.SetArgs([]string{"--simulate", "healthy", "--watch", "1h", "-o", "json"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if code, _, _ := cli.ExitCode(cmd.ExecuteContext(ctx)); code != cli.ExitUnknown {
		t.Errorf("exit code %d", code)
	}
	var got struct {
		Status   string
		Total    *int
		Problems []string
		Growth   json.RawMessage
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	if got.Status != "unknown" || got.Total == nil || got.Growth != nil {
		t.Errorf("%s", stdout.String())
	}
	if diff := cmp.Diff([]string{"no second count"}, got.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
