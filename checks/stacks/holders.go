package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// The confidence that a goroutine holds a lock, before what is missing or against it is taken off.
const (
	knownHolder  = 0.9 // a function that is known to hold this lock, called on the same object
	sameReceiver = 0.7 // another method of the object that the lock is a part of, called on the same object
	knownPlace   = 0.6 // a function that is known to hold such a lock; the stack does not show of which object
)

const (
	// maxLocks bounds the locks of one kind for which a holder is looked for by the function that it is in.
	maxLocks = 100
	// maxChain bounds how far it is followed who waits for whom.
	maxChain = 100
	// largestObject is how far behind the start of an object a lock is taken for a part of it, in bytes. The locks of
	// bbolt.DB begin at 440.
	largestObject = 640
)

// A lock is what several goroutines may wait for.
type lock struct {
	addr, owner uint64      // of the lock, and of the object with the method that takes it; 0 where not known
	word, text  string      // as in StackWait.On: lock 0xc000123 of statusStorage
	method      string      // that takes it; empty where not known
	rules       []*holdRule // that speak of it
	waiters     []int       // indexes of goroutines
	writer      int         // id of the goroutine that waits to write, 0 without
	holder      int         // -1: none is named
	step        float64
	why         string // a holder is thought to be one
	others      int    // that fit as well as the holder, or as each other
	shared      bool   // those hold it too, to read
}

// findLocks sorts those that wait for locks by the lock: by its address, or where this is not in the dump by the object
// with the method that takes it, if only one lock of that is waited for.
func (a *analysis) findLocks() {
	const several = 1
	a.waits = make([]*lock, len(a.at))
	addrs, owners, only := make([]uint64, len(a.at)), make([]uint64, len(a.at)), map[uint64]uint64{}
	for i := range a.at {
		addrs[i], owners[i] = a.lockOf(i)
		if addr, owner := addrs[i], owners[i]; addr != 0 && owner != 0 {
			if was, ok := only[owner]; ok && was != addr {
				addr = several
			}
			only[owner] = addr
		}
	}
	byKey := map[uint64]*lock{}
	for i, p := range a.at {
		addr := cmp.Or(addrs[i], only[owners[i]])
		key := cmp.Or(addr, owners[i])
		if key == 0 || key == several {
			continue
		}
		l, ok := byKey[key]
		if !ok {
			l = newLock(p, addr, owners[i])
			byKey[key], a.locks = l, append(a.locks, l)
		}
		l.owner, l.waiters, a.waits[i] = cmp.Or(l.owner, owners[i]), append(l.waiters, i), l
		if p.writer && l.writer == 0 {
			l.writer = a.dump.Goroutines[i].ID
		}
	}
}

// lockOf returns the address of the lock that goroutine i waits for, and of the object with the method that takes it; 0
// for what is not known.
func (a *analysis) lockOf(i int) (addr, owner uint64) {
	p := a.at[i]
	if !p.lock || a.idle[i] {
		return 0, 0
	}
	slow := false
	for f, fn := range p.fns[:p.owner] {
		if at := a.addr(i, f); at != 0 && !slow && fn.lock {
			addr, slow = at, fn.base == "sync.(*Mutex).lockSlow"
		}
	}
	if p.owner < len(p.fns) && p.fns[p.owner].method {
		owner = a.addr(i, p.owner)
	}
	// The words of a dump may be stale. What both agree on is right; else the slow path has what it was given.
	switch {
	case addr == 0 || owner == 0 || addr-owner < largestObject:
		return addr, owner
	case slow:
		return addr, 0
	}
	return 0, owner
}

// newLock returns the lock that is waited for at a place.
func newLock(p *place, addr, owner uint64) *lock {
	l := &lock{addr: addr, owner: owner, holder: -1, word: WaitsLock}
	l.text = fmt.Sprintf("lock %#x", cmp.Or(addr, owner))
	if p.owner == len(p.fns) {
		return l
	}
	l.method = p.fns[p.owner].base
	l.rules = p.rules
	if len(l.rules) > 0 {
		l.word, l.text = l.rules[0].Word, fmt.Sprintf("%s %#x", l.rules[0].Object, cmp.Or(addr, owner))
	} else if _, typ, ok := strings.Cut(receiverType(l.method), "(*"); ok {
		l.text += " of " + strings.TrimSuffix(typ, ")")
	}
	return l
}

// receiverType returns the type of a method with a pointer receiver, with its package: container.(*statusStorage).
func receiverType(method string) string { return method[:strings.LastIndexByte(method, ')')+1] }

// findHolders names who holds the locks that others wait for, and counts whom each blocks.
func (a *analysis) findHolders() []checks.StackHolder {
	byOwner, byRule := map[uint64][]*lock{}, map[*holdRule][]*lock{}
	for _, l := range a.locks {
		if l.owner != 0 {
			byOwner[l.owner] = append(byOwner[l.owner], l)
		}
		for _, r := range l.rules {
			if !r.Same && len(byRule[r]) < maxLocks {
				byRule[r] = append(byRule[r], l)
			}
		}
	}
	for i := range a.at {
		if word, _ := a.waitsFor(i); !a.idle[i] && word != WaitsNothing {
			a.offer(i, byOwner, byRule)
		}
	}
	for _, l := range a.locks {
		if l.others > 0 && !l.shared {
			l.text += fmt.Sprintf("; %d goroutines may hold it", l.others+1)
			l.holder = -1
		}
	}
	a.link()
	passing := slices.DeleteFunc(slices.Clone(a.locks), a.lasts)
	for _, l := range passing {
		l.holder = -1
	}
	a.link()
	blocks := a.blocked()
	seen := map[int]bool{}
	var out []checks.StackHolder
	for _, l := range a.locks {
		if l.holder >= 0 && !seen[l.holder] {
			seen[l.holder] = true
			out = append(out, a.holder(l, blocks[l.holder]))
		}
	}
	return out
}

// offer enters goroutine i as the holder of the locks that the functions in its stack hold.
func (a *analysis) offer(i int, byOwner map[uint64][]*lock, byRule map[*holdRule][]*lock) {
	p := a.at[i]
	for f, fn := range p.fns {
		at := a.addr(i, f)
		if fn.method && !fn.std && (f != p.owner || !p.lock) {
			for _, l := range byOwner[at] {
				why := fmt.Sprintf("it is in %s, on the object with the lock (%#x)", fn.short, at)
				holds := slices.IndexFunc(l.rules, func(r *holdRule) bool { return slices.Contains(p.holds, hold{f, r}) })
				switch {
				case holds >= 0:
					a.enter(l, i, knownHolder, why, l.rules[holds].Shared)
				case len(l.rules) == 0 && receiverType(l.method) == receiverType(fn.base):
					a.enter(l, i, sameReceiver, why, false)
				}
			}
		}
	}
	for _, h := range p.holds {
		if a.waits[i] != nil && slices.Contains(a.waits[i].rules, h.rule) {
			continue
		}
		for _, l := range byRule[h.rule] {
			why := fmt.Sprintf("it is in %s, which holds such a lock", p.fns[h.frame].short)
			a.enter(l, i, knownPlace, why, false)
		}
	}
}

// enter enters goroutine i as the holder of l if nothing speaks more for another.
func (a *analysis) enter(l *lock, i int, step float64, why string, shared bool) {
	switch {
	case a.waits[i] == l: // it does not have it
	case step > l.step:
		l.holder, l.step, l.why, l.shared, l.others = i, step, why, shared, 0
	case step == l.step && l.holder != i:
		if l.others++; shared && a.dump.Goroutines[i].Wait > a.dump.Goroutines[l.holder].Wait {
			l.holder, l.why = i, why
		}
	}
}

// link notes for each goroutine who holds what it waits for.
func (a *analysis) link() {
	a.next = slices.Repeat([]int{-1}, len(a.at))
	for _, l := range a.locks {
		for _, w := range l.waiters {
			a.next[w] = l.holder
		}
	}
}

// lasts reports whether l is held for long, as its holder, or one that this one waits for, shows. Without a sign of
// time a holder that waits for what a busy daemon waits for in each moment, the disk or another goroutine, means
// nothing: times count from the first minute after a collection of garbage on, and a second dump shows what stands
// still. A deadlock lasts.
func (a *analysis) lasts(l *lock) bool {
	i := l.holder
	for range maxChain {
		if i < 0 {
			return false
		}
		if a.dump.Goroutines[i].Wait >= time.Minute || a.standsStill(i) {
			return true
		}
		switch word, _ := a.waitsFor(i); word {
		case WaitsFlock, WaitsMount, WaitsUmount, WaitsFIFO:
			return true
		case WaitsTTRPC, WaitsGRPC, WaitsCNI, WaitsRunc, WaitsChild, WaitsRegistry:
			if len(l.waiters) > 1 {
				return true
			}
		}
		i = a.next[i]
	}
	return true
}

// blocked returns for each goroutine how many wait for it, directly and through others. Each waits for one at most.
func (a *analysis) blocked() []int {
	blocks := make([]int, len(a.next))
	counted := slices.Repeat([]int{-1}, len(a.next)) // the last that was counted for each
	for i := range a.next {
		n := i
		for range maxChain {
			if n < 0 || counted[n] == i {
				break
			}
			if counted[n] = i; n != i {
				blocks[n]++
			}
			n = a.next[n]
		}
	}
	return blocks
}

// cycle returns the ids of the goroutines that wait for each other, from goroutine i on; nil if it is in no deadlock.
func (a *analysis) cycle(i int) (ids []int) {
	for n := i; n >= 0 && len(ids) < maxChain; n = a.next[n] {
		if n == i && len(ids) > 0 {
			return ids
		}
		ids = append(ids, a.dump.Goroutines[n].ID)
	}
	return nil
}

// holder describes the goroutine that holds l.
func (a *analysis) holder(l *lock, blocks int) checks.StackHolder {
	i, n := l.holder, len(l.waiters)
	g, p := &a.dump.Goroutines[i], a.at[i]
	word, on := a.waitsFor(i)
	h := checks.StackHolder{
		Source: a.source, Goroutine: g.ID, Seconds: seconds(g.Wait), Object: l.text, Blocks: blocks, WaitsFor: word,
		Call: p.call, Stack: p.names(), Why: fmt.Sprintf("it holds the %s, and waits for %s", l.text, on),
		Cycle: a.cycle(i),
	}
	if next := a.next[i]; next >= 0 {
		h.Why += fmt.Sprintf(", which goroutine %d holds", a.dump.Goroutines[next].ID)
	}
	waits := fmt.Sprintf("%d %s for this lock", n, units.Plural(n, "waits", "wait"))
	if l.method != "" {
		waits += " in " + l.method
	}
	e := checks.Evidence{For: []string{l.why, waits}, Against: []string{}, Missing: []string{}}
	longest := time.Duration(0)
	for _, w := range l.waiters {
		longest = max(longest, a.dump.Goroutines[w].Wait)
	}
	switch {
	case a.standsStill(i) && a.apart > 0:
		e.For = append(e.For, "it stands at the same place in the older dump, "+units.Duration(a.apart)+" apart")
	case a.standsStill(i):
		e.For = append(e.For, "it stands at the same place in the older dump")
	case g.Wait == 0 && longest == 0:
		e.Missing = append(e.Missing,
			"how long they wait: a dump has no times for the first minutes; take a second one")
	}
	if l.addr == 0 && l.step == sameReceiver {
		e.Missing = append(e.Missing, "which lock of the object they wait for: its address is not in the dump")
	}
	if g.Wait > 0 && longest > g.Wait {
		e.Against = append(e.Against, fmt.Sprintf("another has waited for the lock for longer (%s) than it (%s)",
			units.Duration(longest), units.Duration(g.Wait)))
	}
	if l.shared && l.others > 0 {
		e.For = append(e.For, fmt.Sprintf("%d more %s it in the same way, to read", l.others,
			units.Plural(l.others, "holds", "hold")))
	}
	if l.shared && l.writer != 0 {
		e.For = append(e.For,
			fmt.Sprintf("goroutine %d waits to write, which stops those that read after it", l.writer))
	}
	if h.Cycle != nil {
		e.For = append(e.For, "they wait for each other: a deadlock")
	}
	h.Evidence, h.Confidence = e, checks.Confidence(l.step, e)
	return h
}
