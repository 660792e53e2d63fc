package render

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// The names under which restarts of daemons are told when no record says a better one.
const (
	kubeletName = "kubelet"
	runtimeName = "runtime"
)

// whose returns whose event one of a lane and subject is: the kubelet's, or the runtime's by its name if it is known.
// systemd names a unit by its file or, in some records, by its description.
func whose(lane, subject string) string {
	s := strings.ToLower(subject)
	if name, _, ok := strings.Cut(s, ".service"); ok {
		s = name
	}
	switch {
	case lane == kubeletName, strings.Contains(s, kubeletName), strings.Contains(s, "kubernetes node agent"), strings.Contains(s, "kubelite"):
		return kubeletName
	case strings.HasPrefix(s, "k3s"), strings.HasPrefix(s, "rke2"), strings.HasPrefix(s, "k0s"), strings.HasPrefix(s, "lightweight kubernetes"):
		return kubeletName // which runs inside them
	case s == "containerd", strings.Contains(s, "containerd container runtime"):
		return "containerd"
	case s == "crio", s == "cri-o", strings.Contains(s, "container runtime interface for oci"):
		return "crio"
	case s == "docker", s == "dockerd", strings.Contains(s, "docker application container"):
		return "docker"
	case s == "cri-docker", s == "cri-dockerd", strings.Contains(s, "cri interface for docker"):
		return "cri-dockerd"
	case lane == runtimeName:
		return runtimeName
	}
	return subject
}

func isRuntime(who string) bool {
	return slices.Contains([]string{runtimeName, "containerd", "crio", "docker", "cri-dockerd"}, who)
}

// A restart is one end and the start after it, whatever number of records tell of them.
type restart struct {
	who  string
	how  string // how it ended; empty where no record says
	rank int    // of how, the best is the highest
	at   *time.Time
	up   *time.Time
	last time.Time // of its records
	note string    // told as it is
}

// endWords says how an event ends a daemon, and how well it says so; nothing for an event that is a start.
func endWords(code string) (how string, rank int) {
	switch code {
	case "WatchdogTimeout":
		return "killed by systemd's watchdog", 3
	case "UnitFailed":
		return "ended with a failure", 2
	case "UnitStopped", "RuntimeStopped":
		return "stopped", 1
	}
	return "", 0
}

// oneRestart is how far apart two records of one restart may be: systemd waits ten seconds before a kubelet's next start
// as its package sets RestartSec, and a runtime loads its state for some seconds.
const oneRestart = 30 * time.Second

// restartsOf puts the records of restarts together: an end, systemd's decision, and the start are one.
func restartsOf(events []journal.Event) []restart {
	var all []restart
	open := map[string]int{}
	for _, e := range events {
		who := whose(e.Lane, e.Subject)
		key := who
		if isRuntime(who) {
			key = runtimeName
		}
		if e.Code == "KubeletStarted" && e.Marker == "restart" || e.At == nil {
			all = append(all, restart{who: who, at: e.At, note: eventWords(e)})
			continue
		}
		i, known := open[key]
		how, rank := endWords(e.Code)
		if !known || e.At.Sub(all[i].last) > oneRestart || rank > 0 && all[i].up != nil {
			i = len(all)
			open[key] = i
			all = append(all, restart{who: who, at: e.At})
		}
		r := &all[i]
		r.last = *e.At
		if r.who == runtimeName {
			r.who = who
		}
		switch {
		case rank > r.rank:
			r.how, r.rank = how, rank
		case rank > 0:
		case e.Code == "UnitRestarted" && r.how == "":
			r.how = "restarted by systemd"
		case e.Code != "UnitRestarted":
			r.up = e.At // the last start that is told: that of the process, after that of the unit
		}
	}
	return all
}

func (p *page) restartsLine(e journal.Episode, c calendar) string {
	var parts []string
	all := restartsOf(e.Restarts)
	for i, r := range all {
		if i == shownStalls {
			parts = append(parts, "and "+count(len(all)-i)+" more")
			break
		}
		parts = append(parts, p.restartWords(r, c))
	}
	return strings.Join(parts, "; ")
}

func (p *page) restartWords(r restart, c calendar) string {
	text := c.stamp(r.at) + " "
	switch {
	case r.note != "":
		return text + p.prose(r.note)
	case r.how == "":
		return text + p.prose(r.who) + " started"
	}
	text += p.prose(r.who + " " + r.how)
	if r.up != nil {
		text += ", up again " + c.stamp(r.up)
	}
	return text
}
