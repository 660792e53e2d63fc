package host

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Writes are timed writes of 4 KiB with fsync into a new, unlinked file in a folder, one after the other.
type Writes struct {
	Folder  Folder
	Mount   string
	Times   []time.Duration // in the order in which they were made
	Err     string
	Hung    bool // one did not end in time
	Waiting time.Duration
}

// writesTime is how long new writes are begun: on a disk so slow that this is not enough for all, some are enough.
const writesTime = 2 * time.Second

// TimeWrites times up to n writes in a folder of the host's, each into a file of its own that has no name, in a child. It
// stops at the first that fails: Err says why, such as a file system that is full or mounted read-only. One that has not
// ended when ctx nearly has hangs, and none is begun where one of an earlier run still does.
func TimeWrites(ctx context.Context, root string, folder Folder, n int, child Child) (Writes, error) {
	w := Writes{Folder: folder}
	table, err := readMounts(root)
	if err != nil {
		return w, err
	}
	name, ok := table.resolve(hostBase(root), folder.Path)
	if !ok {
		w.Err = "there is no such folder"
		return w, nil
	}
	m, _ := table.of(name)
	w.Mount = m.point
	spots := slices.Repeat([]spot{{[]string{name}, numbered(m.device, m.kind)}}, n)
	q := &inquiry{child: child, root: root, verb: verbWrite, patience: time.Minute, alone: true, enough: writesTime}
	outcomes, err := q.ask(ctx, spots)
	w.fill(outcomes)
	if err == nil && len(w.Times) == 0 && w.Err == "" && !w.Hung {
		err = errors.New("timing writes: none was made in the time there was")
	}
	return w, err
}

func (w *Writes) fill(outcomes []outcome) {
	for _, o := range outcomes {
		switch {
		case !o.asked:
			return
		case o.hung:
			w.Hung, w.Waiting = true, o.waiting
			return
		case o.reply.Err != "":
			w.Err = o.reply.Err
			return
		}
		w.Times = append(w.Times, o.reply.Took)
	}
}
