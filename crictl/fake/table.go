package fake

import (
	"iter"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A table holds objects by id and keeps their order, so that lists are the same in every run. The zero table is ready
// to use. It does no locking.
type table[T any] struct {
	byID map[string]T
	at   map[string]int
	ids  []string // in the order in which they were added; empty for one that was removed
}

func (t *table[T]) add(id string, object T) {
	if t.byID == nil {
		t.byID, t.at = map[string]T{}, map[string]int{}
	}
	t.byID[id], t.at[id] = object, len(t.ids)
	t.ids = append(t.ids, id)
}

// find returns the object with that id, or the only one whose id begins with it: runtimes accept shortened ids. The
// error has a gRPC code.
func (t *table[T]) find(id string) (found T, err error) {
	if object, ok := t.byID[id]; ok {
		return object, nil
	}
	matches := 0
	for _, full := range t.ids {
		if id != "" && strings.HasPrefix(full, id) {
			found = t.byID[full]
			matches++
		}
	}
	switch matches {
	case 0:
		err = status.Errorf(codes.NotFound, "no object has the id %q: not found", id)
	case 1:
	default:
		err = status.Errorf(codes.InvalidArgument, "%d objects have an id that begins with %q", matches, id)
	}
	return found, err
}

func (t *table[T]) remove(id string) {
	if i, ok := t.at[id]; ok {
		t.ids[i] = ""
	}
	delete(t.byID, id)
	delete(t.at, id)
	if len(t.ids) > 2*len(t.byID) {
		t.ids = slices.DeleteFunc(t.ids, func(id string) bool { return id == "" })
		for i, id := range t.ids {
			t.at[id] = i
		}
	}
}

// all yields the objects in the order in which they were added.
func (t *table[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, id := range t.ids {
			if id != "" && !yield(t.byID[id]) {
				return
			}
		}
	}
}
