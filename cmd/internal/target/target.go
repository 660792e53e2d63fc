// Package target opens the runtime that a command asks: given, found on the host, or simulated.
package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// A Target is a runtime to ask. Nothing has been sent to it yet.
type Target struct {
	Endpoint crictl.Endpoint
	Kubelet  *crictl.Kubelet // nil in a simulation, or when no kubelet runs here
	Tried    []crictl.Tried  // what was passed over on the way to the endpoint
	NotTaken []crictl.Tried  // processes that call themselves kubelet and were not taken for the node's
	Client   *crictl.Client
	socket   string       // where Endpoint is for this process, which may see the host's files below another root
	fake     *fake.Server // in a simulation
	scenario string       // of a simulation, as it was given
	close    []func()
}

// Simulated reports whether the runtime is the embedded one.
func (t *Target) Simulated() bool { return t.Endpoint.Source == crictl.SourceSimulated }

// Close ends the connection and, in a simulation, the runtime.
func (t *Target) Close() {
	for i := len(t.close) - 1; i >= 0; i-- {
		t.close[i]()
	}
}

// Runtime describes the target for a report.
func (t *Target) Runtime() checks.Runtime {
	r := checks.Runtime{
		Endpoint:       t.Endpoint.URL,
		EndpointSource: string(t.Endpoint.Source),
		EndpointReason: t.Endpoint.Reason,
	}
	if t.Simulated() {
		r.Simulate = Quote(t.scenario)
	}
	return r
}

// Open finds the runtime that the flags mean. It returns a *cli.UsageError for a flag that makes no sense and a
// *crictl.NoEndpointError when the host has no runtime that could be asked.
func Open(ctx context.Context, env cli.Env, f *cli.Flags) (*Target, error) {
	_, rpc := f.Budget()
	t := &Target{}
	if f.Simulate != "" {
		if err := t.simulate(ctx, f.Simulate); err != nil {
			return nil, err
		}
	} else if err := t.discover(ctx, env, f.Endpoint); err != nil {
		return nil, err
	}
	t.socket = t.Endpoint.URL
	if !t.Simulated() {
		t.socket = below(env.Root, t.Endpoint.URL)
	}
	client, err := crictl.Dial(t.socket, crictl.Options{RPCTimeout: rpc})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("preparing a connection to %s: %w", t.Endpoint.URL, err)
	}
	t.Client = client
	t.close = append(t.close, func() { _ = client.Close() })
	return t, nil
}

// below returns a socket's address as this process sees it: below root, unless it is only there without.
func below(root, url string) string {
	path, ok := strings.CutPrefix(url, "unix://")
	if root == "/" || root == "" || !ok {
		return url
	}
	if here, err := inRoot(root, path); err == nil {
		return "unix://" + here
	}
	if _, err := os.Lstat(path); err == nil {
		return url
	}
	return "unix://" + filepath.Join(root, path)
}

// inRoot returns where a file of the host's is found by this process. Symbolic links lead where the host would follow them to:
// from root/var/run, which is a link to /run, to root/run, and not to a /run of our own.
func inRoot(root, path string) (string, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(dir, strings.TrimLeft(path, "/"), &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or filtered
		here := filepath.Join(root, path)
		_, err := os.Lstat(here)
		return here, err
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

func (t *Target) discover(ctx context.Context, env cli.Env, flag string) error {
	type found struct {
		d   crictl.Discovery
		err error
	}
	// Reading another process's files can block when it is stuck in the kernel.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	f, err := cli.Await(ctx, func(ctx context.Context) found {
		d, err := crictl.Discover(ctx, crictl.DiscoverOptions{Flag: flag, Getenv: env.Getenv, Root: env.Root})
		return found{d, err}
	})
	if err != nil {
		return fmt.Errorf("looking for the runtime's socket: %w", err)
	}
	if bad, ok := errors.AsType[*crictl.EndpointError](f.err); ok {
		return &cli.UsageError{Problem: bad.Error(), Hint: bad.Hint}
	}
	if f.err != nil {
		return f.err
	}
	t.Endpoint, t.Kubelet, t.Tried, t.NotTaken = f.d.Endpoint, f.d.Kubelet, f.d.Tried, f.d.NotTaken
	return nil
}

func (t *Target) simulate(ctx context.Context, name string) error {
	scenario, err := Scenario(ctx, name)
	if err != nil {
		return err
	}
	server, err := fake.New(scenario)
	if err != nil {
		return &cli.UsageError{Problem: err.Error(), Hint: "kdiag pleg --simulate help lists the scenarios"}
	}
	dir, err := socketDir()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "cri.sock")
	// The runtime outlives ctx until Close: a node does not go away because kdiag's time is up.
	stop, err := fake.Listen(context.WithoutCancel(ctx), server, path)
	if err != nil {
		_ = os.RemoveAll(dir)
		return fmt.Errorf("starting the embedded runtime: %w", err)
	}
	t.Endpoint = crictl.Endpoint{
		URL: "unix://" + path, Source: crictl.SourceSimulated,
		Reason: "the embedded runtime in scenario " + scenario.Name,
	}
	t.fake, t.scenario = server, name
	t.close = append(t.close, func() { stop(); _ = os.RemoveAll(dir) })
	return nil
}

// socketDir makes a folder for a socket whose path fits the 107 bytes that the kernel allows.
func socketDir() (string, error) {
	base := os.TempDir()
	if len(base) > 60 {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "kdiag-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the embedded runtime's socket: %w", err)
	}
	return dir, nil
}

// Scenario returns a built-in scenario by its name, or reads one from a file. What contains a slash or a dot is a file.
// Reading ends with ctx, whatever kind of file it is.
func Scenario(ctx context.Context, name string) (fake.Scenario, error) {
	if s, ok := fake.Builtin(name); ok {
		return s, nil
	}
	if !strings.ContainsAny(name, "/.") {
		return fake.Scenario{}, &cli.UsageError{
			Problem: fmt.Sprintf("there is no scenario %q", name),
			Hint:    "kdiag pleg --simulate help lists them; a file needs a path, such as ./mine.yaml",
		}
	}
	data, err := readScenario(ctx, name)
	if err != nil {
		return fake.Scenario{}, &cli.UsageError{
			Problem: "reading the scenario: " + err.Error(),
			Hint:    "kdiag pleg --simulate help lists the built-in scenarios",
		}
	}
	s, err := fake.Parse(data)
	if err != nil {
		return fake.Scenario{}, &cli.UsageError{
			Problem: fmt.Sprintf("%s: %v", name, err),
			Hint:    "kdiag runtime serve --help shows the format",
		}
	}
	if s.Name == "" {
		s.Name = name
	}
	return s, nil
}

// maxScenario bounds a scenario file, in bytes. The built-in ones have a few thousand.
const maxScenario = 4 << 20

// readScenario reads a file, unless it is a device or a pipe, which may never end.
func readScenario(ctx context.Context, name string) ([]byte, error) {
	type content struct {
		data []byte
		err  error
	}
	c, err := cli.Await(ctx, func(context.Context) content {
		info, err := os.Stat(name)
		if err != nil {
			return content{err: err}
		}
		if !info.Mode().IsRegular() {
			return content{err: fmt.Errorf("%s is no regular file", name)}
		}
		f, err := os.Open(name)
		if err != nil {
			return content{err: err}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxScenario+1))
		if len(data) > maxScenario {
			err = fmt.Errorf("%s is larger than %d bytes", name, maxScenario)
		}
		return content{data, err}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c.data, c.err
}

// PrintScenarios lists the built-in scenarios, a line each.
func PrintScenarios(w io.Writer) error {
	for _, s := range fake.Builtins() {
		if _, err := fmt.Fprintf(w, "%-20s %s\n", s.Name, s.Summary); err != nil {
			return err
		}
	}
	return nil
}
