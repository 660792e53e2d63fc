package agentcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	"github.com/kdiag/kdiag/crictl/deadline"
)

// writeCapture writes an archive of the evidence for a cause. The runtime is not asked again. What the disk does not
// take waits in memory where it can be uploaded.
func (s *service) writeCapture(ctx context.Context, of *observation, cause string) checks.TakenCapture {
	taken := checks.TakenCapture{At: time.Now().UTC().Truncate(time.Second), Cause: cause}
	name := checks.CaptureName(taken.At, cause)
	within, cancel := ctx, func() {}
	if s.uploads != nil {
		within, cancel = context.WithTimeout(ctx, packTime)
	}
	n, err := deadline.Run(within, "packing evidence on the disk", func(context.Context) (int64, error) {
		return s.packFile(ctx, of, name, cause)
	})
	cancel()
	if taken.Bytes = n; err == nil {
		taken.Path = filepath.Join(recorder.CapturesDir, name)
		if s.uploads != nil {
			s.uploads.Add(name, nil)
		}
		return taken
	}
	if taken.Error = err.Error(); s.uploads == nil {
		return taken
	}
	var spare bytes.Buffer
	if taken.Bytes, err = s.pack(ctx, of, &spare, spareBytes, ""); err != nil {
		taken.Error = err.Error()
		return taken
	}
	taken.Error = "in memory until it is uploaded: " + taken.Error
	s.uploads.Add(name, spare.Bytes())
	return taken
}

// packFile writes an archive into the folder of the records, and returns its size.
func (s *service) packFile(ctx context.Context, of *observation, name, cause string) (int64, error) {
	most, err := s.recorder.Room(ctx, s.opts.dataBytes/2)
	if err != nil {
		return 0, err
	}
	if most < bundle.LeastBytes {
		return 0, errors.New("the disk is full")
	}
	path := filepath.Join(s.opts.dataDir, recorder.CapturesDir, name)
	// An agent that was killed while it packed left these. Perhaps it took too much memory, most of it for the facts.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*-"+cause+".*"+part)) // the pattern is sound
	noFacts := ""
	if len(left) > 0 {
		noFacts = "kdiag agent was killed when it made this archive before"
	}
	f, err := bundle.Create(path + part) // it is listed when it is whole
	if err != nil {
		return 0, err
	}
	n, err := s.pack(ctx, of, f, most, noFacts)
	if err := publish(f, path, err); err != nil {
		return 0, err
	}
	for _, name := range left {
		_ = os.Remove(name) // else it is removed when room is needed
	}
	return n, nil
}

// pack writes an archive of at most so many bytes, and returns its size.
func (s *service) pack(ctx context.Context, of *observation, out io.Writer, most int64, noFacts string) (int64, error) {
	in := collect.Input{
		Since: time.Now().Add(-time.Hour), Facts: of.facts, Report: of.report, Credentials: s.credentials,
		APIServer: !s.opts.NoAPIServer, Log: strings.NewReader(""), NoFacts: noFacts,
		NoDumps: "not asked for (--capture-stacks)", Progress: func(string) {},
		Census: func(context.Context) (any, error) { return nil, errors.New("the runtime was not asked again") },
	}
	if s.opts.Simulate == "" {
		in.Root = s.env.Root
	}
	if s.opts.captureStacks {
		in.NoDumps = ""
		in.Dumps = s.watch.CaptureStacks(ctx)
	}
	_, n, err := archive.Write(ctx, s.env, out, bundle.Zst, most, redact.Standard, in)
	return n, err
}

// packTime is how long packing on the disk may take where memory can take its place.
const packTime = 12 * time.Second

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
