package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// A Question is what a diagnosing command asks.
type Question struct {
	Name    string // of the command
	Measure plegbench.Options
	Limits  checks.Limits
	Looks   Looks
}

// Diagnose asks the runtime, the node and the logs at the same time, has the answer judged and shown, and maps its
// verdict to the exit code.
func Diagnose[D checks.Answer](
	ctx context.Context, env cli.Env, f *cli.Flags, q Question,
	judge func(checks.Header, *facts.Input) D, show func(io.Writer, D, render.Options) error,
) error {
	if f.From != "" {
		return diagnoseStored(ctx, env, f, q.Name, judge, show)
	}
	env = f.Host(env)
	since := recorded(ctx, env, f)
	in, problems, err := Ask(ctx, env, f, q)
	if err != nil {
		return err
	}
	doc := judge(Header(env, q.Name, ""), in)
	if r, ok := any(doc).(*checks.Report); ok && len(r.Causes) > 0 {
		r.Recorded = since()
	}
	return conclude(ctx, env, f, doc, problems, show)
}

// Complete adds to an answer what kept kdiag from looking, and what to do about the first cause.
func Complete(doc checks.Answer, problems []string) {
	head, _, causes := doc.Answer()
	head.Problems = append(append([]string{}, problems...), head.Problems...) // [] in JSON where there are none
	if len(causes) > 0 {
		head.NextSteps = causes[0].NextSteps
	}
}

// conclude completes and shows an answer, and maps its verdict to the exit code.
func conclude[D checks.Answer](
	ctx context.Context, env cli.Env, f *cli.Flags, doc D, problems []string,
	show func(io.Writer, D, render.Options) error,
) error {
	Complete(doc, problems)
	if err := show(env.Out, doc, Render(env, f)); err != nil {
		return err
	}
	head, _, _ := doc.Answer()
	return Exit(ctx, head.Status, f.FailOn)
}

// Ask asks with progress on standard error, and returns what the judge needs and what kept kdiag from looking. It ends
// with the flags' timeout whatever hangs. A runtime that cannot be found or opened is a fact for the report. The error
// is one of usage, or of kdiag itself.
func Ask(ctx context.Context, env cli.Env, f *cli.Flags, q Question) (*facts.Input, []string, error) {
	progress := NewProgress(env)
	q.Measure.Progress = progress.Update
	in, err := gather(ctx, env, f, q)
	progress.Done()
	return asked(in, err, f.Output)
}

// asked returns what kept kdiag from asking, for a document of a format.
func asked(in *facts.Input, err error, format string) (*facts.Input, []string, error) {
	if err == nil {
		switch c := in.Measurement.Connect; {
		case c.State == crictl.ConnectDenied:
			return in, []string{denied(in.Runtime.Endpoint)}, nil
		case facts.NamedTTRPC(in):
			err = cli.Usage(in.Runtime.Endpoint+" is containerd's ttrpc socket, for its shims",
				facts.CRISocketBeside(in.Runtime.Endpoint))
		}
	}
	problems, err := Unopened(err, format)
	return in, problems, err
}

// Unopened splits the error of opening a runtime. That there is none to ask goes into the document, as does bad usage
// where a program asked for a document: it gets one. The rest is returned as an error.
func Unopened(err error, format string) (problems []string, _ error) {
	if none, ok := errors.AsType[*crictl.NoEndpointError](err); ok {
		problems = []string{"no runtime socket was found; name one with --runtime-endpoint"}
		return append(problems, passedOver(none.Tried)...), nil
	}
	if err == nil || format == string(render.Text) {
		return nil, err
	}
	_, message, hint := cli.ExitCode(err)
	return slices.DeleteFunc([]string{message, hint}, func(line string) bool { return line == "" }), nil
}

// passedOver lists the endpoints that were not taken, one line for each reason: most well-known sockets do not exist
// on any one node.
func passedOver(tried []crictl.Tried) []string {
	var lines []string
	at := map[string]int{}
	for _, t := range tried {
		if i, known := at[t.Why]; known {
			lines[i] += ", " + t.What
			continue
		}
		at[t.Why] = len(lines)
		lines = append(lines, t.Why+": "+t.What)
	}
	return lines
}

// denied is the problem of a user who may not open the socket.
func denied(endpoint string) string {
	return endpoint + ": permission denied; run with sudo"
}

// ProbeTimeout bounds Probe. The runtime behind a slower socket may hang.
const ProbeTimeout = time.Second

// Probe connects to an endpoint once, without an RPC. The error is one of usage for what is not a socket.
func Probe(ctx context.Context, env cli.Env, endpoint string) (crictl.Connect, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	c := crictl.Dialer(env.Sockets.Dial).Probe(ctx, endpoint)
	return c, cli.Reject(c.State == crictl.ConnectNotSocket, fmt.Sprintf("%s is not a socket: %s", endpoint, c.Err),
		"the socket of containerd is usually /run/containerd/containerd.sock, that of CRI-O /run/crio/crio.sock")
}

// NewProgress returns a progress line on standard error.
func NewProgress(env cli.Env) *render.Progress {
	return render.NewProgress(env.Err, env.ErrTTY, env.Width, env.ASCII())
}

// widest is the most columns of text in a terminal: longer lines are hard to read.
const widest = 100

// Render returns how to print to standard output: as wide as $COLUMNS, else as the terminal up to a limit, else without
// wrapping, so that a program finds each thing in one line.
func Render(env cli.Env, f *cli.Flags) render.Options {
	o := render.Options{
		Format: render.Format(f.Output), Color: env.Color(f.Color), Width: min(env.Width, widest),
		NoWrap: !env.OutTTY, ASCII: env.ASCII(), Details: f.Details, All: f.All,
	}
	if n, err := strconv.Atoi(env.Getenv("COLUMNS")); err == nil && n > 0 {
		o.Width, o.NoWrap = n, false
	}
	return o
}

// Exit maps a verdict to the exit code. A command that was interrupted could not tell, whatever it had seen by then.
func Exit(ctx context.Context, v checks.Verdict, failOn string) error {
	switch {
	case ctx.Err() != nil, v == checks.Unknown:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case v == checks.Unhealthy, v == checks.Degraded && failOn == "warning":
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// Header returns the head of a JSON document of a command.
func Header(env cli.Env, command, kind string) checks.Header {
	name, _ := env.Hostname() // empty where there is none
	return checks.Header{
		APIVersion: checks.APIVersion, Kind: kind, Command: strings.TrimSpace("kdiag " + command),
		GeneratedAt: env.Now().UTC().Truncate(time.Second), Host: name, KdiagVersion: Version(),
		Status: checks.Unknown, Problems: []string{},
	}
}

// version is that of a release: -ldflags "-X github.com/kdiag/kdiag/cmd/internal/target.version=v1.2.3".
var version string

// Version returns kdiag's version: that of the release, else the module's, as the Go command stamps it into the
// binary, with the commit where it is no release.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}
