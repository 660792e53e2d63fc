//go:build e2e

// Package e2etest breaks real runtimes and nodes, runs kdiag on them, and checks its reports. Each package of
// end-to-end
// tests has its own namespaces: see nodebox.Main.
package e2etest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// An Outcome is what one run of kdiag left.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Kdiag runs a command, with nothing of the caller's environment but the path. The end of ctx interrupts it.
func Kdiag(ctx context.Context, t testing.TB, args ...string) Outcome {
	t.Helper()
	cmd := exec.CommandContext(ctx, Program(t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return start(t, cmd).Wait()
}

// A Process is kdiag as a program that runs.
type Process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// Start starts kdiag, with more in its environment.
func Start(t *testing.T, env []string, args ...string) *Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Program(t), args...)
	cmd.Env = append(os.Environ(), env...)
	return start(t, cmd)
}

func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	Must(t, p.Start())
	return p
}

// Wait waits for the end of the program.
func (p *Process) Wait() Outcome {
	_ = p.Cmd.Wait() // the exit code shows how it ended
	return Outcome{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

// Decode decodes the one JSON document that a run printed, and fails the test when it printed anything else.
func Decode[T any](t *testing.T, o Outcome) *T {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(o.Stdout))
	dec.DisallowUnknownFields()
	var doc T
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("stdout is not a %T: %v\nstdout: %s\nstderr: %s", doc, err, o.Stdout, o.Stderr)
	}
	if dec.More() {
		t.Fatalf("more than one document on stdout:\n%s", o.Stdout)
	}
	return &doc
}

// Report decodes the report of kdiag pleg or node.
func (o Outcome) Report(t *testing.T) *checks.Report {
	t.Helper()
	return Decode[checks.Report](t, o)
}

// Codes returns the codes of a report's causes, in their order.
func Codes(r *checks.Report) []string {
	var list []string
	for _, c := range r.Causes {
		list = append(list, c.Code)
	}
	return list
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Read reads a file.
func Read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	Must(t, err)
	return string(text)
}

// Documents decodes the documents of a YAML file in testdata, with values for its variables: ${NAME}, value, and so on.
func Documents[T any](t *testing.T, file string, values ...string) (all []*T) {
	t.Helper()
	text := strings.NewReplacer(values...).Replace(Read(t, filepath.Join("testdata", file)))
	for doc := range strings.SplitSeq(text, "\n---\n") {
		one := new(T)
		Must(t, yaml.UnmarshalStrict([]byte(doc), one))
		all = append(all, one)
	}
	return all
}

// OpenBundle opens an archive, and returns the text of its files by path.
func OpenBundle(t *testing.T, archive string) (*bundle.Bundle, map[string]string) {
	t.Helper()
	b, err := bundle.Open(t.Context(), strings.NewReader(archive))
	Must(t, err)
	defer b.Close()
	if !b.Intact {
		t.Errorf("the archive is not intact: %v", b.Manifest.Problems)
	}
	manifest, err := json.Marshal(b.Manifest)
	Must(t, err)
	files := map[string]string{bundle.ManifestName: string(manifest)}
	for _, name := range b.Names("") {
		r, err := b.File(name)
		Must(t, err)
		text, err := io.ReadAll(r)
		Must(t, err)
		files[name] = string(text)
	}
	return b, files
}

// Proxy starts a proxy before a runtime, and returns its endpoint, and what sets its faults.
func Proxy(t *testing.T, backend string) (endpoint string, set func(faults ...fake.Fault)) {
	t.Helper()
	endpoint = "unix://" + filepath.Join(t.TempDir(), "proxy.sock")
	proxy, err := fault.New(fault.Config{Backend: backend, Listen: endpoint})
	Must(t, err)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		Must(t, <-ended)
	})
	return endpoint, func(faults ...fake.Fault) { Must(t, proxy.SetFaults(faults, nil)) }
}

// NewBox prepares a whole node, with kdiag in its path, that ends with the test. It is not booted yet.
func NewBox(t *testing.T) *nodebox.Box {
	t.Helper()
	box := nodebox.TestBox(t)
	Must(t, box.CopyIn(Program(t), "/usr/local/bin/kdiag"))
	return box
}

// Program returns the path of kdiag, which make built once.
func Program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("KDIAG_BIN")
	if !strings.HasPrefix(path, "/") {
		t.Fatal("KDIAG_BIN is not the absolute path of kdiag: run make e2e")
	}
	return path
}
