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
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
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
	if err := cli.Publish(f, path, err); err != nil {
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

const (
	// The last archive and the last uploads have this time when the agent ends: 10 s with endTime and the rest.
	lastCapture = 4 * time.Second
	lastUploads = 8500 * time.Millisecond
	// leavingEvery is how often at most an archive is made of one cause because the node is about to be removed.
	leavingEvery = 10 * time.Minute
	// noCause names the archive of a node that is about to be removed, is not well, and has no cause.
	noCause = "NodeLeaving"
)

// spareBytes is the largest size of an archive that finds no room on the disk, and waits in memory to be uploaded.
const spareBytes = 4 << 20

// startUploads sends archives away, with --upload, also those that were not sent before a restart. Without a target it
// does nothing.
func (s *service) startUploads(ctx context.Context, target *upload.Target) {
	if target == nil {
		return
	}
	// What is packed and sent when the agent is told to end still has some time.
	s.evidence, s.endEvidence = context.WithCancel(context.WithoutCancel(ctx))
	s.uploads = upload.NewQueue(upload.QueueOptions{
		Target: target, Dir: filepath.Join(s.opts.dataDir, recorder.CapturesDir), Node: s.opts.node(s.env),
		Done: s.metrics.Uploaded,
		Log: func(name, where, problem string) {
			if problem != "" {
				s.log.Warn("upload", "name", name, "to", where, "problem", problem)
				return
			}
			s.log.Info("uploaded", "name", name, "to", where)
		},
	})
	s.metrics.Uploads(s.uploads.Pending)
	s.resumeUploads(ctx)
	go s.uploads.Run(s.evidence)
	if s.publisher != nil {
		go s.publisher.WatchLeaving(ctx, s.leave)
	}
}

// resumeUploads queues what was not sent.
func (s *service) resumeUploads(ctx context.Context) {
	if s.uploads == nil {
		return
	}
	if err := s.uploads.Resume(ctx); err != nil {
		s.log.Warn("archives of before are not uploaded", "error", err)
	}
}

// leave packs and sends the evidence of a node that is about to be removed, unless it is well.
func (s *service) leave(why string, ready bool) {
	s.log.Warn("the node is about to be removed", "why", why)
	s.mu.Lock()
	now := s.seen
	s.mu.Unlock()
	if now != nil {
		well := now.report.Status == checks.Healthy || now.report.Status == checks.Degraded
		if !well || !ready {
			s.beginLast(s.evidence, now, leavingEvery)
		}
	}
	s.uploads.Hurry()
}

// beginLast begins to write an archive for the root cause of an observation, unless one was begun in the time before.
func (s *service) beginLast(ctx context.Context, of *observation, every time.Duration) {
	cause := noCause
	if len(of.report.Causes) > 0 {
		cause = of.report.Causes[0].Code
	}
	s.mu.Lock()
	atOnset := s.captured[cause+onsetKey]
	s.mu.Unlock()
	if time.Since(atOnset) >= every {
		s.begin(ctx, of, cause, cause, time.Now(), every)
	}
}

// finishUploads packs the evidence of a critical cause that has no archive yet, and sends what waits, within a time.
func (s *service) finishUploads() {
	if s.uploads == nil {
		return
	}
	defer s.endEvidence()
	ctx, cancel := context.WithTimeout(context.Background(), lastUploads)
	defer cancel()
	s.mu.Lock()
	now := s.seen
	s.mu.Unlock()
	if now != nil && now.report.Status == checks.Unhealthy {
		packing, cancel := context.WithTimeout(s.evidence, lastCapture)
		defer cancel()
		s.beginLast(packing, now, captureEvery)
	}
	select {
	case s.busy <- struct{}{}: // no archive is being made
		<-s.busy
	case <-ctx.Done():
	}
	s.uploads.Finish(ctx)
}
