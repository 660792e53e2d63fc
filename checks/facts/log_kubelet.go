package facts

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// The number of restarts in the window from which a kubelet is in a loop, and how old the last may be for the loop to go
// on: the watchdog's kills, the slowest loop there is, come every five to six minutes.
const (
	LoopRestarts = 3
	LoopFresh    = 6 * time.Minute
	endPause     = 2 * time.Second // parts the last words of one kubelet from those of the next
)

// Restarts is how often the kubelet came up anew in the window without anybody asking for it.
type Restarts struct {
	Count int
	Last  *time.Time
	Line  string // how it is known
}

// kubeletRestarts counts restarts: systemd's own count of those that it scheduled, else deaths that a start follows. Stops
// and starts alone are somebody's wish.
func kubeletRestarts(f *Facts) Restarts {
	var r Restarts
	for _, u := range UnitsOf(f, signature.UnitRestarted, RoleKubelet) {
		if n := int(u.Count) / linesOfRestart(f); n > r.Count {
			r = Restarts{n, u.Last, fmt.Sprintf("systemd restarted %s %s in the last %s", Clean(u.ID), units.Times(n), units.Duration(f.Log.Window))}
		}
	}
	started := LastOf(f, signature.KubeletStarted, signature.SyncLoopStarted)
	if started == nil {
		return r
	}
	if n := occasions(f, endPause, signature.KubeletFatal); n > r.Count {
		r = Restarts{n, LastOf(f, signature.KubeletFatal), fmt.Sprintf("the kubelet ended itself %s in the last %s, and was started again", units.Times(n), units.Duration(f.Log.Window))}
	}
	kills := 0
	var last *time.Time
	for _, u := range UnitsOf(f, signature.WatchdogTimeout, RoleKubelet) {
		kills += int(u.Count)
		last = u.Last
	}
	if kills > r.Count {
		r = Restarts{kills, last, fmt.Sprintf("systemd's watchdog ended the kubelet %s in the last %s", units.Times(kills), units.Duration(f.Log.Window))}
	}
	return r
}

// linesOfRestart is how many lines systemd writes of one restart: versions 236 to 245 announce it before they count it.
func linesOfRestart(f *Facts) int {
	if c := Logged(f, signature.UnitRestarted); c != nil && ContainsAny(c.Example, []string{"restartsec=", "hold-off time over"}) {
		return 2
	}
	return 1
}

// watchdogEnds reports whether systemd's watchdog ended the kubelet, which means that its loop stood still.
func watchdogEnds(f *Facts) bool {
	return len(UnitsOf(f, signature.WatchdogTimeout, RoleKubelet)) > 0
}
