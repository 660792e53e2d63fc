//go:build e2e

package e2etest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
)

// A Place is where kdiag runs, and what it is asked about.
type Place struct {
	Program string   // path of kdiag there
	Inside  []string // the command that runs another one there; empty for here
	Args    []string // of each question, such as --runtime-endpoint
	Limits  []string // of each question, such as --timeout
	Alone   bool     // no other test runs on the machine, so that no cause is ignored
	Acts    []Act    // what a controller can do there, the least first
	Culprit string   // the id or the name that CULPRIT stands for in a Want, where a Maker alone knows it
	Values  []string // of variables in files of faults: ${NAME}, value, and so on

	Shell func(make, undo string) Maker        // makes a fault with a command there, and undoes it with another
	Also  func(t *testing.T, r *checks.Report) // checks a report further, where a Maker sets it
}

// Patient are limits in which nothing but a fault makes a runtime fail on a busy machine.
var Patient = []string{"--timeout", "40s", "--rpc-timeout", "8s"}

// command returns a command that runs there, with nothing of the caller's environment but the path.
func (p Place) command(ctx context.Context, argv ...string) *exec.Cmd {
	argv = slices.Concat(p.Inside, argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = []string{"PATH=" + filepath.Dir(p.Program) + ":" + os.Getenv("PATH")}, "/"
	return cmd
}

// Ask runs a command of kdiag. One that has not ended long after its --timeout fails the test.
func (p Place) Ask(t *testing.T, args ...string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	o := start(t, p.command(ctx, append([]string{p.Program}, args...)...)).Wait()
	if ctx.Err() != nil {
		t.Fatalf("kdiag %s did not end: %s", strings.Join(args, " "), o.Stderr)
	}
	return o
}

// question returns the arguments with which kdiag is asked for a report.
func (p Place) question(command string, flags ...string) []string {
	return slices.Concat([]string{command, "-o", "json"}, p.Args, p.Limits, flags)
}

// Eventually waits until something is so, and fails the test when that takes longer than any busy machine explains.
func Eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	Await(t, what, func() error {
		if !so() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// Await is Eventually for a check that says what is wrong.
func Await(t *testing.T, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

var client = http.Client{
	Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// Get returns what a server answers, whatever its certificate, to a request with a token, unless that is empty.
func Get(ctx context.Context, url, token string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
