package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
)

// An outcome is what one run of kdiag left.
type outcome struct {
	code           int
	stdout, stderr string
}

// kdiag runs a command in this process, with nothing of the caller's environment.
func kdiag(ctx context.Context, args ...string) outcome {
	env, stdout, stderr := surroundings()
	code := app.Main(ctx, env, args)
	return outcome{code, stdout.String(), stderr.String()}
}

// inFakeTime runs a test in fake time.
func inFakeTime(t *testing.T, test func(t *testing.T, kdiag func(args ...string) outcome)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, func(args ...string) outcome {
			env, stdout, stderr := timeless()
			code := app.Run(t.Context(), env, args)
			return outcome{code, stdout.String(), stderr.String()}
		})
	})
}

func surroundings() (env cli.Env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return cli.Env{
		In: bytes.NewReader(nil), Out: stdout, Err: stderr,
		Now:      time.Now,
		Getenv:   func(string) string { return "" },
		Hostname: os.Hostname,
		Root:     "/",
		Width:    80,
	}, stdout, stderr
}

// timeless are surroundings for fake time, which stands still as long as anything waits for the kernel: the sockets of
// simulated runtimes are in memory. No command in it may ask a real runtime, a server, or this host, whose processes
// may hang.
func timeless() (env cli.Env, stdout, stderr *bytes.Buffer) {
	var sockets faketest.Sockets
	env, stdout, stderr = surroundings()
	env.Sockets = cli.Sockets{Listen: sockets.Listen, Dial: sockets.Dial}
	return env, stdout, stderr
}

// decode decodes the one JSON document that a run printed, and fails the test when it printed anything else.
func decode[T any](t *testing.T, o outcome) *T {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader([]byte(o.stdout)))
	dec.DisallowUnknownFields()
	var doc T
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("stdout is not a %T: %v\nstdout: %s\nstderr: %s", doc, err, o.stdout, o.stderr)
	}
	if dec.More() {
		t.Fatalf("more than one document on stdout:\n%s", o.stdout)
	}
	return &doc
}

// codes returns the codes of a report's causes, in their order.
func codes(r *checks.Report) []string {
	var list []string
	for _, c := range r.Causes {
		list = append(list, c.Code)
	}
	return list
}

// sequence returns what of the list is wanted, in the order in which it is wanted, as far as it is there.
func sequence[T comparable](list, want []T) (got []T) {
	for _, w := range want {
		i := slices.Index(list, w)
		if i < 0 {
			break
		}
		got, list = append(got, w), list[i+1:]
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
