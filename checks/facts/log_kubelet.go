package facts

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// The number of restarts in the window from which a kubelet is in a loop, and how old the last may be for the loop to
// go on: the watchdog's kills, the slowest loop there is, come every five to six minutes.
const (
	LoopRestarts = 3
	LoopFresh    = 6 * time.Minute
)

// Restarts is how often the kubelet came up anew in the window without anybody asking for it.
type Restarts struct {
	Count int
	Last  *time.Time
	Line  string // how it is known
}

// kubeletRestarts counts restarts: systemd's own count of those that it scheduled, else deaths that a start follows.
// Stops and starts alone are a person's doing.
func kubeletRestarts(f *Facts) Restarts {
	var r Restarts
	see := func(n int, last *time.Time, what string) {
		if n > r.Count {
			line := fmt.Sprintf("%s %s in the last %s", what, units.Times(n), units.Duration(f.Log.Window))
			r = Restarts{n, last, line}
		}
	}
	for _, u := range UnitsOf(f, signature.UnitRestarted, RoleKubelet) {
		see(int(u.Count), u.Last, "systemd restarted "+Clean(u.ID))
	}
	if LastOf(f, signature.KubeletStarted, signature.SyncLoopStarted) != nil {
		see(occasions(f, signature.KubeletFatal), LastOf(f, signature.KubeletFatal),
			"the kubelet ended itself, and was started again,")
		for _, u := range UnitsOf(f, signature.WatchdogTimeout, RoleKubelet) {
			see(int(u.Count), u.Last, "systemd's watchdog ended the kubelet")
		}
	}
	return r
}
