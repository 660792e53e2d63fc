// Package recorder keeps the agent's records and archives in a folder of bounded size. Records that were written before
// a power cut can be read after it.
//
// A quarter of the size is for records, the rest for archives. ADR 18 has the format of the segments, and why there is
// no database.
package recorder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// The kinds of records.
const (
	KindStart      = "start"      // of an agent: Start
	KindStop       = "stop"       // of an agent that was told to end
	KindSample     = "sample"     // checks.LookSample
	KindTransition = "transition" // checks.Transition
	KindCapture    = "capture"    // checks.TakenCapture; its path is relative to the folder
)

// A Record is one entry.
type Record struct {
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// A Start is the data of a record of KindStart.
type Start struct {
	BootID          string  `json:"bootID"`
	Version         string  `json:"version"`
	IntervalSeconds float64 `json:"intervalSeconds"`
}

// ErrInUse means that another agent writes into the folder.
var ErrInUse = errors.New("another agent writes there")

// CapturesDir is the folder of archives in the recorder's.
const CapturesDir = "captures"

const (
	minBytes = 8 << 20 // of Open: four segments
	// usualArchive is larger than most archives of an incident.
	usualArchive = 4 << 20
	maxRecord    = 256 << 10 // bytes of a record as JSON; a sample with 1,000 hung calls has 200 KiB
	// maxQueued bounds the compressed records that wait for the disk, in bytes: a day of samples each 30 s. When the
	// queue is full, new records are lost, not those that wait: an incident is explained by its onset.
	maxQueued  = 1 << 20
	retryAfter = time.Second     // between two attempts to write to a disk that fails
	hangAfter  = 5 * time.Second // without an answer from the disk; then Problem reports it
	openWait   = 2 * time.Second // Open waits no longer for the disk
	maxSegment = 512 << 10       // bytes of a segment, which is the unit that is dropped
)

// A Recorder writes records. It never blocks its caller: while a disk hangs, records are lost, and Lost counts them.
type Recorder struct {
	dir    string
	most   int64 // bytes of the folder; a quarter is for segments
	pack   *zstd.Encoder
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{}
	queue  chan []byte  // frames
	queued atomic.Int64 // bytes of the queue
	lost   atomic.Int64

	// Of the one goroutine that writes:
	lock   *os.File // the folder of segments
	locked fs.FileInfo

	mu      sync.Mutex
	problem error     // of the last attempt to write
	busy    time.Time // begin of the write that is under way; zero without one
}

// Open opens or makes a folder of at most maxBytes, and at least 8 MiB: a quarter for records, the rest for archives;
// the oldest are removed. It also opens a folder on a full or read-only disk, or on one that does not answer within two
// seconds: Problem reports it, and records wait. Half a record that a power cut left behind stays, and the next is
// written behind it. The error is ErrInUse, or of the file system.
func Open(dir string, maxBytes int64) (*Recorder, error) {
	// The error would be of an option.
	pack, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(maxRecord), zstd.WithEncoderCRC(false))
	r := &Recorder{
		dir: dir, most: max(maxBytes, minBytes), pack: pack,
		queue: make(chan []byte, maxQueued/48), done: make(chan struct{}), // no frame has fewer than 48 bytes
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	context.AfterFunc(r.ctx, func() { r.queue <- nil })
	opened := make(chan error, 1)
	go r.run(opened)
	select {
	case err := <-opened:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("recording in %s: %w", dir, err), r.Close(context.Background()))
		}
	case <-time.After(openWait):
	}
	return r, nil
}

// Append queues a record for writing. A record that cannot be JSON, or has more than 256 KiB of it, is lost.
func (r *Recorder) Append(at time.Time, kind string, data any) {
	line, err := json.Marshal(map[string]any{"at": at.UTC(), "kind": kind, "data": data})
	f := frame(r.pack, append(line, '\n'))
	size := int64(len(f))
	if err != nil || len(line) >= maxRecord || r.ctx.Err() != nil || r.queued.Load()+size > maxQueued {
		r.lost.Add(1)
		return
	}
	r.queued.Add(size)
	r.queue <- f // has room, even for goroutines that pass the check at the same time
}

// Problem says why records are not written now: the disk is full, hangs or is read-only. It is empty while they are.
func (r *Recorder) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch hung := time.Since(r.busy); {
	case !r.busy.IsZero() && hung >= hangAfter:
		return fmt.Sprintf("recording in %s: the disk hangs (no reply in %s)", r.dir, hung.Truncate(time.Second))
	case r.problem != nil:
		return fmt.Sprintf("recording in %s: %v", r.dir, r.problem)
	}
	return ""
}

// Lost returns the number of records that could not be written.
func (r *Recorder) Lost() int { return int(r.lost.Load()) }

// Room returns how many bytes an archive may have: at most the given number, three quarters of the folder's size less
// the other archives, and half of the disk's free space. It removes archives, those that were sent away and the oldest
// first, until an eighth of the folder's size, or 4 MiB, is free, which is more than most archives need. It does
// nothing while there is a Problem. The error is that, of the file system, or the cause of the end of ctx.
func (r *Recorder) Room(ctx context.Context, most int64) (int64, error) {
	if problem := r.Problem(); problem != "" {
		return 0, errors.New(problem)
	}
	return deadline.Run(ctx, "making room for an archive", func(context.Context) (int64, error) {
		path := filepath.Join(r.dir, CapturesDir)
		_ = os.MkdirAll(path, 0o700) // ReadDir has the error
		entries, err := os.ReadDir(path)
		var archives []fs.FileInfo
		rank := map[string]int{} // -1 for what was sent away
		free := r.most - r.most/4
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				archives = append(archives, info)
				free -= info.Size()
				if sent, ok := strings.CutSuffix(info.Name(), checks.CaptureSent); ok {
					rank[info.Name()], rank[sent] = -1, -1
				}
			}
		}
		slices.SortStableFunc(archives, func(a, b fs.FileInfo) int {
			return cmp.Or(cmp.Compare(rank[a.Name()], rank[b.Name()]), a.ModTime().Compare(b.ModTime()))
		})
		for ; err == nil && free < min(most, max(r.most/8, usualArchive)) && len(archives) > 0; archives = archives[1:] {
			free += archives[0].Size()
			err = os.Remove(filepath.Join(path, archives[0].Name()))
		}
		var disk unix.Statfs_t
		err = cmp.Or(err, unix.Statfs(path, &disk))
		return max(0, min(most, free, int64(disk.Bavail)*int64(disk.Bsize)/2)), err
	})
}

// Close writes the queued records, within ctx. The error says why not all were written. While the disk hangs, the
// folder stays locked until the disk answers or the process ends.
func (r *Recorder) Close(ctx context.Context) error {
	r.cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	if bytes := r.queued.Load(); bytes > 0 {
		return fmt.Errorf("%d bytes of records not written: %s", bytes, cmp.Or(r.Problem(), "the disk is slow"))
	}
	return nil
}

// run writes records until Close, and then those that are queued.
func (r *Recorder) run(opened chan<- error) {
	defer close(r.done)
	defer r.unlock()
	opened <- r.write(nil)
	for f := range r.queue {
		if f == nil {
			return
		}
		for r.write(f) != nil {
			select {
			case <-time.After(retryAfter):
			case <-r.ctx.Done():
				return
			}
		}
		r.queued.Add(-int64(len(f)))
	}
}

// write writes a frame, or without one only opens the folder.
func (r *Recorder) write(f []byte) error {
	r.mu.Lock()
	r.busy = time.Now()
	r.mu.Unlock()
	err := r.append(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem, r.busy = err, time.Time{}
	return err
}

// lockFolder makes and locks the folder, unless the folder at its path is locked: it may have been removed, or another
// disk mounted there. A lock on a folder needs no file and works on a read-only disk.
func (r *Recorder) lockFolder() error {
	path := filepath.Join(r.dir, segmentsDir)
	info, err := os.Stat(path)
	if err == nil && os.SameFile(info, r.locked) {
		return nil
	}
	r.unlock()
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if r.lock, err = os.Open(path); err != nil {
		return err
	}
	err = unix.Flock(int(r.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	if err == nil {
		r.locked, err = r.lock.Stat()
	}
	return err
}

func (r *Recorder) unlock() {
	_ = r.lock.Close() // was only read, or never opened
	r.locked = nil
}

// append appends a frame to the newest segment and syncs it. No file stays open between two writes, so the disk can be
// remounted.
func (r *Recorder) append(frame []byte) error {
	if err := r.lockFolder(); err != nil || frame == nil {
		return err
	}
	path, size, err := r.newest(len(frame))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if size == 0 {
		// Allocating the whole segment now lets records be written for hours when the disk is full, if the file system
		// can do that. Sync makes the name of the new file last.
		allocate(f, maxSegment)
		err = r.lock.Sync()
	}
	_, writeErr := f.WriteAt(frame, size)
	err = cmp.Or(err, writeErr, f.Sync())
	if err != nil {
		_ = f.Truncate(size) // or half a frame stays there, which readers report as damage
	}
	return cmp.Or(err, f.Close())
}

// newest returns the segment to append so many bytes to, with its size, and removes the oldest segments for a new one.
func (r *Recorder) newest(bytes int) (path string, size int64, _ error) {
	entries, err := os.ReadDir(r.lock.Name())
	if err != nil {
		return "", 0, err
	}
	names, n := segments(entries), 0
	if len(names) > 0 {
		info, err := os.Lstat(filepath.Join(r.lock.Name(), names[len(names)-1]))
		if err != nil {
			return "", 0, err
		}
		size = info.Size()
		_, _ = fmt.Sscanf(info.Name(), segmentName, &n) // segments knows its form
	}
	if n == 0 || size+int64(bytes) > maxSegment {
		names, size = append(names, fmt.Sprintf(segmentName, n+1)), 0
	}
	for most := int(r.most / 4 / maxSegment); err == nil && len(names) > most; names = names[1:] {
		err = os.Remove(filepath.Join(r.lock.Name(), names[0]))
	}
	return filepath.Join(r.lock.Name(), names[len(names)-1]), size, err
}
