package agentcmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/archive"
)

// writeCapture writes an archive of the evidence for a cause. The runtime is not asked again.
func (s *service) writeCapture(ctx context.Context, of *observation, cause string) checks.TakenCapture {
	taken := checks.TakenCapture{At: time.Now().UTC().Truncate(time.Second), Cause: cause}
	fail := func(err error) checks.TakenCapture {
		taken.Error = err.Error()
		return taken
	}
	most, err := s.recorder.Room(ctx, s.opts.dataBytes/2)
	if err != nil {
		return fail(err)
	}
	taken.Path = filepath.Join(recorder.CapturesDir, checks.CaptureName(taken.At, cause))
	path := filepath.Join(s.opts.dataDir, taken.Path)
	// An agent that was killed while it packed left these. Perhaps it took too much memory, most of it for the facts.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*-"+cause+".*"+part)) // the pattern is sound
	f, err := bundle.Create(path + part)                                              // it is listed when it is whole
	if err != nil {
		return fail(err)
	}
	in := collect.Input{
		Since: taken.At.Add(-time.Hour), Facts: of.facts, Report: of.report, Credentials: s.credentials,
		APIServer: !s.opts.NoAPIServer, Log: strings.NewReader(""),
		NoDumps: "not asked for (--capture-stacks)", Progress: func(string) {},
		Census: func(context.Context) (any, error) { return nil, errors.New("the runtime was not asked again") },
	}
	if s.opts.Simulate == "" {
		in.Root = s.env.Root
	}
	if len(left) > 0 {
		in.NoFacts = "kdiag agent was killed when it made this archive before"
	}
	if s.opts.captureStacks {
		in.NoDumps = ""
		in.Dumps = s.watch.CaptureStacks(ctx)
	}
	_, taken.Bytes, err = archive.Write(ctx, s.env, f, bundle.Zst, most, redact.Standard, in)
	if err := publish(f, path, err); err != nil {
		return fail(err)
	}
	for _, name := range left {
		_ = os.Remove(name) // else it is removed when room is needed
	}
	return taken
}

// part ends the name of an archive that is being made.
const part = ".part"

// publish closes a file that was written, and gives it its name, unless writing it failed, as err says: then it is
// removed.
func publish(f *os.File, path string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is returned
	}
	return err
}
