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

// The confidence that a goroutine holds a lock, before evidence is missing or against it.
const (
	knownHolder  = 0.9 // a function that is known to hold this lock, called on the same object
	sameReceiver = 0.7 // another method of the object that the lock is a part of, called on the same object
	knownPlace   = 0.6 // a function that is known to hold such a lock; the stack does not show of which object
)

const (
	// maxLocks bounds the locks of one rule for which a holder is searched by its functions alone.
	maxLocks = 100
	// maxChain bounds a chain of goroutines that wait for each other.
	maxChain = 100
	// largestObject is the size in bytes of the largest object in which a lock is looked for. The locks of bbolt.DB
	// begin at 440.
	largestObject = 640
)

// A lock is one that goroutines wait for.
type lock struct {
	addr, owner uint64      // of the lock, and of the object with the method that takes it; 0 where not known
	word, text  string      // as waitsFor returns them
	method      string      // the function that takes it; empty where not known
	rules       []*holdRule // about its holders
	waiters     []int       // indexes of goroutines
	writer      int         // id of the goroutine that waits to write; 0 for none
	holder      int         // index of the goroutine that holds it; -1 for none or several
	confidence  float64     // in holder
	why         string      // evidence for holder
	others      int         // goroutines with the same confidence as holder
	shared      bool        // holder and the others hold it together, to read
}

// findLocks groups the goroutines that wait for locks by the lock: by its address, or where the dump does not have it
// by the object with the method that takes it, if goroutines wait for only one lock of that object.
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
	// Arguments in a dump may be outdated. They are right if they agree; else the slow path's are.
	switch {
	case addr == 0 || owner == 0 || addr-owner < largestObject:
		return addr, owner
	case slow:
		return addr, 0
	}
	return 0, owner
}

// newLock returns the lock for which goroutines wait at a place.
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

// findHolders returns the goroutines that hold locks for which others wait, with the number of those.
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

// offer offers goroutine i as the holder of the locks that the functions in its stack hold.
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

// enter makes goroutine i the holder of l, unless the confidence in another is higher.
func (a *analysis) enter(l *lock, i int, confidence float64, why string, shared bool) {
	switch {
	case a.waits[i] == l: // it does not hold it
	case confidence > l.confidence:
		l.holder, l.confidence, l.why, l.shared, l.others = i, confidence, why, shared, 0
	case confidence == l.confidence && l.holder != i:
		if l.others++; shared && a.dump.Goroutines[i].Wait > a.dump.Goroutines[l.holder].Wait {
			l.holder, l.why = i, why
		}
	}
}

// link sets for each goroutine the one that holds its lock.
func (a *analysis) link() {
	a.next = slices.Repeat([]int{-1}, len(a.at))
	for _, l := range a.locks {
		for _, w := range l.waiters {
			a.next[w] = l.holder
		}
	}
}

// lasts reports whether l is held for long: its holder, or a goroutine for which the holder waits, has waited for a
// minute, stands still in a second dump, or waits for something that a busy daemon does not wait for at any moment, as
// it does for the disk or another goroutine. A dump has no times for the first minute after a garbage collection. A
// deadlock lasts.
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

// blocked returns for each goroutine how many wait for it, directly or through others.
func (a *analysis) blocked() []int {
	blocks := make([]int, len(a.next))
	counted := slices.Repeat([]int{-1}, len(a.next)) // for each, the last that was counted
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

// cycle returns the ids of the goroutines of a deadlock, from goroutine i on; nil if i is in none.
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
	if l.addr == 0 && l.confidence == sameReceiver {
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
	h.Evidence, h.Confidence = e, checks.Confidence(l.confidence, e)
	return h
}
