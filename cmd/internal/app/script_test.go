package app_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the wanted output in scripts")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == host.ChildArgument {
		os.Exit(host.Serve(os.Args[2:], os.Stdout)) // the tests' kdiag starts itself anew too
	}
	kdiag := func() {
		env := cli.System()
		env.Root = cmp.Or(os.Getenv("HOST_ROOT"), env.Root)
		os.Exit(app.Main(context.Background(), env, os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"kdiag": kdiag, "kubectl-kdiag": kdiag})
}

// TestScripts runs kdiag as a person does. Beside testscript's own commands, "code N kdiag ..." runs a command and
// checks its exit code.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// The locale and terminal of whoever runs the tests must not show.
			env.Setenv("LC_ALL", "C.UTF-8")
			env.Setenv("TERM", "xterm")
			env.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
			env.Setenv("TMPDIR", "/tmp")
			env.Setenv("ESC", "\x1b[31mred")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: code N command [args...]")
				}
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				err = ts.Exec(args[1], args[2:]...)
				got := 0
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					got = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if got != want {
					ts.Fatalf("exit code %d, want %d", got, want)
				}
			},
		},
	})
}
