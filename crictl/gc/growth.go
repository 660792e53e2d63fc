package gc

// A Growth is what changed between two looks at a node.
type Growth struct {
	Seconds          float64 `json:"seconds"`    // between the looks
	Containers       int     `json:"containers"` // more exited ones; negative when there are fewer
	Sandboxes        int     `json:"sandboxes"`  // more that are not ready
	Bytes            int64   `json:"bytes"`      // by which the list of containers has grown
	ContainersPerDay float64 `json:"containersPerDay"`
	BytesPerDay      float64 `json:"bytesPerDay"`
	// SecondsToLimit is when the list of containers is larger than a message may be, if it goes on like this: 0 when it
	// is already, absent when it does not grow.
	SecondsToLimit *float64 `json:"secondsToLimit,omitempty"`
}

const secondsPerDay = 24 * 60 * 60

// Grow compares two censuses that were taken so many seconds apart. It returns nil when no time has passed, or when one
// of them is not complete: a difference between two parts says nothing.
func Grow(before, after *Census, seconds float64) *Growth {
	if seconds <= 0 || before.Partial || after.Partial {
		return nil
	}
	g := &Growth{
		Seconds:    seconds,
		Containers: after.Total - before.Total,
		Sandboxes:  after.Sandboxes - before.Sandboxes,
		Bytes:      after.ListBytes - before.ListBytes,
	}
	g.ContainersPerDay = float64(g.Containers) / seconds * secondsPerDay
	g.BytesPerDay = float64(g.Bytes) / seconds * secondsPerDay
	left := after.LimitBytes - after.ListBytes
	switch {
	case after.LimitBytes <= 0:
	case left <= 0:
		g.SecondsToLimit = new(float64)
	case g.Bytes > 0:
		to := float64(left) / float64(g.Bytes) * seconds
		g.SecondsToLimit = &to
	}
	return g
}
