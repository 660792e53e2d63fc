package connection

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
)

// simulate starts the embedded runtime.
func (c *Connection) simulate(ctx context.Context, env cli.Env, name string) error {
	scenario, err := Scenario(ctx, name)
	if err != nil {
		return err
	}
	server, err := fake.New(scenario)
	if err != nil {
		return cli.Usage(err.Error(), "kdiag pleg --simulate help lists the scenarios")
	}
	server.Listen = env.Sockets.Listen
	base := os.TempDir()
	if len(base) > 60 {
		base = "/tmp" // the kernel allows a socket's path 107 bytes
	}
	dir, err := os.MkdirTemp(base, "kdiag-")
	if err != nil {
		return cli.Usage("making a folder for the embedded runtime's socket: "+err.Error(), cli.TempHint)
	}
	path := filepath.Join(dir, "cri.sock")
	// The runtime outlives ctx until Close: a node does not go away because kdiag's time is up.
	stop, err := fake.Listen(context.WithoutCancel(ctx), server, path)
	if err != nil {
		_ = os.RemoveAll(dir)
		return fmt.Errorf("starting the embedded runtime: %w", err)
	}
	c.Endpoint = crictl.Endpoint{
		URL: "unix://" + path, Source: crictl.SourceSimulated,
		Reason: "the embedded runtime in scenario " + scenario.Name,
	}
	c.Socket, c.server, c.scenario = c.Endpoint.URL, server, name
	c.close = append(c.close, func() { stop(); _ = os.RemoveAll(dir) })
	return nil
}

// Scenario returns a built-in scenario by its name, or reads one from a file. A name with a slash or a dot
// is a file, whose reading ends with ctx.
func Scenario(ctx context.Context, name string) (fake.Scenario, error) {
	if s, ok := fake.Builtin(name); ok {
		return s, nil
	}
	if !strings.ContainsAny(name, "/.") {
		return fake.Scenario{}, cli.Usage(fmt.Sprintf("there is no scenario %q", name), cmp.Or(
			cli.DidYouMean("", name, fake.Names()),
			"kdiag pleg --simulate help lists them; a file needs a path, such as ./mine.yaml"))
	}
	data, err := deadline.Run(ctx, "reading "+name,
		func(context.Context) ([]byte, error) { return cli.ReadFile(name, maxScenario) })
	if err != nil {
		return fake.Scenario{}, cli.Usage("reading the scenario: "+err.Error(),
			"kdiag pleg --simulate help lists the built-in scenarios")
	}
	s, err := fake.Parse(data)
	s.Name = cmp.Or(s.Name, name)
	if err != nil {
		err = cli.Usage(fmt.Sprintf("%s: %v", name, err), "kdiag runtime serve --help shows the format")
	}
	return s, err
}

// maxScenario bounds a scenario file, in bytes. The built-in ones have a few thousand.
const maxScenario = 4 << 20

// PrintScenarios lists the built-in scenarios, a line each.
func PrintScenarios(w io.Writer) error {
	for _, s := range fake.Builtins() {
		if _, err := fmt.Fprintf(w, "%-20s %s\n", s.Name, s.Summary); err != nil {
			return err
		}
	}
	return nil
}
