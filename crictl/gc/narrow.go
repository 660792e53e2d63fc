package gc

// Why a victim of an older plan is not touched.
const (
	skipNotPlanned = "the node has changed: a plan made now would keep it"
	skipRecorded   = "removed before, by the audit file"
)

// A Skipped is a victim that was not removed because it should not be, and why.
type Skipped struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Narrow returns the part of an older plan that a plan made now would remove too, and what that leaves out. An older
// plan must go through it before it is run: what stayed beside a victim then may be gone now, and the victim the newest.
func Narrow(older, now Plan) (Plan, []Skipped) {
	type key struct {
		kind, id string
		created  int64
	}
	still := make(map[key]bool, len(now.Remove))
	for i := range now.Remove {
		v := &now.Remove[i]
		still[key{v.Kind, v.ID, v.CreatedAt.UnixNano()}] = true
	}
	return older.without(skipNotPlanned, func(v *Victim) bool {
		return !still[key{v.Kind, v.ID, v.CreatedAt.UnixNano()}]
	})
}

// WithoutRecorded returns the part of a plan that an audit file does not yet hold as removed, and what that leaves out.
func WithoutRecorded(plan Plan, a *Audit) (Plan, []Skipped) {
	return plan.without(skipRecorded, func(v *Victim) bool { return a.Has(v.ID) })
}

func (p Plan) without(why string, out func(*Victim) bool) (Plan, []Skipped) {
	left := make([]Victim, 0, len(p.Remove))
	skipped := []Skipped{}
	for i := range p.Remove {
		v := &p.Remove[i]
		if out(v) {
			skipped = append(skipped, Skipped{ID: v.ID, Why: why})
			continue
		}
		left = append(left, *v)
	}
	p.Remove = left
	return p, skipped
}
