package checks

import "github.com/kdiag/kdiag/checks/units"

// seen returns what was seen of the node. Where nobody looked, and where the runtime is kdiag's own and this host is not its
// node, every look is empty; an empty value speaks for no cause.
func (f *Facts) seen() *Node {
	if f.Node == nil || f.simulated() {
		return &Node{}
	}
	return f.Node
}

// missing notes that a look which was wanted brought nothing, or not all. One that does not apply is no gap.
func (l Look[T]) missing(e *Evidence, what string) {
	if !l.OK && !l.Skipped {
		addf(&e.Missing, "%s: %s", what, l.why())
	}
}

// why says why a look brought nothing, or not all.
func (l Look[T]) why() string {
	switch {
	case l.Missing != "":
		return clean(l.Missing)
	case l.Hung && l.Took > 0:
		return "the look had not ended after " + units.Duration(l.Took)
	case l.Hung:
		return "the look did not end"
	case l.Skipped:
		return "not asked for"
	}
	return "it was not looked at"
}

// onlyRuntime is what the checks of the node say to who asked the runtime alone.
const onlyRuntime = "the node was not looked at: only the runtime was asked"

// readLook is the result of a check that reads one look. judge reads the value, or the part of it that came: trouble in a part is
// trouble, and a part without trouble is never ok.
func readLook[T any](f *Facts, pick func(*Node) Look[T], judge func(T) Result) Result {
	switch {
	case f.simulated():
		return result(StatusSkipped, "the runtime is simulated, and this host is not its node")
	case f.Node == nil:
		return result(StatusSkipped, onlyRuntime)
	}
	l := pick(f.Node)
	if l.Skipped {
		return result(StatusSkipped, "%s", l.why())
	}
	r := judge(l.Value)
	if !l.OK && r.Status != StatusWarning && r.Status != StatusCritical {
		r = result(StatusUnknown, "%s", l.why())
	}
	if l.Took > 0 {
		r = r.took(l.Took)
	}
	return r
}
