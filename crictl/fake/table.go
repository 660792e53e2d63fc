package fake

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// A table holds objects by id and keeps their order, so that lists are the same in every run. The zero table is ready
// to use. It does no locking.
type table[T any] struct {
	byID map[string]*row[T]
	rows []*row[T] // in the order in which they were added, removed ones among them until they are half of it
}

type row[T any] struct {
	id      string
	object  T
	removed bool
}

func (t *table[T]) len() int { return len(t.byID) }

func (t *table[T]) add(id string, object T) {
	if t.byID == nil {
		t.byID = map[string]*row[T]{}
	}
	r := &row[T]{id: id, object: object}
	t.byID[id] = r
	t.rows = append(t.rows, r)
}

func (t *table[T]) get(id string) (object T, ok bool) {
	if r, ok := t.byID[id]; ok {
		return r.object, true
	}
	return object, false
}

// find returns the object with that id, or the only one whose id begins with it: runtimes let people shorten ids.
func (t *table[T]) find(id string) (found T, err error) {
	if object, ok := t.get(id); ok {
		return object, nil
	}
	matches := 0
	for _, r := range t.rows {
		if id != "" && !r.removed && strings.HasPrefix(r.id, id) {
			found = r.object
			matches++
		}
	}
	switch matches {
	case 0:
		err = fmt.Errorf("%w: no object has the id %q", errNotFound, id)
	case 1:
	default:
		err = fmt.Errorf("%d objects have an id that begins with %q", matches, id)
	}
	return found, err
}

func (t *table[T]) remove(id string) {
	r, ok := t.byID[id]
	if !ok {
		return
	}
	r.removed = true
	delete(t.byID, id)
	if len(t.rows) > 2*len(t.byID) {
		t.rows = slices.DeleteFunc(t.rows, func(r *row[T]) bool { return r.removed })
	}
}

// all yields the objects in the order in which they were added.
func (t *table[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, r := range t.rows {
			if !r.removed && !yield(r.object) {
				return
			}
		}
	}
}
