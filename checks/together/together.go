// Package together runs the parts of one look at the node at the same time.
package together

import "sync"

// A Group is a number of parts, each in a goroutine of its own, where nobody could catch what it panics with: the
// program would end. So Wait panics with it instead, in the goroutine of the look, and its runner makes a finding of
// it. The zero Group is ready.
type Group struct {
	parts sync.WaitGroup
	first sync.Once
	fault any // what the first part to panic did so with
}

// Go begins a part.
func (g *Group) Go(part func()) {
	g.parts.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				g.first.Do(func() { g.fault = v })
			}
		}()
		part()
	})
}

// Wait waits for all parts.
func (g *Group) Wait() {
	g.parts.Wait()
	if g.fault != nil {
		panic(g.fault)
	}
}
