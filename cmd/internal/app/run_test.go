package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// An outcome is what one run of kdiag left.
type outcome struct {
	code           int
	stdout, stderr string
}

// kdiag runs a command in this process, with nothing of the caller's environment.
func kdiag(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := app.Main(ctx, cli.Env{
		In: bytes.NewReader(nil), Out: &stdout, Err: &stderr,
		Now:      time.Now,
		Getenv:   func(string) string { return "" },
		Hostname: os.Hostname,
		Root:     "/",
		Width:    80,
	}, args)
	return outcome{code, stdout.String(), stderr.String()}
}

// report decodes the one JSON document that a run printed, and fails the test when it printed anything else.
func (o outcome) report(t *testing.T) *checks.Report {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader([]byte(o.stdout)))
	dec.DisallowUnknownFields()
	var r checks.Report
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("stdout is no report: %v\nstdout: %s\nstderr: %s", err, o.stdout, o.stderr)
	}
	if dec.More() {
		t.Fatalf("more than one document on stdout:\n%s", o.stdout)
	}
	return &r
}

func codes(r *checks.Report) []string {
	var list []string
	for _, c := range r.Causes {
		list = append(list, c.Code)
	}
	return list
}

// ofTheMachine reports whether a cause may be what other tests make real on this machine: their stopped shims, dead mounts and
// kills for memory. It is rightly said, and no test's of this runtime.
func ofTheMachine(code string) bool {
	return !slices.Contains([]string{
		"RuntimeDown", "RuntimeHung", "RuntimeSlow", "RuntimeNotReady", "RuntimeUnsupported", "NetworkNotReady", "CNIHung", "ListHang", "InspectHang",
		"ImageServiceHung", "ListTooLarge", "TooManyExited", "RelistOverloaded", "KubeletDown", "KubeletStalled", "KubeletCrashLooping", "PLEGUnhealthy",
		"CertificateExpired", "APIServerUnreachable", "SystemdWedged", "CgroupDriverMismatch", "ClockJumped", "MountsExploded", "CgroupsLeaked",
	}, code)
}

func ofThisRuntime(code string) bool { return !ofTheMachine(code) }

// wants checks the first cause, the verdict and the exit code together: they must not contradict each other.
func (o outcome) wants(t *testing.T, code string) *checks.Report {
	t.Helper()
	r := o.report(t)
	r.Causes = slices.DeleteFunc(r.Causes, func(c checks.Cause) bool { return c.Code != code && ofTheMachine(c.Code) })
	if got := codes(r); len(got) == 0 || got[0] != code {
		t.Errorf("causes %v, want %s first\n%s\n%s", got, code, o.stdout, o.stderr)
	}
	wantExit := map[checks.Verdict]int{checks.Healthy: 0, checks.Degraded: 0, checks.Unhealthy: 1, checks.Unknown: 2}[r.Status]
	if o.code != wantExit {
		t.Errorf("exit code %d with status %s, want %d", o.code, r.Status, wantExit)
	}
	return r
}

// couldNotTell reports whether a run says that it could not tell how the runtime is. A cause of the machine's is said all the same.
func (o outcome) couldNotTell(t *testing.T) bool {
	t.Helper()
	r := o.report(t)
	return r.Status == checks.Unknown && o.code == 2 || len(r.Causes) > 0 && !slices.ContainsFunc(codes(r), ofThisRuntime)
}
