package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
)

const (
	// startOver is how often a Follower reads the whole window again, and so forgets older records.
	startOver = 5 * time.Minute
	// reportLimit bounds one Report. A healthy disk needs milliseconds, and who asks waits five seconds.
	reportLimit = 3 * time.Second
	// mostText bounds how much of a text log is read, in bytes, before it is followed: more than a node logs in a
	// quarter of an hour.
	mostText = 16 << 20
	// mostFollowed bounds the bursts of a file: 3 MiB, of which a healthy node needs a hundredth.
	mostFollowed = 10_000
)

// A Follower reads the logs of a machine for a service that asks for the last minutes again and again. It
// reads a record at the first Report after it was written. Between two Reports it does nothing, and holds no file open.
type Follower struct {
	ctx    context.Context
	root   string
	window time.Duration
	now    func() time.Time
	last   atomic.Pointer[Report]
	turn   chan struct{} // holds a value while a reading is under way; it guards the fields below
	*reader
	began time.Time // with the whole window
}

// NewFollower returns a Follower of the last window of the machine whose root is given, until ctx ends. It has read
// nothing yet.
func NewFollower(ctx context.Context, root string, window time.Duration) *Follower {
	return &Follower{ctx: ctx, root: root, window: window, now: time.Now, turn: make(chan struct{}, 1)}
}

// Report returns what Recent would return of the window, and of up to five minutes before. Files that appear are found,
// and known under the names that rotation gives them; of a text log at most the last 16 MiB are read at once. With an
// error, such as after three seconds in which the disk did not answer, it returns the latest report; nil if there is
// none.
func (f *Follower) Report() (*Report, error) {
	select {
	case f.turn <- struct{}{}:
	default:
		return f.last.Load(), errors.New("reading logs: the reading before has not ended yet")
	}
	ctx, cancel := context.WithTimeoutCause(f.ctx, reportLimit, fmt.Errorf("it took longer than %v", reportLimit))
	defer cancel()
	report, err := deadline.Run(ctx, "reading the logs", func(ctx context.Context) (*Report, error) {
		defer func() { <-f.turn }()
		return f.read(ctx)
	})
	if report != nil {
		f.last.Store(report)
	}
	return f.last.Load(), err
}

// read reads the records written since the last reading.
func (f *Follower) read(ctx context.Context) (*Report, error) {
	if d := f.now().Sub(f.began); d < 0 || d >= startOver { // the clock can be set back
		f.began = f.now()
		f.reader = newReader(&Options{
			Inputs: []Input{{Kind: Root, Path: f.root}}, Since: f.began.Add(-f.window - recentLead), Now: f.now,
			everySync: true, mostBursts: mostFollowed,
		}, nil)
	}
	f.again(ctx, mostText)
	return f.report(), f.err(ctx)
}

// again looks for files again, and reads the additions to each since the last reading; of a new text file, only the
// last most bytes. It returns the sources whose files have disappeared.
func (r *reader) again(ctx context.Context, most int64) (gone []*source) {
	gone = r.sources
	r.sources = slices.DeleteFunc(discover(r.opts.Inputs), func(s *source) bool {
		return s.kind == kindStream || s.kind == kindKmsg && r.opts.onEvent != nil // its events would come again
	})
	for k, s := range r.sources {
		i := slices.IndexFunc(gone, func(o *source) bool {
			same := o.id != "" && strings.HasPrefix(s.id, o.id)          // a short file has grown
			return same && (o.err == nil || errors.Is(o.err, ErrNotLog)) // the next lines may be records
		})
		switch {
		case s.id == "":
		case i >= 0:
			known := gone[i]
			known.name, known.path, known.Name = s.name, s.path, Clean(s.name, 1024)
			known.id, known.size, known.changed, known.err, known.read = s.id, s.size, s.changed, nil, false
			r.sources[k] = known
			gone = slices.Delete(gone, i, i+1)
		case s.kind == kindText:
			s.next = new(uint64(max(0, s.size-most)))
		default:
			s.next = new(uint64)
		}
	}
	r.run(ctx)
	return gone
}
