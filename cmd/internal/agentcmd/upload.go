package agentcmd

import (
	"context"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/upload"
)

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
