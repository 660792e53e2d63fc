package bundle

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/units"
)

// LeastBytes is the smallest archive that is worth writing: the report and the manifest.
const LeastBytes = 64 << 10

// Space that stays free for others: the share that ext4 keeps for root, but at most 1 GiB.
const (
	keptPercent = 5
	mostKept    = 1 << 30 // bytes
)

// Room returns the largest size of an archive in a folder: at most most, and half of the free space beyond the reserve.
func Room(dir string, most int64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return room(&st, most)
}

func room(st *unix.Statfs_t, most int64) (int64, error) {
	if st.Blocks == 0 { // the file system has no size
		return most, nil
	}
	free, size := int64(st.Bavail)*int64(st.Bsize), int64(st.Blocks)*int64(st.Bsize)
	half := (free - min(size/100*keptPercent, mostKept)) / 2
	if half < LeastBytes {
		return 0, fmt.Errorf("the disk is full: %s free of %s", units.Size(free), units.Size(size))
	}
	return min(most, half), nil
}
