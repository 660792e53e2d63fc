package host

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/together"
)

// How children are used.
const (
	// patience is how long one look may take until it is said to hang: a dead server answers after minutes or never, and
	// one that is merely far away within milliseconds.
	patience = 1500 * time.Millisecond
	// maxChildren are the children of one kind at a time, those that are stuck from earlier runs among them.
	maxChildren = 8
	// maxChildArgs bounds the paths that one child is given, in bytes; the kernel takes a quarter of the stack's limit.
	maxChildArgs = 128 << 10
	// lead is how long before the end of its time a look stops to wait, so that it can still say what it saw.
	lead = 400 * time.Millisecond
)

// An outcome is what became of a look at one path.
type outcome struct {
	asked   bool
	hung    bool
	reply   reply // when it was asked and does not hang
	waiting time.Duration
	pid     int // of the child that is still there
}

// A spot is what is looked at.
type spot struct {
	names  []string // of which the first is asked: a child of an earlier run may wait in any of them
	device string   // that it is on by the mount table; empty when that says nothing
}

// unseen is what became of a look at a mount that this process does not have: kdiag runs in a pod that sees the host's root
// as it was when the pod began, and may not look through the host's first process.
const unseen = "the mount is not seen from kdiag's mount namespace"

// An inquiry is looks at several paths by children: by one as long as all is well. The one that hangs is killed, what it
// had not come to yet is shared out among several, and so on. A child that the kill does not end keeps its place among
// maxChildren.
type inquiry struct {
	child    Child
	root     string
	verb     string
	patience time.Duration
	// alone says that the paths are one place: what hangs once is not tried again.
	alone bool
	// enough, if not 0, is the time after which no further path is begun.
	enough time.Duration

	base  string
	began time.Time
	paths []string
	known []earlier

	mu       sync.Mutex
	outcomes []outcome
	err      error
	places   chan struct{}
	free     int           // places that no stuck child holds for good
	none     chan struct{} // closed when free is 0
}

// ask makes the looks. It returns before ctx ends, and an error when a child could not be started.
func (q *inquiry) ask(ctx context.Context, spots []spot) ([]outcome, error) {
	if end, ok := ctx.Deadline(); ok {
		short, cancel := context.WithDeadline(ctx, end.Add(-min(lead, time.Until(end)/4)))
		defer cancel()
		ctx = short
	}
	q.base, q.began = hostBase(q.root), time.Now()
	q.outcomes = make([]outcome, len(spots))
	q.places, q.free, q.none = make(chan struct{}, maxChildren), maxChildren, make(chan struct{})
	if q.child.earlier != nil {
		q.known = q.child.earlier(ctx, q.root)
	}
	for _, e := range q.known {
		if e.verb == q.verb && q.free > 0 {
			q.places <- struct{}{}
			q.lose()
		}
	}
	var unasked []int
	for i, p := range spots {
		q.paths = append(q.paths, p.names[0])
		if e, ok := q.stuck(p.names); ok {
			q.outcomes[i] = outcome{asked: true, hung: true, waiting: e.waiting, pid: e.pid}
			continue
		}
		unasked = append(unasked, i)
	}
	if len(unasked) > 0 {
		q.work(ctx, unasked)
	}
	if filepath.Clean(q.root) != "/" && q.base == q.root {
		for i := range q.outcomes {
			q.outcomes[i].verify(spots[i])
		}
	}
	return q.outcomes, q.err
}

// verify takes back what was said of another file system than was meant: where the mount is not seen, what it lies over
// answers.
func (o *outcome) verify(p spot) {
	seen := o.reply.Device
	if o.asked && !o.hung && p.device != "" && seen != p.device && (seen != "" || o.reply.Err != "") {
		o.reply = reply{Err: unseen}
	}
}

// stuck finds an earlier child that waits for the same thing. A write can hang where a look does not.
func (q *inquiry) stuck(names []string) (earlier, bool) {
	writes := q.verb == verbWrite
	i := slices.IndexFunc(q.known, func(e earlier) bool {
		return (e.verb == verbWrite) == writes && slices.Contains(names, e.path) && e.waiting >= patience
	})
	if i < 0 {
		return earlier{}, false
	}
	return q.known[i], true
}

// work has a child look at the paths, then others at what that left.
func (q *inquiry) work(ctx context.Context, unasked []int) {
	rest := q.one(ctx, unasked)
	if len(rest) == 0 || q.alone || q.failed() {
		return
	}
	var wg together.Group
	for part := range slices.Chunk(rest, (len(rest)+maxChildren-1)/maxChildren) {
		wg.Go(func() { q.work(ctx, part) })
	}
	wg.Wait()
}

// one has one child look at the paths until one of them hangs, and returns those that it did not begin with.
func (q *inquiry) one(ctx context.Context, unasked []int) (rest []int) {
	if !q.enter(ctx) {
		return nil
	}
	now, later := fitting(q.paths, unasked)
	var paths []string
	for _, i := range now {
		paths = append(paths, q.paths[i])
	}
	c, err := q.child.start(q.verb, q.base, paths)
	if err != nil {
		q.fail(err)
		<-q.places
		return nil
	}
	done := q.listen(ctx, c, now)
	if c.kill() {
		q.gone(c)
		<-q.places
	} else {
		q.lose()
	}
	if ctx.Err() != nil || q.late() {
		return nil
	}
	return append(now[done:len(now):len(now)], later...)
}

// listen notes what a child says of the paths that it was given, and returns how many of them are done with.
func (q *inquiry) listen(ctx context.Context, c *running, unasked []int) int {
	end, bounded := ctx.Deadline()
	if !bounded {
		end = time.Now().Add(time.Minute)
	}
	pid := c.cmd.Process.Pid
	for done, i := range unasked {
		// Until it says that it begins, a child waits for nothing but a CPU and its own program.
		if _, err := c.next(ctx, end); err != nil {
			q.fail(err)
			return len(unasked)
		}
		begun := time.Now()
		got, err := c.next(ctx, earliest(begun.Add(q.patience), end))
		if errors.Is(err, errSilent) && time.Now().Before(end) && starved(q.root, pid) {
			got, err = c.next(ctx, end)
		}
		switch waiting := time.Since(begun); {
		case err == nil:
			q.note(i, outcome{asked: true, reply: got})
		case !errors.Is(err, errSilent):
			q.note(i, outcome{asked: true, reply: reply{Err: err.Error()}})
			return done + 1
		case waiting >= min(q.patience, patience):
			q.note(i, outcome{asked: true, hung: true, waiting: waiting, pid: pid})
			return done + 1
		default: // the time was up too soon to say
			return len(unasked)
		}
		if q.late() {
			return len(unasked)
		}
	}
	return len(unasked)
}

// fitting cuts the paths that one child can be given from those that are left.
func fitting(paths []string, unasked []int) (now, later []int) {
	var size int
	for n, i := range unasked {
		if size += len(paths[i]) + 1; size > maxChildArgs && n > 0 {
			return unasked[:n], unasked[n:]
		}
	}
	return unasked, nil
}

// enter waits for a place among the children; false when there will be none.
func (q *inquiry) enter(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-q.none:
		return false
	default:
	}
	select {
	case q.places <- struct{}{}:
		return true
	case <-q.none:
		return false
	case <-ctx.Done():
		return false
	}
}

// lose notes that a place is held by a stuck child for good.
func (q *inquiry) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free--; q.free == 0 {
		close(q.none)
	}
}

func (q *inquiry) late() bool { return q.enough > 0 && time.Since(q.began) > q.enough }

func (q *inquiry) note(i int, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outcomes[i] = o
}

// gone notes that the child that looked is there no longer, although what it asked never answered.
func (q *inquiry) gone(c *running) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.outcomes {
		if q.outcomes[i].pid == c.cmd.Process.Pid {
			q.outcomes[i].pid = 0
		}
	}
}

func (q *inquiry) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
}

func (q *inquiry) failed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err != nil
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
