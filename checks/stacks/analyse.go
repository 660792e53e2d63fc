package stacks

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
)

const (
	// leastApart is the least time between two dumps for a goroutine at the same place in both to count as standing
	// still: a healthy daemon waits less than a second for a shim, a CNI plugin or the disk.
	leastApart = 2 * time.Second
	// maxIDs bounds the goroutines that a group or a picture lists.
	maxIDs = 20
	// shownFrames bounds the stack of a group or a holder.
	shownFrames = 32
)

// An analysis has all that is worked out about one dump.
type analysis struct {
	source int
	dump   *Dump
	older  map[int]*Stack // goroutines of the older dump of the process, by id; nil without one
	apart  time.Duration  // between the two dumps; 0 if not known
	fns    map[string]*function
	places map[*Stack]*place
	at     []*place // of each goroutine of the dump
	idle   []bool   // for each goroutine, whether it waits as it should
	locks  []*lock
	waits  []*lock // for each goroutine, the lock that it waits for; nil if none
	next   []int   // for each goroutine, the one that holds that lock; -1 if none or not known
}

// Analyse works out the report of dumps of any number of processes, without its header. What stands at the same place
// in the dump before one counts as evidence. It is pure.
func Analyse(dumps ...*Dump) *checks.StacksReport {
	r := &checks.StacksReport{
		Sources: []checks.StackSource{}, Waits: []checks.StackWait{}, Holders: []checks.StackHolder{},
		Known: []checks.KnownPicture{},
	}
	for i, d := range dumps {
		a := newAnalysis(i, d)
		source := d.Source
		source.Goroutines, source.Idle = max(source.Goroutines, len(d.Goroutines)), 0
		for _, idle := range a.idle {
			if idle {
				source.Idle++
			}
		}
		r.Sources = append(r.Sources, source)
		holders := a.findHolders()
		r.Holders = append(r.Holders, holders...)
		r.Waits = append(r.Waits, a.groups()...)
		r.Known = append(r.Known, a.pictures(holders)...)
	}
	slices.SortStableFunc(r.Waits, func(x, y checks.StackWait) int { return cmp.Compare(y.Count, x.Count) })
	slices.SortStableFunc(r.Holders, func(x, y checks.StackHolder) int {
		return cmp.Or(y.Blocks-x.Blocks, x.Source-y.Source, x.Goroutine-y.Goroutine)
	})
	return r
}

func newAnalysis(source int, d *Dump) *analysis {
	a := &analysis{
		source: source, dump: d, fns: map[string]*function{}, places: map[*Stack]*place{},
		at: make([]*place, len(d.Goroutines)), idle: make([]bool, len(d.Goroutines)),
	}
	for i := range d.Goroutines {
		g := &d.Goroutines[i]
		a.at[i] = a.place(g.Stack)
		a.idle[i] = a.at[i].idle || a.at[i].loop && slices.Contains(loopStates, g.State)
	}
	a.findLocks()
	a.readOlder()
	return a
}

// readOlder indexes the older dump of the process, unless the two are too close together to mean something.
func (a *analysis) readOlder() {
	older := a.dump.Before
	if older == nil {
		return
	}
	if from, to := older.Source.CapturedAt, a.dump.Source.CapturedAt; from != nil && to != nil {
		if a.apart = to.Sub(*from).Abs(); a.apart < leastApart {
			return
		}
	}
	a.older = make(map[int]*Stack, len(older.Goroutines))
	for i := range older.Goroutines {
		a.older[older.Goroutines[i].ID] = older.Goroutines[i].Stack
	}
}

// standsStill reports whether goroutine i is at the same place in the older dump.
func (a *analysis) standsStill(i int) bool {
	here := a.dump.Goroutines[i].Stack
	there, ok := a.older[a.dump.Goroutines[i].ID]
	return ok && slices.EqualFunc(there.Frames, here.Frames, func(x, y Frame) bool {
		return x.Func == y.Func && x.Line == y.Line
	})
}

// addr returns the address on which a frame of goroutine i was called; 0 where it is not known.
func (a *analysis) addr(i, frame int) uint64 {
	addrs := a.dump.Goroutines[i].Addrs
	if frame < 0 || frame >= len(addrs) {
		return 0
	}
	return addrs[frame]
}

// groups returns the goroutines that do not wait for work, by the thing that they wait for, in the order of the dump.
// Those that wait for one lock or shim belong together wherever they wait, the others if the functions around the wait
// are the same.
func (a *analysis) groups() []checks.StackWait {
	var keys []string
	members := map[string][]int{} // indexes, by key
	for i, p := range a.at {
		if a.idle[i] {
			continue
		}
		word, key := a.waitsFor(i)
		if a.waits[i] == nil && word != WaitsTTRPC {
			key += p.key
		}
		if _, ok := members[key]; !ok {
			keys = append(keys, key)
		}
		members[key] = append(members[key], i)
	}
	groups := make([]checks.StackWait, len(keys))
	for n, key := range keys {
		groups[n] = a.group(members[key])
	}
	return groups
}

// group describes goroutines that wait for the same thing.
func (a *analysis) group(members []int) checks.StackWait {
	w := checks.StackWait{Source: a.source, Count: len(members)}
	w.WaitsFor, w.On = a.waitsFor(members[0])
	if a.older != nil {
		w.Still = new(int)
	}
	calls, states, places := map[string]int{}, map[string]int{}, map[*place]int{}
	at := a.at[members[0]] // of most
	for _, i := range members {
		g, p := &a.dump.Goroutines[i], a.at[i]
		states[g.State]++
		if places[p]++; places[p] > places[at] {
			at = p
		}
		if p.call != "" {
			calls[p.call]++
		}
		if a.standsStill(i) {
			*w.Still++
		}
		if len(w.Goroutines) < maxIDs {
			w.Goroutines = append(w.Goroutines, g.ID)
		}
		if s := seconds(g.Wait); s != nil {
			if w.MinSeconds == nil || *s < *w.MinSeconds {
				w.MinSeconds = s
			}
			if w.MaxSeconds == nil || *s > *w.MaxSeconds {
				w.MaxSeconds = s
			}
		}
	}
	w.State, w.Calls, w.Stack = most(states)[0], most(calls), at.names()
	return w
}

// most returns the keys, the largest count first.
func most(counts map[string]int) []string {
	keys := slices.AppendSeq([]string{}, maps.Keys(counts))
	slices.SortFunc(keys, func(x, y string) int { return cmp.Or(counts[y]-counts[x], cmp.Compare(x, y)) })
	return keys
}

// seconds returns how long a goroutine waits; nil below a minute, which dumps do not count.
func seconds(d time.Duration) *float64 {
	if d < time.Minute {
		return nil
	}
	return new(d.Seconds())
}
