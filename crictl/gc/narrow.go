package gc

// skipNotPlanned is why a victim of an older plan is not touched.
const skipNotPlanned = "the node has changed: a plan made now would keep it"

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
	still := make(map[key]int64, len(now.Remove))
	for i := range now.Remove {
		v := &now.Remove[i]
		still[key{v.Kind, v.ID, v.CreatedAt.UnixNano()}] = v.Bytes
	}
	left := make([]Victim, 0, len(older.Remove))
	skipped := []Skipped{}
	older.Bytes = 0
	for i := range older.Remove {
		v := &older.Remove[i]
		bytes, ok := still[key{v.Kind, v.ID, v.CreatedAt.UnixNano()}]
		if !ok {
			skipped = append(skipped, Skipped{ID: v.ID, Why: skipNotPlanned})
			continue
		}
		older.Bytes += bytes
		left = append(left, *v)
	}
	older.Remove = left
	return older, skipped
}
