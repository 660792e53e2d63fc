package images

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// records is what is known about images over time, by id.
type records map[string]*imageRecord

type imageRecord struct {
	detected time.Time // first; zero for what was there at the start
	used     time.Time // last seen in use; zero for never
	size     int64     // bytes
}

// A candidate is an image that nobody uses.
type candidate struct {
	id string
	imageRecord
}

// update notes what a look at the node found, and returns the images that are neither in use nor pinned, the longest unused
// first, then the longest known.
func (r records) update(all []*runtimeapi.Image, used map[string]bool, found, now time.Time) []candidate {
	var free []candidate
	there := make(map[string]bool, len(all))
	for _, image := range all {
		id := image.GetId()
		there[id] = true
		if r[id] == nil {
			r[id] = &imageRecord{detected: found}
		}
		r[id].size = int64(image.GetSize())
		if inUse(image, used) {
			r[id].used = now
		} else if !image.GetPinned() {
			free = append(free, candidate{id, *r[id]})
		}
	}
	for id := range r {
		if !there[id] {
			delete(r, id)
		}
	}
	slices.SortFunc(free, func(a, b candidate) int {
		return cmp.Or(a.used.Compare(b.used), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id))
	})
	return free
}

// inUse also looks at an image's names: some runtimes tell of a container only the reference it was made with.
func inUse(image *runtimeapi.Image, used map[string]bool) bool {
	is := func(name string) bool { return used[name] }
	return used[image.GetId()] || slices.ContainsFunc(image.GetRepoTags(), is) || slices.ContainsFunc(image.GetRepoDigests(), is)
}

// splitOld parts the images that were not used for longer than age from the others.
func splitOld(all []candidate, now time.Time, age time.Duration) (old, rest []candidate) {
	for _, c := range all {
		if now.Sub(c.used) > age {
			old = append(old, c)
		} else {
			rest = append(rest, c)
		}
	}
	return old, rest
}

// oldEnough leaves out what came only now: it may have been pulled for a container that is about to start.
func oldEnough(all []candidate, now time.Time, age time.Duration) []candidate {
	var old []candidate
	for _, c := range all {
		if c.used.Before(now) && now.Sub(c.detected) >= age {
			old = append(old, c)
		}
	}
	return old
}

// excess returns how full a disk is in per cent, and how many bytes must be freed for it to be only low per cent full.
func excess(capacity, available uint64, low int) (usage int, amount int64) {
	size, free := int64(capacity), int64(available)
	return 100 - int(free*100/size), size*int64(100-low)/100 - free
}

// formatSize writes a number of bytes for people.
func formatSize(bytes uint64) string {
	size, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1<<10 {
			break
		}
		size, unit = size/(1<<10), next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
