package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// A scope is how much must have been seen before a node may be called healthy.
type scope uint8

const (
	scopeProbes scope = iota // the socket and every RPC once
	scopeSweep               // the status of all that runs as well
)

// VerdictOf sums up. A critical cause makes unhealthy, whatever else could not be seen; warnings make degraded. Without
// causes the answer is healthy only if Version, Status and both lists were answered each time, the status of everything
// that runs came, the socket is the kubelet's, and nothing interrupted the measurement; else it is unknown.
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
	for _, name := range []string{rpcVersion, rpcStatus, rpcSandboxes, rpcContainers} {
		switch r := f.rpc(name); {
		case r.Outcome == notAsked:
			lines = append(lines, or(f.cutOff(name), name+" was not asked"))
		case !r.Outcome.alive():
			lines = append(lines, callLine(r.last()))
		}
	}
	if s := f.Summary; s != nil && s.List != nil && s.List.Errors > 0 {
		lines = append(lines, fmt.Sprintf("the lists of %s of %s failed or did not come", units.Number(s.List.Errors), units.Count(s.List.Samples, "relist")))
	}
	if r := f.seenRunning(); want == scopeSweep {
		lines = append(lines, r.problems()...)
	}
	if f.wrongSocket() {
		lines = append(lines, f.endpointProblem())
	}
	return lines
}

// cutOff says of an RPC without an outcome for how long it had been asked when the command ended; nothing if it was not asked.
func (f *Facts) cutOff(name string) string {
	for _, c := range f.Measurement.Probes {
		if canonical(c.Method) == name && c.Code == crictl.Canceled && c.Elapsed > 0 {
			return fmt.Sprintf("%s had not answered after %s, when the command ended", name, units.Duration(c.Elapsed))
		}
	}
	return ""
}

// connectProblem says why nothing could be asked; empty when it could.
func connectProblem(c crictl.Connect) string {
	if c.TTRPC {
		return "the socket is containerd's ttrpc socket, for its shims, and not its CRI socket"
	}
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

// The number and the share of running objects that may be gone by the time that their status is asked: pods end while
// kdiag looks. More than both, or all of them, is a runtime whose lists and statuses disagree.
const (
	fewGone      = 5
	shareOfGone  = 0.2
	leastForGone = 2 // one object may always have ended
)

// A roll is what became of the status calls about running containers and ready sandboxes.
type roll struct {
	All, Asked, Answered, Gone int
}

// disagrees reports whether too many of the objects that the newest lists call running are not found by their id.
func (r roll) disagrees() bool {
	if r.Gone < leastForGone {
		return false
	}
	return r.Gone == r.Asked || r.Gone > fewGone && float64(r.Gone) > shareOfGone*float64(r.Asked)
}

// problems says what stands between these figures and a healthy node.
func (r roll) problems() []string {
	var lines []string
	if n := r.All - r.Asked; n > 0 {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not asked", units.Number(n), units.Count(r.All, "object")))
	}
	if n := r.Asked - r.Answered - r.Gone; n > 0 {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not answered", units.Number(n), units.Count(r.All, "object")))
	}
	if r.disagrees() {
		lines = append(lines, r.disagreement())
	}
	return lines
}

// disagreement says that lists and statuses disagree.
func (r roll) disagreement() string {
	return fmt.Sprintf("lists and statuses disagree: %s of %s that run by the lists %s not found by id",
		units.Number(r.Gone), units.Count(r.Asked, "object"), verb(r.Gone, "is", "are"))
}

// seenRunning counts the status calls about what the newest lists call running or ready.
func (f *Facts) seenRunning() roll {
	m := f.Measurement
	var all roll
	asked := map[string]plegbench.Inspection{}
	for _, i := range f.inspections() {
		asked[i.ID] = i
	}
	note := func(id string) {
		all.All++
		i, ok := asked[id]
		switch {
		case !ok:
			return
		case isAnswered(i):
			all.Answered++
		case isNotFound(i):
			all.Gone++
		}
		all.Asked++
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
	return all
}

// otherEndpoint reports whether the kubelet of this host uses another endpoint than the one that was asked.
func (f *Facts) otherEndpoint() bool {
	if f.Kubelet == nil || f.Kubelet.Endpoint == "" || f.simulated() {
		return false
	}
	plain := func(s string) string {
		if url, err := crictl.ParseEndpoint(s); err == nil {
			s = url
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "unix://"), "/var") // /var/run is /run
	}
	return plain(f.Kubelet.Endpoint) != plain(f.Runtime.Endpoint)
}

// wrongSocket reports whether the socket that was asked is not the kubelet's and was not asked for by name: then what it
// says is no verdict on the node. Who gives --runtime-endpoint wants to know about that socket.
func (f *Facts) wrongSocket() bool {
	return f.otherEndpoint() && f.Runtime.EndpointSource != string(crictl.SourceFlag)
}

func (f *Facts) endpointProblem() string { return "the kubelet of this host " + f.usesOther() }

// usesOther says which other endpoint the kubelet uses, or what is wrong with the one that it was given.
func (f *Facts) usesOther() string {
	_, err := crictl.ParseEndpoint(f.Kubelet.Endpoint)
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		return fmt.Sprintf(`was given the endpoint "%s", which %s`, clean(f.Kubelet.Endpoint), clean(bad.Problem))
	}
	return "uses another endpoint: " + clean(f.Kubelet.Endpoint)
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
	if f.otherEndpoint() && !slices.Contains(lines, f.endpointProblem()) {
		lines = append(lines, f.endpointProblem())
	}
	for _, t := range f.NotTaken[:min(len(f.NotTaken), topHeaps)] {
		lines = append(lines, "not taken for this node's kubelet: "+clean(t.What)+": "+clean(t.Why))
	}
	if f.Kubelet != nil && f.Kubelet.Unreadable != "" {
		lines = append(lines, "the kubelet's settings could not all be read: "+clean(f.Kubelet.Unreadable))
	}
	return lines
}
