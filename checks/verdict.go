package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/crictl"
)

// A scope is how much must have been seen before a node may be called healthy.
type scope uint8

const (
	scopeProbes scope = iota // the socket and every RPC once
	scopeSweep               // the status of all that runs as well
)

// VerdictOf sums up. A critical cause makes unhealthy, whatever else could not be seen; warnings make degraded. Without
// causes the answer is healthy only if both lists and Status were answered, the status of everything that runs was
// asked, and nothing interrupted the measurement; else it is unknown.
func VerdictOf(f *Facts, causes []Cause) Verdict { return verdict(f, causes, scopeSweep) }

func verdict(f *Facts, causes []Cause, want scope) Verdict {
	if slices.ContainsFunc(causes, func(c Cause) bool { return c.Severity == Critical }) {
		return Unhealthy
	}
	if f == nil || f.Measurement == nil || !f.bothLists() {
		return Unknown
	}
	if len(causes) > 0 {
		return Degraded
	}
	if len(f.unseen(want)) > 0 {
		return Unknown
	}
	return Healthy
}

// bothLists reports whether both lists were answered, or, refused for their size, were had in parts.
func (f *Facts) bothLists() bool {
	m := f.Measurement
	sandboxes := f.rpc(rpcSandboxes).Outcome.alive() || m.Sandboxes != nil && m.Sandboxes.Complete
	containers := f.rpc(rpcContainers).Outcome.alive() || m.Containers != nil && m.Containers.Complete
	return sandboxes && containers
}

// unseen says what must be seen before a node may be called healthy, and was not.
func (f *Facts) unseen(want scope) []string {
	m := f.Measurement
	if m == nil {
		return []string{"no runtime was asked"}
	}
	var lines []string
	if m.Interrupted != "" {
		lines = append(lines, "the measurement ended early: "+clean(m.Interrupted))
	}
	if why := connectProblem(m.Connect); why != "" {
		return append(lines, why)
	}
	for _, name := range []string{rpcStatus, rpcSandboxes, rpcContainers} {
		switch r := f.rpc(name); r.Outcome {
		case answered, stalled:
		case notAsked:
			lines = append(lines, name+" was not asked")
		default:
			lines = append(lines, callLine(r.last()))
		}
	}
	if n, all := f.seenRunning(); want == scopeSweep && n < all {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not asked", number(all-n), count(all, "object")))
	}
	return lines
}

// connectProblem says why nothing could be asked; empty when it could.
func connectProblem(c crictl.Connect) string {
	switch c.State {
	case crictl.ConnectOK:
		return ""
	case crictl.ConnectDenied:
		return "this user may not open the runtime's socket: " + or(clean(c.Err), "permission denied")
	case crictl.ConnectNotSocket:
		return "the endpoint is not a socket: " + or(clean(c.Err), "another kind of file")
	case crictl.ConnectCanceled:
		return "the command ended before the socket answered"
	case "":
		return "the socket was not tried"
	}
	return "the socket was found " + clean(string(c.State)) + ": " + or(clean(c.Err), "no further word")
}

func or(s, otherwise string) string {
	if strings.TrimSpace(s) == "" {
		return otherwise
	}
	return s
}

// seenRunning returns of how many running containers and ready sandboxes the status was asked, and how many there are.
func (f *Facts) seenRunning() (seen, all int) {
	m := f.Measurement
	asked := map[string]bool{}
	for _, i := range f.inspections() {
		asked[i.ID] = true
	}
	note := func(id string) {
		all++
		if asked[id] {
			seen++
		}
	}
	if m.Sandboxes != nil {
		for _, s := range m.Sandboxes.Sandboxes {
			if s.State == crictl.SandboxReady {
				note(s.ID)
			}
		}
	}
	if m.Containers != nil {
		for _, c := range m.Containers.Containers {
			if c.State == crictl.ContainerRunning {
				note(c.ID)
			}
		}
	}
	return seen, all
}

// otherEndpoint reports whether the kubelet of this host uses another endpoint than the one that was asked.
func (f *Facts) otherEndpoint() bool {
	if f.Kubelet == nil || f.Kubelet.Endpoint == "" || f.simulated() {
		return false
	}
	plain := func(s string) string {
		s = strings.TrimPrefix(s, "unix://")
		return strings.TrimPrefix(s, "/var") // /var/run is /run
	}
	return plain(f.Kubelet.Endpoint) != plain(f.Runtime.Endpoint)
}

// problems says, for a person, why an answer is unknown or not whole.
func (f *Facts) problems(v Verdict, want scope) []string {
	if f == nil {
		return []string{"no runtime was asked"}
	}
	var lines []string
	switch m := f.Measurement; {
	case v == Unknown:
		lines = f.unseen(want)
	case m != nil && m.Interrupted != "":
		lines = append(lines, "the measurement ended early: "+clean(m.Interrupted))
	}
	if f.otherEndpoint() {
		lines = append(lines, "the kubelet of this host uses another endpoint: "+clean(f.Kubelet.Endpoint))
	}
	if f.Kubelet != nil && f.Kubelet.Unreadable != "" {
		lines = append(lines, "the kubelet's settings could not all be read: "+clean(f.Kubelet.Unreadable))
	}
	return lines
}
