package fake

import (
	"fmt"
	"iter"
	"strings"
)

// A table holds objects by id and keeps the order in which they came, so that lists are the same in every run. The zero
// table is ready to use. It does no locking.
type table[T any] struct {
	index map[string]int // id to place in rows
	rows  []row[T]
	holes int // removed rows that still take a place
}

type row[T any] struct {
	id     string // empty for a hole
	object T
}

func (t *table[T]) len() int { return len(t.index) }

func (t *table[T]) add(id string, object T) {
	if t.index == nil {
		t.index = map[string]int{}
	}
	t.index[id] = len(t.rows)
	t.rows = append(t.rows, row[T]{id: id, object: object})
}

func (t *table[T]) get(id string) (T, bool) {
	i, ok := t.index[id]
	if !ok {
		var none T
		return none, false
	}
	return t.rows[i].object, true
}

// find returns the object with that id, or the only one whose id begins so, as runtimes let people shorten ids. An id that
// begins none or several is an error.
func (t *table[T]) find(id string) (T, error) {
	if object, ok := t.get(id); ok {
		return object, nil
	}
	var found T
	matches := 0
	if id != "" {
		for full, object := range t.all() {
			if strings.HasPrefix(full, id) {
				found = object
				matches++
			}
		}
	}
	switch matches {
	case 1:
		return found, nil
	case 0:
		return found, fmt.Errorf("%w: no object has the id %q", errNotFound, id)
	}
	return found, fmt.Errorf("%d objects have an id that begins with %q", matches, id)
}

func (t *table[T]) remove(id string) {
	i, ok := t.index[id]
	if !ok {
		return
	}
	delete(t.index, id)
	t.rows[i] = row[T]{}
	t.holes++
	if t.holes > len(t.rows)/2 {
		t.compact()
	}
}

func (t *table[T]) compact() {
	kept := make([]row[T], 0, len(t.index))
	for _, r := range t.rows {
		if r.id != "" {
			t.index[r.id] = len(kept)
			kept = append(kept, r)
		}
	}
	t.rows, t.holes = kept, 0
}

// all yields ids and objects in the order in which they were added.
func (t *table[T]) all() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, r := range t.rows {
			if r.id != "" && !yield(r.id, r.object) {
				return
			}
		}
	}
}

// objects yields the objects alone.
func (t *table[T]) objects() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, object := range t.all() {
			if !yield(object) {
				return
			}
		}
	}
}
