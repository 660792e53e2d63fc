package logs

import (
	"slices"
	"strings"
)

const (
	// stampFormat is of the time of rotation in a rotated log's name: 0.log.20260901-120000.
	stampFormat = "20060102-150405"
	gzipSuffix  = ".gz"
	unfinished  = ".tmp"
	// newest is how many of a log's files are not old: the one that is rotated now and the one that the runtime opens then.
	newest = 2
)

// A plan is what is done to the rotated logs of one container, in this order, before its log is rotated too.
type plan struct {
	remove   []string
	compress []string
}

// makePlan takes the names of a log's rotated files and how many files it may have, itself included. What an interrupted
// compression left goes, and the oldest of the rest, as many as there are too many. What stays is compressed: only the log that
// was rotated last is readable text, so that who reads it can finish.
func makePlan(names []string, mostFiles int) plan {
	var p plan
	var kept []string
	for _, name := range slices.Sorted(slices.Values(names)) { // the time of rotation is in the name
		if strings.HasSuffix(name, unfinished) || slices.Contains(names, name+gzipSuffix) {
			p.remove = append(p.remove, name)
		} else {
			kept = append(kept, name)
		}
	}
	excess := max(0, len(kept)-max(0, mostFiles-newest))
	p.remove = append(p.remove, kept[:excess]...)
	for _, name := range kept[excess:] {
		if !strings.HasSuffix(name, gzipSuffix) {
			p.compress = append(p.compress, name)
		}
	}
	return p
}
