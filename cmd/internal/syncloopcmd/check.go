package syncloopcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// check reports the first flag whose value makes no sense, before anything is started.
func (o *options) check(cmd *cobra.Command) error {
	if err := o.Check(cmd); err != nil {
		return err
	}
	for _, name := range []string{
		"manifests", "objects", "kubeconfig", "node-name", "root-dir", "log-dir", "config", "status-file", "log-file", "container-runtime-endpoint",
	} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return &cli.UsageError{Problem: "--" + name + " is empty", Hint: "leave it out, or give it a value"}
		}
	}
	if math.IsNaN(o.speed) || o.speed <= 0 || o.speed > 1000 {
		return &cli.UsageError{Problem: fmt.Sprintf("--speed %v makes no sense", o.speed), Hint: "give a factor from 1 to 1000, such as --speed 60"}
	}
	if cmd.Flags().Changed("evented") {
		o.kubelet["feature-gates"] = append(o.kubelet["feature-gates"], fmt.Sprintf("EventedPLEG=%t", o.evented))
	}
	return cmp.Or(o.checkAddresses(), o.checkInputs(), o.checkOutputs())
}

// checkAddresses looks at those that a kubelet takes as they are, only to say in its log that it cannot use them. In a file they are
// left to that; who types one wants to hear of a slip.
func (o *options) checkAddresses() error {
	for text := range strings.SplitSeq(strings.Join(o.kubelet["cluster-dns"], ","), ",") {
		if ip := strings.TrimSpace(text); ip != "" && net.ParseIP(ip) == nil {
			return &cli.UsageError{Problem: fmt.Sprintf("--cluster-dns %q is not an IP address", ip), Hint: "for example: --cluster-dns 10.96.0.10"}
		}
	}
	for _, text := range o.kubelet["manifest-url"] {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return &cli.UsageError{Problem: "--manifest-url is not a URL of http or https", Hint: "for example: --manifest-url http://127.0.0.1:8000/pods.yaml"}
		}
	}
	return nil
}

// checkInputs wants what is to be read to be there, and never a pipe or a device: to open one may last for ever. A kubelet waits for
// a folder of manifests that is not there; who types a path wants to hear of a slip.
func (o *options) checkInputs() error {
	for _, in := range []struct {
		flag, path, kind string
		fits             func(fs.FileMode) bool
	}{
		{"manifests", o.manifests, "a folder, or a regular file", func(m fs.FileMode) bool { return m.IsDir() || m.IsRegular() }},
		{"objects", o.objects, "a folder", fs.FileMode.IsDir},
		{"config", o.config, "a regular file", fs.FileMode.IsRegular},
		{"kubeconfig", o.kubeconfig, "a regular file", fs.FileMode.IsRegular},
	} {
		if in.path == "" {
			continue
		}
		info, err := os.Stat(in.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &cli.UsageError{Problem: fmt.Sprintf("--%s %s is not there", in.flag, in.path), Hint: "name " + in.kind + "; what belongs into a folder may come later"}
		case err != nil:
			return &cli.UsageError{Problem: fmt.Sprintf("--%s: %v", in.flag, err), Hint: "name " + in.kind + " that you may read"}
		case !in.fits(info.Mode()):
			return &cli.UsageError{Problem: fmt.Sprintf("--%s %s is of another kind", in.flag, in.path), Hint: "name " + in.kind}
		}
	}
	return nil
}

// checkOutputs wants the folders of what is to be written to be there, and nothing in its place but a file, or a device such as
// /dev/null: to open a pipe may last for ever.
func (o *options) checkOutputs() error {
	for _, out := range []struct{ flag, path string }{{"status-file", o.statusFile}, {"log-file", o.logFile}} {
		if out.path == "" {
			continue
		}
		bad := func(problem string) error {
			return &cli.UsageError{Problem: "--" + out.flag + " " + problem, Hint: "name a file in a folder that you may write to"}
		}
		if dir, err := os.Stat(filepath.Dir(out.path)); err != nil || !dir.IsDir() {
			return bad(out.path + ": there is no such folder")
		}
		if info, err := os.Stat(out.path); err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeCharDevice == 0 {
			return bad(out.path + " is there and is no regular file")
		}
	}
	return nil
}

// knock refuses an endpoint at which no runtime can answer, or that this user may not open.
func knock(ctx context.Context, endpoint string) error {
	c, err := answer.Knock(ctx, endpoint)
	if c.State == crictl.ConnectDenied {
		return &cli.UsageError{Problem: endpoint + " may not be opened by this user", Hint: "run kdiag as root (sudo kdiag ...)"}
	}
	return err
}

// notStarted says what to do when the syncLoop could not be made: the runtime is asked once more, to tell one that does not answer from
// settings that cannot be.
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
