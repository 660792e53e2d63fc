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
	"sync"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// stdinName is how a person names standard input.
const stdinName = "-"

func run(ctx context.Context, env cli.Env, opts options, files []string) error {
	debug.SetGCPercent(40) // a sick node is short of memory
	asking, _ := opts.Budget()
	within, cancel := context.WithTimeout(ctx, asking)
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
	if err := render.Stacks(env.Out, r, opts.more, document.Options(env, &opts.Flags)); err != nil {
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
