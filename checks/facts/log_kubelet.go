package facts

import (
	"fmt"
	"regexp"
	"strings"
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

// An APIFailure is how the kubelet's calls to the API server fail, by the newest record of one.
type APIFailure struct {
	Record   string // as it was logged
	Answered bool   // the record holds an answer of the API server, which was reached
	NoNode   bool   // the API server has no object of this node
	Webhook  string // the admission webhook that fails, safe to print; empty for none
}

var (
	failingWebhook = regexp.MustCompile(`failed calling webhook \\*"([^"\\]+)`)
	noNodeObject   = regexp.MustCompile(`\bnodes? \\*"[^"\\]+\\*" not found`)
)

// answers are parts of errors that an API server returns (k8s.io/apimachinery/pkg/api/errors).
var answers = []string{
	" not found", "already exists", "Operation cannot be fulfilled", " is forbidden", "Internal error occurred",
	"etcdserver", "Unauthorized", "the server was unable to return", "too many requests",
	"currently unable to handle the request",
}

func apiFailure(f *Facts) APIFailure {
	a := APIFailure{Record: Newest(f, signature.APIServerFailed, signature.Unauthorized)}
	if m := failingWebhook.FindStringSubmatch(a.Record); m != nil {
		a.Webhook = Clean(m[1])
	}
	a.NoNode = noNodeObject.MatchString(a.Record)
	a.Answered = a.Webhook != "" || ContainsAny(a.Record, answers) && !strings.Contains(a.Record, "dial ")
	return a
}
