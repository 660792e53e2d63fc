// Package mcpcmd is kdiag mcp: a server of the Model Context Protocol, through which an assistant asks what kdiag's
// commands answer.
package mcpcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
)

// NewCommand returns kdiag mcp.
func NewCommand(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Answer an assistant's questions: a Model Context Protocol server on stdin and stdout",
		Long: `Serve the Model Context Protocol on standard input and output, for an assistant that starts kdiag as its
tool. It offers the answers of kdiag node, pleg, journal, explain and fleet, and of an archive of kdiag bundle, each cut
to 32 KiB. It only reads, runs one command at a time, and ends with its input.

The flags select the node's runtime, as they do for kdiag node. The answers go to the assistant, and so to whoever runs
its model; they contain names of pods, nodes, mounts and processes, and lines of logs, but neither secrets, environment
variables nor command lines of containers.`,
		Example: `  kdiag mcp
  kdiag mcp --simulate inspect-hang   # to try an assistant without a node`,
		Args:    cobra.NoArgs,
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if env.InTTY {
				return cli.Usage("standard input is a terminal", "an assistant starts kdiag mcp; see docs/assistants.md")
			}
			s := &server{env: env, busy: make(chan struct{}, 1)}
			cmd.Flags().Visit(func(f *pflag.Flag) { s.flags = append(s.flags, "--"+f.Name+"="+f.Value.String()) })
			return s.serve(cmd.Context())
		},
	}
	flags.AddEndpoint(cmd)
	flags.AddHostRoot(cmd)
	cmd.Flags().StringVar(&flags.Simulate, "simulate", "", "ask the embedded runtime in this scenario instead")
	_ = cmd.RegisterFlagCompletionFunc("simulate",
		cobra.FixedCompletions(fake.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const (
	// maxText bounds an answer, in bytes: some 8,000 tokens.
	maxText = 32 << 10
	// maxOutput bounds the output that is read of a command, in bytes.
	maxOutput = 16 << 20
	// maxTime bounds a command. All end by themselves before, but for logs of many gigabytes.
	maxTime = 5 * time.Minute
	// endTime is the time that an interrupted command gets to end.
	endTime = 5 * time.Second
)

// A server answers the calls of one client.
type server struct {
	env   cli.Env
	flags []string      // of kdiag node and pleg
	busy  chan struct{} // holds an element while a command runs
}

type (
	nodeInput struct {
		Quick bool `json:"quick,omitempty" jsonschema:"only ask whether the runtime lets PLEG work; answers in seconds"`
	}
	bundleInput struct {
		Path string `json:"path" jsonschema:"an archive that kdiag bundle wrote"`
	}
	journalInput struct {
		Files []string `json:"files,omitempty" jsonschema:"logs to read; the node's journal by default"`
		Since string   `json:"since,omitempty" jsonschema:"a time, or how long ago, such as 2h"`
	}
	explainInput struct {
		Name string `json:"name" jsonschema:"a cause such as InspectHang, a known bug, or a known way to hang"`
	}
	fleetInput struct {
		Context  string `json:"context,omitempty" jsonschema:"a context of the kubeconfig"`
		Selector string `json:"selector,omitempty" jsonschema:"a label selector of the nodes"`
		Logs     bool   `json:"logs,omitempty" jsonschema:"also judge what the kubelets logged in the last hour"`
	}
)

// A verdict is the part of a report that an assistant needs; docs/report.md describes the fields.
type verdict struct {
	Status   checks.Verdict  `json:"status"`
	Causes   []checks.Cause  `json:"causes" jsonschema:"most likely first; causedBy names the cause that explains one"`
	Checks   []checks.Result `json:"checks" jsonschema:"the checks that are not ok"`
	Problems []string        `json:"problems"`
	Notes    []string        `json:"notes"`
}

// serve answers until the input ends.
func (s *server) serve(ctx context.Context) error {
	m := mcp.NewServer(&mcp.Implementation{Name: "kdiag", Version: cli.Version()}, &mcp.ServerOptions{
		Instructions: "kdiag tells why a Kubernetes node is NotReady. Begin with diagnose_node on the node itself, with " +
			"fleet_nodes for a cluster. A cause has evidence for and against it, what could not be seen, and next " +
			"steps. Nothing here changes a node.",
		Capabilities: &mcp.ServerCapabilities{},
	})
	mcp.AddTool(m, tool("diagnose_node", "Diagnose this node: the root cause, its evidence, the culprit, next steps"),
		func(ctx context.Context, _ *mcp.CallToolRequest, in nodeInput) (*mcp.CallToolResult, *verdict, error) {
			command := "node"
			if in.Quick {
				command = "pleg"
			}
			return s.report(ctx, append([]string{command}, s.flags...)...)
		})
	mcp.AddTool(m, tool("read_bundle", "Diagnose a node from its archive of evidence, on any machine"),
		func(ctx context.Context, _ *mcp.CallToolRequest, in bundleInput) (*mcp.CallToolResult, *verdict, error) {
			return s.report(ctx, "node", "--from="+in.Path)
		})
	mcp.AddTool(m, tool("read_journal", "Find incidents of PLEG, and other known failures, in logs"),
		func(ctx context.Context, _ *mcp.CallToolRequest, in journalInput) (*mcp.CallToolResult, any, error) {
			args := append([]string{"journal"}, option("since", in.Since)...)
			return s.text(ctx, append(append(args, "--"), in.Files...)...)
		})
	mcp.AddTool(m, tool("explain_cause", "Explain a cause: what happens, how to confirm it, how to fix it, sources"),
		func(ctx context.Context, _ *mcp.CallToolRequest, in explainInput) (*mcp.CallToolResult, any, error) {
			return s.text(ctx, "explain", "--", in.Name)
		})
	mcp.AddTool(m, tool("fleet_nodes", "List the sick nodes of the cluster, grouped by cause"),
		func(ctx context.Context, _ *mcp.CallToolRequest, in fleetInput) (*mcp.CallToolResult, any, error) {
			args := append([]string{"fleet"}, option("context", in.Context)...)
			args = append(args, option("selector", in.Selector)...)
			if in.Logs {
				args = append(args, "--logs")
			}
			return s.text(ctx, args...)
		})
	err := m.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(s.env.In), Writer: nopCloser{s.env.Out}})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// tool describes a tool. None changes anything.
func tool(name, description string) *mcp.Tool {
	return &mcp.Tool{
		Name: name, Description: description,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}
}

// option returns a flag, nothing for an empty value.
func option(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{"--" + name + "=" + value}
}

// report runs a command that prints a report, and returns the report as text and as a verdict.
func (s *server) report(ctx context.Context, args ...string) (*mcp.CallToolResult, *verdict, error) {
	out, problem, err := s.run(ctx, append(args, "--output=json")...)
	if err != nil {
		return nil, nil, err
	}
	var r checks.Report
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, nil, fmt.Errorf("reading the report: %w", err)
	}
	if r.Kind != "Report" {
		return nil, nil, errors.New(problem)
	}
	var text bytes.Buffer
	if err := render.Report(&text, &r, render.Options{Format: "text", NoWrap: true}); err != nil {
		return nil, nil, err
	}
	v := &verdict{
		Status: r.Status, Causes: limit(r.Causes), Problems: limit(r.Problems), Notes: limit(r.Notes),
		Checks: []checks.Result{},
	}
	for _, c := range r.Checks {
		if c.Status == checks.StatusWarning || c.Status == checks.StatusCritical || c.Status == checks.StatusUnknown {
			v.Checks = append(v.Checks, c)
		}
	}
	for i := range v.Causes {
		e := &v.Causes[i].Evidence
		e.For, e.Against, e.Missing = limit(e.For), limit(e.Against), limit(e.Missing)
	}
	return result(text.String()), v, nil
}

// text runs a command and returns what it prints.
func (s *server) text(ctx context.Context, args ...string) (*mcp.CallToolResult, any, error) {
	out, _, err := s.run(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	return result(string(out)), nil, nil
}

// limit returns the first elements of a list, which is never nil.
func limit[T any](list []T) []T {
	const most = 20
	return append([]T{}, list[:min(len(list), most)]...)
}

// result returns a text, cut after its last whole line where it is too long.
func result(text string) *mcp.CallToolResult {
	if len(text) > maxText {
		head := text[:maxText]
		head = head[:strings.LastIndexByte(head, '\n')+1]
		text = head + fmt.Sprintf("(%d more bytes are left out)\n", len(text)-len(head))
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// run runs kdiag and returns its output, and what it wrote to standard error. Each run is a process of its own, which
// ends on time whatever hangs. A run that printed no result is an error, in kdiag's words.
func (s *server) run(ctx context.Context, args ...string) (out []byte, problem string, err error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	stdout, stderr := &head{left: maxOutput}, &head{left: maxText}
	cmd := exec.CommandContext(ctx, s.env.Self, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	err = cmd.Run()
	problem = strings.TrimSpace(stderr.String())
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case err != nil && !errors.As(err, &ended):
		return nil, "", fmt.Errorf("starting kdiag: %w", err)
	case stdout.Len() == 0:
		return nil, "", errors.New(cmp.Or(problem, "kdiag printed nothing"))
	case stdout.left == 0:
		return nil, "", fmt.Errorf("kdiag printed more than %d bytes", maxOutput)
	}
	return stdout.Bytes(), problem, nil
}

// A head keeps the first bytes of an output.
type head struct {
	bytes.Buffer
	left int
}

func (h *head) Write(p []byte) (int, error) {
	kept, _ := h.Buffer.Write(p[:min(len(p), h.left)])
	h.left -= kept
	return len(p), nil
}
