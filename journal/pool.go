package journal

import (
	"strings"
	"sync"
)

// Bounds of what a pool holds. Beyond them, names become "" or the first of their kind; the records still count.
const (
	maxSubjects = 50_000
	maxDetails  = 4_096
	maxNames    = 16_000
)

// A pool numbers the texts that hits name, so that a hit holds two bytes in place of a string. Safe for several goroutines.
type pool struct {
	mu       sync.Mutex
	names    numbers[string]  // hosts, boots, codes, lists of reasons
	subjects numbers[subject] // objects
	details  numbers[detail]  // failed calls
}

// numbers gives each value a number from 1. Number 0 is the zero value.
type numbers[T comparable] struct {
	of   map[T]uint32
	list []T
}

func (n *numbers[T]) put(v T, limit int, clone func(T) T) uint32 {
	var zero T
	if v == zero {
		return 0
	}
	if i, ok := n.of[v]; ok {
		return i
	}
	if len(n.list) >= limit {
		return 0
	}
	if n.of == nil {
		n.of, n.list = map[T]uint32{}, append(n.list, zero)
	}
	v = clone(v)
	i := uint32(len(n.list))
	n.of[v] = i
	n.list = append(n.list, v)
	return i
}

func (n *numbers[T]) get(i uint32) T {
	if int(i) < len(n.list) {
		return n.list[i]
	}
	var zero T
	return zero
}

func (p *pool) name(s string) uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint16(p.names.put(s, maxNames, strings.Clone))
}

func (p *pool) nameOf(i uint16) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names.get(uint32(i))
}

func (p *pool) subject(s subject) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subjects.put(s, maxSubjects, func(s subject) subject {
		return subject{
			strings.Clone(s.Kind), strings.Clone(s.ID), strings.Clone(s.Name),
			strings.Clone(s.Namespace), strings.Clone(s.Pod), strings.Clone(s.PodUID),
		}
	})
}

func (p *pool) subjectOf(i uint32) subject {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subjects.get(i)
}

func (p *pool) detail(d detail) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.details.put(d, maxDetails, func(d detail) detail {
		d.RPC, d.Code, d.Text = strings.Clone(d.RPC), strings.Clone(d.Code), strings.Clone(d.Text)
		return d
	})
}

func (p *pool) detailOf(i uint32) detail {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.details.get(i)
}
