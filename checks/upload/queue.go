package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/deadline"
)

const (
	maxPending = 32                    // archives that wait
	giveUp     = 24 * time.Hour        // after the first attempt
	maxAfter   = 5 * time.Minute       // that a server may ask to wait
	logAgain   = 30 * time.Minute      // between log lines about a lasting failure
	diskTime   = 5 * time.Second       // for the names in a folder and for a marker
	lookEvery  = 20 * time.Millisecond // at what still waits
)

// retry is how long to wait after failures. Each pause is up to half as long again: the nodes of a cluster do not
// return to a server at once.
var retry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 12, Cap: 5 * time.Minute}

// SendAgain sends an archive, and again after failures until ctx ends.
func (t *Target) SendAgain(ctx context.Context, a Archive) error {
	var last error
	for delay := retry; ; {
		err := t.Send(ctx, a)
		failed, _ := errors.AsType[*Error](err)
		if failed == nil || failed.Final {
			return err
		}
		if ctx.Err() != nil {
			return cmp.Or(last, err) // the last is that the time is up
		}
		last = err
		select {
		case <-time.After(max(delay.Step(), min(failed.After, maxAfter))):
		case <-ctx.Done():
			return err
		}
	}
}

// QueueOptions are what a Queue sends.
type QueueOptions struct {
	Target *Target
	Dir    string // of the archives, which have the names of checks.CaptureName
	Node   string
	// Log is called with what happened; problem is empty where an archive was sent.
	Log func(name, where, problem string)
	// Done is called with each archive that was sent, or given up.
	Done func(sent bool)
}

// A Queue sends archives in the background, the newest first, and again after failures. What was sent has a file beside
// it that says so; the rest is found by Resume after a restart.
type Queue struct {
	opts QueueOptions
	send func(context.Context, Archive) error // of the target, but in tests
	wake chan struct{}

	mu      sync.Mutex
	pending []pending // the oldest first
}

type pending struct {
	checks.Capture
	data  []byte    // of one that is in no file
	tried time.Time // first; zero before
}

// NewQueue returns an empty queue.
func NewQueue(opts QueueOptions) *Queue {
	return &Queue{opts: opts, send: opts.Target.Send, wake: make(chan struct{}, 1)}
}

// Resume queues what is in the folder and was not sent. A disk that does not answer is an error.
func (q *Queue) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	entries, err := deadline.Run(ctx, "listing the archives", func(context.Context) ([]fs.DirEntry, error) {
		return os.ReadDir(q.opts.Dir)
	})
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, e := range entries { // their names begin with their time
		if !there[e.Name()+checks.CaptureSent] && e.Type().IsRegular() {
			q.Add(e.Name(), nil)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // nothing was captured yet
		return nil
	}
	return err
}

// Add queues an archive of the folder, or one that is in no file, and has it tried now. It does not wait for the
// server. Where too many wait, the oldest is given up. What has any other name is left out.
func (q *Queue) Add(name string, data []byte) {
	c, ok := checks.ParseCapture(name)
	if !ok {
		return
	}
	q.mu.Lock()
	if !slices.ContainsFunc(q.pending, func(p pending) bool { return p.Name == name }) {
		q.pending = append(q.pending, pending{Capture: c, data: data})
		slices.SortStableFunc(q.pending, func(a, b pending) int { return a.At.Compare(b.At) })
	}
	var over []pending
	if n := len(q.pending) - maxPending; n > 0 {
		over = slices.Clone(q.pending[:n])
	}
	q.mu.Unlock()
	for _, p := range over {
		q.end(p, fmt.Sprintf("given up: more than %d archives wait", maxPending))
	}
	q.Hurry()
}

// Hurry has what waits tried now.
func (q *Queue) Hurry() {
	select {
	case q.wake <- struct{}{}:
	default: // is woken already
	}
}

// Pending returns how many archives wait.
func (q *Queue) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// Finish waits until nothing waits any more, or ctx ends. Run must run.
func (q *Queue) Finish(ctx context.Context) {
	for q.Hurry(); q.Pending() > 0 && ctx.Err() == nil; {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// Run sends until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	delay, logged, last := retry, time.Time{}, ""
	for ctx.Err() == nil {
		next, ok := q.newest()
		if !ok {
			select {
			case <-q.wake:
			case <-ctx.Done():
			}
			continue
		}
		select { // it is tried now
		case <-q.wake:
			delay = retry
		default:
		}
		a := q.archive(next)
		err := within(ctx, 2*most, "uploading an archive", func(ctx context.Context) error { return q.send(ctx, a) })
		failed, _ := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case err == nil:
			q.end(next, "")
			delay, logged = retry, time.Time{}
			continue
		case failed != nil && failed.Final:
			q.end(next, err.Error())
			continue
		case time.Since(next.tried) >= giveUp:
			q.end(next, fmt.Sprintf("given up after %v: %v", giveUp, err))
			continue
		}
		if err.Error() != last || time.Since(logged) >= logAgain {
			q.opts.Log(next.Name, q.opts.Target.Where(a), err.Error()+"; it is tried again")
			last, logged = err.Error(), time.Now()
		}
		pause := delay.Step()
		if failed != nil {
			pause = max(pause, wait.Jitter(min(failed.After, maxAfter), retry.Jitter))
		}
		select {
		case <-time.After(pause):
		case <-q.wake: // the next archive, or the end
			delay = retry
		case <-ctx.Done():
		}
	}
}

// newest returns the newest archive that waits, and notes that it is tried.
func (q *Queue) newest() (pending, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 {
		return pending{}, false
	}
	p := &q.pending[len(q.pending)-1]
	if p.tried.IsZero() {
		p.tried = time.Now()
	}
	return *p, true
}

// within does work with a disk that may hang.
func within(ctx context.Context, limit time.Duration, name string, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := deadline.Run(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) })
	return err
}

func (q *Queue) archive(p pending) Archive {
	return Archive{
		Path: filepath.Join(q.opts.Dir, p.Name), Data: p.data, Node: q.opts.Node, Cause: p.Cause, At: p.At,
	}
}

// end takes an archive out of the queue: it was sent, unless there is a problem.
func (q *Queue) end(p pending, problem string) {
	q.opts.Done(problem == "")
	if problem == "" && p.data == nil {
		mark := filepath.Join(q.opts.Dir, p.Name+checks.CaptureSent)
		if err := within(context.Background(), diskTime, "marking an archive as sent", func(context.Context) error {
			return os.WriteFile(mark, nil, 0o600) // empty, so that it is there as a whole or not at all
		}); err != nil {
			problem = "sent, and to be sent again after a restart: " + err.Error()
		}
	}
	q.opts.Log(p.Name, q.opts.Target.Where(q.archive(p)), problem)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = slices.DeleteFunc(q.pending, func(o pending) bool { return o.Name == p.Name })
}
