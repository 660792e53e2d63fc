package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// The number of restarts in the window from which a kubelet is in a loop, and how old the last may be for the loop to
// go on: the watchdog's kills, the slowest loop there is, come every five to six minutes.
const (
	LoopRestarts = 3
	LoopFresh    = 6 * time.Minute
	// loopPause is the least time for which a kubelet must have been running for its loop to be over. One that cannot
	// start ends within seconds, and systemd waits for 10 s (RestartSec of kubeadm's unit).
	loopPause = time.Minute
)

// Restarts counts the restarts of the kubelet in the window that nobody asked for.
type Restarts struct {
	Count int
	Last  *time.Time
	Line  string        // how it is known
	Every time.Duration // the mean time between them; 0 for fewer than two
}

// LoopOver reports whether a kubelet that has been running for so long is in no loop of restarts any more: it has been
// running for longer than between two of them. Restarts that lie farther apart than those of any loop are none.
func LoopOver(f *Facts, age time.Duration) bool {
	pause := f.Log.Restarts.Every * 3 / 2
	if f.Log.Restarts.Every > LoopFresh {
		pause = 0
	}
	if u := f.KubeletState.Unit; f.Log.Watchdog || u != nil && u.Result == "watchdog" {
		pause = LoopFresh
	}
	return age >= min(max(pause, loopPause), LoopFresh)
}

// kubeletRestarts counts restarts: systemd's own count of those that it scheduled, else deaths that a start follows.
// Stops and starts alone are a person's doing.
func kubeletRestarts(f *Facts) Restarts {
	var r Restarts
	see := func(n int, first, last *time.Time, what string) {
		if n <= r.Count {
			return
		}
		r = Restarts{n, last, fmt.Sprintf("%s %s in the last %s", what, units.Times(n), units.Duration(f.Log.Window)), 0}
		if n > 1 && first != nil && last != nil {
			r.Every = last.Sub(*first) / time.Duration(n-1)
		}
	}
	for _, u := range UnitsOf(f, signature.UnitRestarted, RoleKubelet) {
		see(int(u.Count), u.First, u.Last, "systemd restarted "+Clean(u.ID))
	}
	if LastOf(f, signature.KubeletStarted, signature.SyncLoopStarted) != nil {
		if c := Logged(f, signature.KubeletFatal); c != nil {
			see(occasions(f, signature.KubeletFatal), c.First, c.Last, "the kubelet ended itself, and was started again,")
		}
		for _, u := range UnitsOf(f, signature.WatchdogTimeout, RoleKubelet) {
			see(int(u.Count), u.First, u.Last, "systemd's watchdog ended the kubelet")
		}
	}
	return r
}

// An APIFailure describes the failing calls of the kubelet to the API server, by the newest record.
type APIFailure struct {
	Record   string // as it was logged
	Answered bool   // the record holds an answer of the API server, which was reached
	NoNode   bool   // the API server has no object of this node
	Webhook  string // the admission webhook that fails, safe to print; empty for none
}

var (
	failingWebhook = lazyregexp.New(`failed calling webhook \\*"([^"\\]+)`)
	noNodeObject   = lazyregexp.New(`\bnodes? \\*"[^"\\]+\\*" not found`)
)

// answers are parts of errors that an API server returns (k8s.io/apimachinery/pkg/api/errors).
var answers = []string{
	" not found", "already exists", "Operation cannot be fulfilled", " is forbidden", "Internal error occurred",
	"etcdserver", "Unauthorized", "the server was unable to return", "too many requests",
	"currently unable to handle the request",
}

func apiFailure(f *Facts) APIFailure {
	codes, record := []string{signature.APIServerFailed, signature.Unauthorized}, ""
	for _, code := range codes {
		if c := Logged(f, code); record == "" && c != nil && c.Last == LastOf(f, codes...) {
			record = c.Newest()
		}
	}
	return FailureOf(record)
}

// FailureOf reads a record of a call to the API server that failed.
func FailureOf(record string) APIFailure {
	a := APIFailure{Record: record}
	if m := failingWebhook.FindStringSubmatch(a.Record); m != nil {
		a.Webhook = Clean(m[1])
	}
	a.NoNode = noNodeObject.MatchString(a.Record)
	a.Answered = a.Webhook != "" || Says(a.Record, answers...) && !strings.Contains(a.Record, "dial ")
	return a
}

// A Role is the role of a task or unit on the node.
type Role = journal.Role

const (
	RoleOther   = journal.RoleOther
	RoleRuntime = journal.RoleRuntime
	RoleShim    = journal.RoleShim
	RoleOCI     = journal.RoleOCI
	RoleKubelet = journal.RoleKubelet
)

// UnitRole returns what a systemd unit runs, by its name or, where systemd logs only that, by its description.
func UnitRole(name string) Role { return journal.UnitRole(name) }

// subjectsOf returns the objects that records of a signature name most often.
func subjectsOf(f *Facts, code string) []journal.SubjectCount {
	if c := Logged(f, code); c != nil {
		return slices.Clone(c.Subjects)
	}
	return nil
}

// UnitsOf returns what records of a signature say of units of a role.
func UnitsOf(f *Facts, code string, want Role) []journal.SubjectCount {
	return slices.DeleteFunc(subjectsOf(f, code), func(s journal.SubjectCount) bool { return UnitRole(s.ID) != want })
}

// kubeletUnit is the unit of the kubelet, safe to paste: as systemd has it, else the usual one beside this runtime.
func kubeletUnit(f *Facts) string {
	if u := f.KubeletState.Unit; u != nil && Safe(u.Name) {
		return strings.TrimSuffix(u.Name, ".service")
	}
	if f.Target.RestartsKubelet && f.Target.Unit != "" {
		return f.Target.Unit
	}
	if strings.Contains(f.Runtime.Endpoint, "microk8s") {
		return "snap.microk8s.daemon-kubelite"
	}
	return "kubelet"
}

// KubeletSubject names the kubelet as a culprit.
func KubeletSubject(f *Facts) *checks.Subject {
	s := &checks.Subject{Kind: "Unit", Name: f.Target.KubeletUnit + ".service"}
	if strings.ContainsAny(s.Name, "' ") {
		s.Name = "kubelet.service"
	}
	for _, p := range f.Processes {
		if f.Kubelet != nil && p.PID == f.Kubelet.PID {
			s.Processes = []checks.Process{ProcessOf(f, p)}
		}
	}
	if f.Target.NoSystemd {
		s.Kind, s.Name = "Process", "kubelet"
		if f.Kubelet != nil {
			s.ID, s.Name = strconv.Itoa(f.Kubelet.PID), Clean(f.Kubelet.Name)
		}
	}
	return s
}

// A Named object is one that the kubelet's failing status calls name.
type Named struct {
	ID string
	journal.SubjectCount
}

// NamedByKubelet returns the objects whose status the kubelet has not got, as far as it still may wait for them: each
// relist tries again, and waits for each call.
func NamedByKubelet(f *Facts) []Named {
	var some []Named
	for _, s := range subjectsOf(f, signature.InspectFailed) {
		if Fresh(f, s.Last, 2*f.Log.RetryPause) {
			some = append(some, Named{strings.TrimSpace(s.ID), s})
		}
	}
	return some
}

// Is reports whether two ids are of the same object. A log may hold the head of one only.
func (n Named) Is(id string) bool {
	const head = 12
	if len(n.ID) < head || len(id) < head {
		return n.ID != "" && n.ID == id
	}
	return strings.HasPrefix(n.ID, id) || strings.HasPrefix(id, n.ID)
}
