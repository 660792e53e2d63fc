package syncloopcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// check reports the first flag with a bad value, before anything is started.
func (o *options) check(cmd *cobra.Command) error {
	if err := o.Check(cmd); err != nil {
		return err
	}
	if err := cmp.Or(
		cli.RejectEmpty(cmd, "manifests", "objects", "kubeconfig", "node-name", "root-dir", "log-dir", "config",
			"status-file", "log-file", "container-runtime-endpoint"),
		cli.Reject(math.IsNaN(o.speed) || o.speed <= 0 || o.speed > 1000, fmt.Sprintf("--speed %v makes no sense", o.speed),
			"give a factor from 1 to 1000, such as --speed 60"),
	); err != nil {
		return err
	}
	if cmd.Flags().Changed("evented") {
		o.kubelet["feature-gates"] = append(o.kubelet["feature-gates"], fmt.Sprintf("EventedPLEG=%t", o.evented))
	}
	return o.checkFiles()
}

// checkFiles checks that inputs exist and that files are files, or for the log a device such as /dev/null: opening a
// pipe may last forever. A kubelet waits for a missing folder of manifests; here it is probably a typing error.
func (o *options) checkFiles() error {
	dir, file, device := fs.FileMode.IsDir, fs.FileMode.IsRegular, func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }
	for _, f := range []struct {
		flag, path, kind string
		fits             []func(fs.FileMode) bool
		output           bool
	}{
		{"manifests", o.manifests, "a folder or a regular file", []func(fs.FileMode) bool{dir, file}, false},
		{"objects", o.objects, "a folder", []func(fs.FileMode) bool{dir}, false},
		{"config", o.config, "a regular file", []func(fs.FileMode) bool{file}, false},
		{"kubeconfig", o.kubeconfig, "a regular file", []func(fs.FileMode) bool{file}, false},
		{"status-file", o.statusFile, "a file in a folder that you may write to", []func(fs.FileMode) bool{file}, true},
		{"log-file", o.logFile, "a file in a folder that you may write to", []func(fs.FileMode) bool{file, device}, true},
	} {
		if f.path == "" {
			continue
		}
		info, err := os.Stat(f.path)
		if f.output && errors.Is(err, fs.ErrNotExist) {
			if _, err = os.Stat(filepath.Dir(f.path)); err == nil {
				continue
			}
		}
		problem := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problem = " does not exist"
			if f.output {
				problem = ": its folder does not exist"
			}
		case err != nil:
			problem = ": " + err.Error()
		case !slices.ContainsFunc(f.fits, func(fits func(fs.FileMode) bool) bool { return fits(info.Mode()) }):
			problem = " is not " + f.kind
			if f.output {
				problem = " is not a regular file"
			}
		}
		if problem != "" {
			return &cli.UsageError{Problem: "--" + f.flag + " " + f.path + problem, Hint: "name " + f.kind}
		}
	}
	return nil
}

// probe refuses an endpoint at which no runtime can answer, or that this user may not open.
func probe(ctx context.Context, endpoint string) error {
	c, err := target.Probe(ctx, endpoint)
	if c.State == crictl.ConnectDenied {
		return &cli.UsageError{Problem: endpoint + " may not be opened by this user", Hint: "run kdiag as root (sudo kdiag ...)"}
	}
	return err
}

// notStarted adds the next step to the error of a syncLoop that could not be made. It asks the runtime once more, to
// distinguish a runtime that does not answer from bad settings.
func notStarted(ctx context.Context, t *target.Target, err error) error {
	switch {
	case ctx.Err() != nil:
		return &cli.HintError{Err: err, Code: cli.ExitUnknown}
	case errors.Is(err, syncloop.ErrForeignLogs):
		return &cli.UsageError{Problem: err.Error(), Hint: "choose another folder with --log-dir"}
	}
	if _, call := t.Client.Version(ctx); !call.OK() {
		return &cli.HintError{Err: err, Code: cli.ExitProblem, Hint: "kdiag runtime says what is wrong with the socket"}
	}
	return &cli.UsageError{Problem: err.Error(), Hint: "the runtime answers; give other settings, such as --log-dir or --node-name: kdiag syncloop --help lists them"}
}
