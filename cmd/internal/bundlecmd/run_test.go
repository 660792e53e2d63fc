package bundlecmd

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAsking takes its part of a --timeout that was given, also of one that is the default.
func TestAsking(t *testing.T) {
	given, usual := options{timeoutGiven: true}, options{}
	given.Timeout, usual.Timeout = time.Minute, time.Minute
	if given.asking() != 36*time.Second || usual.asking() != 9*time.Second {
		t.Errorf("given %v, usual %v", given.asking(), usual.asking())
	}
}

// TestRoom leaves room on a disk, and does not call a large one full that has gigabytes left.
func TestRoom(t *testing.T) {
	const mib, gib, block = 1 << 20, 1 << 30, 4096
	for _, tt := range []struct{ size, free, want int64 }{
		{0, 0, 100 * mib}, // a file system that has no size
		{4000 * gib, 11 * gib, 100 * mib},
		{4000 * gib, gib, 0},
		{10 * gib, 612 * mib, 50 * mib},
		{100 * mib, 25 * mib, 10 * mib},
		{100 * mib, 5 * mib, 0},
	} {
		st := unix.Statfs_t{Bsize: block, Blocks: uint64(tt.size / block), Bavail: uint64(tt.free / block)}
		got, err := room(&st, 100*mib)
		if got>>10 != tt.want>>10 || (err == nil) != (tt.want > 0) {
			t.Errorf("%d free of %d: %d, %v, want %d", tt.free, tt.size, got, err, tt.want)
		}
	}
}
