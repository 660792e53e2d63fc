package journalfile

import "slices"

// A Range is a stretch of a file that could not be read.
type Range struct {
	Offset, Bytes int64
	Why           string
}

// rangesMax bounds a list of ranges; what comes later widens the last one.
const rangesMax = 4096

// addRange appends from..to, joined with the range before it if they touch.
func addRange(list []Range, from, to uint64, why string) []Range {
	if to <= from {
		return list
	}
	r := Range{Offset: int64(from), Bytes: int64(to - from), Why: why}
	if n := len(list); n > 0 {
		last := &list[n-1]
		end := last.Offset + last.Bytes
		switch {
		case r.Offset >= last.Offset && r.Offset+r.Bytes <= end: // nothing new
			return list
		case r.Offset == end && r.Why == last.Why:
			last.Bytes += r.Bytes
			return list
		case n >= rangesMax && r.Offset > end:
			last.Bytes = r.Offset + r.Bytes - last.Offset
			last.Why = "damaged in very many places, some of them readable"
			return list
		case n >= rangesMax:
			return list
		}
	}
	return append(list, r)
}

// sortRanges puts ranges into the order of the file and joins those that overlap.
func sortRanges(list []Range) []Range {
	slices.SortFunc(list, func(a, b Range) int { return int(min(1, max(-1, a.Offset-b.Offset))) })
	var out []Range
	for _, r := range list {
		if n := len(out); n > 0 && r.Offset < out[n-1].Offset+out[n-1].Bytes {
			out[n-1].Bytes = max(out[n-1].Bytes, r.Offset+r.Bytes-out[n-1].Offset)
			continue
		}
		out = append(out, r)
	}
	return out
}
