package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/deadline"
)

const (
	// gatherTimeout bounds the reading of details, such as the cgroup of a process.
	gatherTimeout = 2 * time.Second
	// walkTimeout bounds a walk through all control groups, so that what else its reader has read is returned in time.
	walkTimeout = 3 * time.Second
	// lastMoment is how long after its deadline a reader may take to return its results.
	lastMoment = 50 * time.Millisecond
)

// A position names the file that a reader is at, for the error of a reader that is abandoned there.
type position struct{ at atomic.Pointer[string] }

func (p *position) enter(format string, args ...any) { p.at.Store(new(fmt.Sprintf(format, args...))) }

func (p *position) String() string {
	if s := p.at.Load(); s != nil {
		return *s
	}
	return "its start"
}

// within runs read in its own goroutine and waits for it no longer than ctx lives. A read that does not end is
// abandoned: /proc/PID/cgroup and /proc/cgroups wait for the lock of all control groups, /proc/PID/cmdline for the
// memory map of the process, and the fdinfo of an inotify instance for the lock of its marks. The name is that of
// deadline.Run.
func within[T any](ctx context.Context, name string, read func(at *position) (T, error)) (T, error) {
	at := &position{}
	v, err := deadline.RunGrace(ctx, name, lastMoment, func(context.Context) (T, error) { return read(at) })
	_, panicked := errors.AsType[*deadline.PanicError](err)
	if panicked || errors.Is(err, deadline.ErrAbandoned) {
		err = fmt.Errorf("reading %s: %w", at, err)
	}
	return v, err
}

// gather calls ask for one key after the other in a goroutine that may be abandoned, and returns the values of the keys
// for which ask returned true within gatherTimeout. The error names the file that was being read.
func gather[K comparable, V any](
	ctx context.Context, name string, keys []K, ask func(at *position, key K) (V, bool),
) (map[K]V, error) {
	var mu sync.Mutex
	values := make(map[K]V, len(keys))
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	_, err := within(ctx, name, func(at *position) (struct{}, error) {
		for _, key := range keys {
			if ctx.Err() != nil {
				return struct{}{}, fmt.Errorf("reading %s: cut short: %w", at, ctx.Err())
			}
			if v, ok := ask(at, key); ok {
				mu.Lock()
				values[key] = v
				mu.Unlock()
			}
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(values), err
}

// pause waits between two reads of a counter. It returns the error of ctx if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// twice reads counters two times, and returns how long after the first the second read began.
func twice[T any](
	ctx context.Context, between time.Duration, read func() (T, error),
) (before, after T, over time.Duration, err error) {
	began := time.Now()
	if before, err = read(); err != nil {
		return before, after, 0, err
	}
	if err := pause(ctx, between-time.Since(began)); err != nil {
		return before, after, 0, fmt.Errorf("reading counters a second time: %w", err)
	}
	over = time.Since(began)
	after, err = read()
	return before, after, over, err
}

// readUint reads a file that holds one number. No limit, which the kernel writes as max, is 0.
func readUint(elem ...string) (uint64, error) {
	text, err := readSmall(elem...)
	if text = strings.TrimSpace(text); err != nil || text == "max" {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %.40q is not a number", filepath.Join(elem...), text)
	}
	return n, nil
}

// readSmall reads up to 64 KiB of a file, which is all of nearly every file of the kernel.
func readSmall(elem ...string) (string, error) { return readLimited(filepath.Join(elem...), 64<<10) }

// readLimited reads up to limit bytes of a file. It does without os.File, which asks whether a file can be polled, and
// is garbage with a cleanup: a service reads thousands of files of a hundred bytes at each look.
func readLimited(name string, limit int) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var page [4 << 10]byte
	text := page[:0]
	for len(text) < limit {
		text = slices.Grow(text, 1)
		n, err := unix.Read(fd, text[len(text):min(cap(text), limit)])
		if err != nil && err != unix.EINTR {
			return string(text), &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 && err == nil {
			break
		}
		text = text[:len(text)+max(n, 0)]
	}
	return string(text), nil
}

// names lists a directory in the directory's order, up to maxEntries. A directory that does not exist has none.
func names(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	list, _ := d.Readdirnames(maxEntries)
	return list
}

// fieldsAfter returns the fields after the key that begins a line, as in the files of /proc and of control groups:
//
//	MemTotal:       16344856 kB
//	nr_throttled 3
func fieldsAfter(text, key string) []string {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, key)
		if ok && strings.TrimLeft(rest, " \t") != rest {
			return strings.Fields(rest)
		}
	}
	return nil
}

// numberAfter returns the first of the fields after a key.
func numberAfter(text, key string) (uint64, bool) {
	for _, field := range fieldsAfter(text, key) {
		n, err := strconv.ParseUint(field, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// top sorts a list and returns the first n.
func top[T any](list []T, n int, compare func(a, b T) int) []T {
	slices.SortFunc(list, compare)
	return list[:min(len(list), n)]
}
