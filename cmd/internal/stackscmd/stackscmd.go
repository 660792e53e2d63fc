// Package stackscmd is kdiag stacks: the goroutines of runtime, shims and kubelet that wait, and who holds them up.
package stackscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/deadline"
)

type options struct {
	cli.Flags
	connection.KubeletFlags
	dumps.Selection

	next judge.StackCommands
	more string // the command that prints all
}

const long = `Read goroutine dumps of containerd, CRI-O, dockerd, shims or the kubelet and show who waits for what,
since when, and which goroutine probably holds it: the call that it serves, what it waits for itself, and the process
behind that. A holder is named only with a reason.

A FILE is what SIGUSR1 or SIGQUIT, /debug/pprof/goroutine?debug=2 or "ctr pprof goroutines" wrote: bare, or inside a
journal, syslog or container log, compressed or not; "-" is standard input, which is also read when nothing is named and
a pipe or a file is there. Of two dumps of one process, in two files or in one, the newer is analysed; goroutines that
the older has at the same place stand still. Two dumps count as of one process when program and pid agree or are not
known.

--capture, --shim and --kubelet take dumps of what runs here; what is done is printed before. The runtime and shims get
SIGUSR1, each only after it is proven to be what it seems and to handle that signal: any other process would die of it.
They write their dumps into their logs, or below /tmp and /run. The kubelet is asked for its dump at its own server. Of
a process that is too stuck to write a dump, the stacks of its threads in the kernel are shown.

Exit codes: 0 no goroutine holds up others; 1 a holder, a deadlock, a known way to hang, or a process that is stopped; 2
a dump could not be read or captured, and the others show nothing.`

// NewCommand returns kdiag stacks.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "stacks [FILE...]",
		Short: "Read or capture goroutine dumps: who waits for what, since when, and who holds it",
		Long:  long,
		Example: `  kdiag stacks --capture                        # the runtime that runs here
  kdiag stacks --capture --shim stuck --kubelet # with the shims that are stuck, and the kubelet
  kdiag stacks containerd.812.stacks.log        # a file
  kdiag stacks --from kdiag-node-7.tar.zst      # the dumps in an archive of kdiag bundle
  kdiag stacks before.txt after.txt             # what stands still
  journalctl -u containerd | kdiag stacks       # a dump in a log`,
		Args:    cobra.ArbitraryArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			env := opts.Host(env)
			named := len(args) > 0 || opts.captures() || opts.From != ""
			if !named && !cli.HoldsText(env.In) {
				return cli.Usage("no dump was named", "kdiag stacks FILE reads one; "+
					"sudo kdiag stacks --capture takes one of the running runtime")
			}
			if !named {
				args = []string{stdinName}
			}
			return run(cmd.Context(), env, opts, args)
		},
	}
	opts.AddFrom(cmd)
	opts.AddOutput(cmd)
	opts.AddEndpoint(cmd)
	opts.AddHostRoot(cmd)
	opts.AddFailOn(cmd)
	opts.AddVerbose(cmd, "print kdiag's log to stderr")
	opts.AddKubeletFlags(cmd, "do not ask the API server for the kubelet's dump where the kubelet refuses")
	fs := cmd.Flags()
	fs.BoolVar(&opts.Runtime, "capture", false, "capture a dump of the runtime: sends SIGUSR1 to its daemon")
	fs.StringVar(&opts.Shims, "shim", "",
		"capture dumps of shims: `ID|PID|stuck` (of a sandbox or container, a process, or all that are stuck)")
	fs.BoolVar(&opts.Kubelet, "kubelet", false, "capture a dump of the kubelet, from its own server")
	fs.BoolVar(&opts.Details, "details", false, "print all waits, holders and stacks")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", cli.DefaultTimeout, "end the whole command by then, whatever hangs")
	return cmd
}

func (o *options) captures() bool { return o.Selection != (dumps.Selection{}) }

func (o *options) check(cmd *cobra.Command, args []string) error {
	o.RPCTimeout = cli.DefaultRPCTimeout
	runtime := cli.RuntimeFlags()
	o.next = judge.StackCommands{
		Stacks: cli.CommandLine(cmd, "stacks", runtime...), Pleg: cli.CommandLine(cmd, "pleg", runtime...),
		Bundle: cli.CommandLine(cmd, "bundle", runtime...),
	}
	o.more = cli.CommandLine(cmd, "stacks", append(runtime, "from", "capture", "shim", "kubelet", "kubelet-token",
		"kubelet-cert", "kubelet-key", "no-api-server")...) + " --details"
	o.more = strings.Replace(o.more, " --runtime-endpoint ", " -r ", 1) // it is to fit a line
	for _, name := range args {
		o.more += " " + cli.Quote(name)
	}
	return cmp.Or(
		cli.RejectEmpty(cmd, "shim"),
		cli.Reject(strings.HasPrefix(o.Shims, "-"), "--shim "+o.Shims+" is not an id, a pid or the word stuck",
			"for example --shim stuck"),
		o.CheckFrom(cmd, args), o.CheckKubeletFlags(cmd), o.Check(cmd, nil),
	)
}

// stdinName is how a person names standard input.
const stdinName = "-"

func run(ctx context.Context, env cli.Env, opts options, files []string) error {
	debug.SetGCPercent(40) // a sick node is short of memory
	within, cancel := opts.Within(ctx)
	defer cancel()
	head := document.Header(env, "stacks", checks.KindStacksReport)
	all := &dumps.Set{}
	switch {
	case opts.From != "":
		b, err := archive.Open(within, env, &opts.Flags, "--from", opts.From)
		if err != nil {
			return err
		}
		defer b.Close()
		if all, err = b.Dumps(within); err != nil {
			return err
		}
		b.Say(env)
		head.Host, head.GeneratedAt = b.Host, cmp.Or(b.At, head.GeneratedAt)
		opts.next.Bundle = "" // the evidence is kept already
	case opts.captures():
		var err error
		if all, err = opts.captureDumps(within, env); err != nil {
			return err
		}
	default:
		head.Host = "" // of the dumps, which is not known
	}
	read, unread := readFiles(within, env, files)
	all.Dumps, all.Problems = append(read.Dumps, all.Dumps...), append(all.Problems, read.Problems...)
	none := !slices.ContainsFunc(all.Dumps, func(d *stacks.Dump) bool { return len(d.Goroutines) > 0 })
	if opts.Output == string(render.Text) && !opts.captures() && none && unread != nil && ctx.Err() == nil {
		return cli.Fail(unread, cli.ExitUnknown, hint(unread))
	}
	r, err := deadline.Run(within, "analysing the dumps", func(ctx context.Context) (*checks.StacksReport, error) {
		return all.Report(ctx), nil
	})
	if err != nil {
		r = &checks.StacksReport{}
		all.Problems = append(all.Problems, "working out who waits for whom: "+err.Error())
	}
	r.Header = head
	r.Problems = append(r.Problems, all.Problems...)
	opts.next.Elsewhere = !opts.captures()
	judge.Stacks(r, opts.next)
	how := document.Options(env, &opts.Flags)
	how.More = opts.more
	if err := render.Stacks(env.Out, r, how); err != nil {
		return err
	}
	return document.Exit(ctx, r.Status, opts.FailOn)
}

// captureDumps captures the dumps that flags select, and prints each step before it.
func (o *options) captureDumps(ctx context.Context, env cli.Env) (*dumps.Set, error) {
	var one sync.Mutex
	say := func(line string) {
		one.Lock()
		defer one.Unlock()
		_, _ = fmt.Fprintln(env.Err, "kdiag: "+render.Printable(line))
	}
	return dumps.Take(ctx, env, &o.Flags, o.Selection, &o.KubeletFlags, say)
}

// readFiles reads the dumps in files. The error is of the first file that was not read to its end.
func readFiles(ctx context.Context, env cli.Env, names []string) (all dumps.Set, first error) {
	for _, name := range names {
		open := func() (io.ReadCloser, error) { return open(name) }
		if name == stdinName {
			name, open = "standard input", func() (io.ReadCloser, error) { return io.NopCloser(env.In), nil }
		}
		if err := all.Read(ctx, checks.StackSource{Name: name}, open); err != nil && first == nil {
			first = fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, first
}

// open opens a file or a pipe, such as bash makes of <(command).
func open(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return nil, errors.New("is a folder; name the files in it")
	}
	return f, nil
}

// hint returns the hint for an error of reading.
func hint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "run kdiag as root: sudo kdiag stacks ..."
	case errors.Is(err, fs.ErrNotExist):
		return "check the path; sudo kdiag stacks --capture takes a dump of the running runtime"
	case dumps.IsNoDump(err):
		return "a dump begins with lines such as \"goroutine 1 [select, 4 minutes]:\"; " +
			"sudo kdiag stacks --capture takes one of the running runtime"
	}
	return "kdiag stacks --help shows what can be read"
}
