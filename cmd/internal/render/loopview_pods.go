package render

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// A loopRow is a pod and its worker. Either may be there without the other: a worker outlives its pod until the containers
// are gone.
type loopRow struct {
	cells   []span        // name, phase, ready, restarts, address
	worker  span          // what it is at
	trouble string        // why a container does not run
	name    string        // namespace/name
	waits   time.Duration // for which something has been waited for; zero if nothing is
}

// podRows returns a row for each pod and each worker, by name.
func (p *loopPage) podRows(v LoopView) []loopRow {
	workers := map[string]podworkers.WorkerState{}
	for _, w := range v.Workers {
		workers[string(w.UID)] = w
	}
	var rows []loopRow
	for _, q := range v.Pods {
		ready, restarts, trouble := 0, 0, ""
		for _, c := range slices.Concat(q.Status.InitContainerStatuses, q.Status.ContainerStatuses) {
			restarts += int(c.RestartCount)
			if w := c.State.Waiting; w != nil && trouble == "" && w.Reason != "" && w.Reason != "PodInitializing" {
				trouble = p.prose(c.Name + ": " + w.Reason)
			}
		}
		for _, c := range q.Status.ContainerStatuses {
			if c.Ready {
				ready++
			}
		}
		row := loopRow{
			name:    p.prose(q.Namespace + "/" + q.Name),
			trouble: cmp.Or(p.prose(q.Status.Reason), trouble),
		}
		phase := plain(p.prose(cmp.Or(string(q.Status.Phase), "-")))
		switch string(q.Status.Phase) {
		case "Failed":
			phase.style = &p.ink.bad
		case "Pending", "Unknown":
			phase.style = &p.ink.warn
		}
		row.cells = []span{
			plain(row.name), phase, plain(strconv.Itoa(ready) + "/" + strconv.Itoa(len(q.Spec.Containers))),
			plain(count(restarts)), plain(p.prose(cmp.Or(q.Status.PodIP, "-"))),
		}
		w, ok := workers[string(q.UID)]
		delete(workers, string(q.UID))
		rows = append(rows, p.withWorker(row, w, ok))
	}
	for _, w := range workers {
		row := loopRow{name: p.prose(w.Name)}
		row.cells = []span{plain(row.name), plain("gone"), plain("-"), plain("-"), plain("-")}
		rows = append(rows, p.withWorker(row, w, true))
	}
	slices.SortFunc(rows, func(a, b loopRow) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.cells[1].text, b.cells[1].text), cmp.Compare(a.worker.text, b.worker.text))
	})
	return rows
}

// withWorker adds what the worker is at, and since when.
func (p *loopPage) withWorker(row loopRow, w podworkers.WorkerState, ok bool) loopRow {
	if !ok {
		row.worker = plain("no worker")
		return row
	}
	text, waits := "idle", false
	switch {
	case w.WaitingInCache:
		text, waits = "waits for PLEG", true
	case !w.Started && w.Step == podworkers.Syncing.String():
		text, waits = "waits for its turn", true
	case w.Stopping && w.Busy:
		text, waits = "stops containers", true
	case w.Busy:
		text, waits = "at work", true
	}
	text = p.prose(w.Step) + ", " + text
	if w.Since.IsZero() {
		row.worker = plain(text)
		return row
	}
	// The seconds come first: they shall be seen where the end is cut.
	d := p.since(w.Since)
	row.worker = plain(pad(lapse(d), len("59m59s")) + "  " + text)
	if waits {
		row.waits = d
	}
	if row.waits >= loopLong {
		row.worker.style = &p.ink.warn
	}
	return row
}

// pods writes the table of pods, room rows of it from scroll on, and returns scroll as far as there are pods. Its heading
// counts those that wait, so that none is out of sight that hangs.
func (p *loopPage) pods(rows []loopRow, scroll, room int) int {
	room = max(room, 0)
	scroll = max(0, min(scroll, len(rows)-room))
	const roomForIP, leastName = 75, 20
	shown := rows[scroll:min(scroll+room, len(rows))]
	text := strconv.Itoa(len(rows))
	if len(shown) < len(rows) {
		text = strconv.Itoa(scroll+1) + " to " + strconv.Itoa(scroll+len(shown)) + " of " + text
	}
	p.section("PODS", plain(text), p.waiting(rows))
	if len(shown) == 0 {
		return scroll
	}
	heads := []string{"POD", "PHASE", "READY", "RESTARTS", "IP"}
	if p.width < roomForIP {
		heads = heads[:len(heads)-1]
	}
	t := table{align: "llrrll"[:len(heads)] + "l", head: append(slices.Clone(heads), "WORKER")}
	for _, r := range shown {
		t.rows = append(t.rows, append(slices.Clone(r.cells[:len(heads)]), r.worker))
	}
	widths := t.widths()
	// What a worker is at is worth more than the end of a name.
	if over := loopSum(widths) + 2*len(heads) - p.width; over > 0 {
		widths[0] = max(widths[0]-over, min(widths[0], leastName))
	}
	lead := func(i int, c span) []span {
		if columns(c.text) > widths[i] {
			part, _ := head(c.text, widths[i]-1, len(c.text))
			c.text = part + p.glyph.more
		}
		gap := spaces(widths[i] - columns(c.text))
		if t.align[i] == 'r' {
			return []span{plain(gap), c, plain("  ")}
		}
		return []span{c, plain(gap + "  ")}
	}
	var line []span
	for i, h := range heads {
		line = append(line, lead(i, plain(h))...)
	}
	p.cut(append(line, plain("WORKER"))...)
	for _, r := range shown {
		line = nil
		for i, c := range r.cells[:len(heads)] {
			line = append(line, lead(i, c)...)
		}
		line = append(line, r.worker)
		if r.trouble != "" {
			line = append(line, span{"  " + r.trouble, &p.ink.warn})
		}
		p.cut(line...)
	}
	return scroll
}

// waiting says how many rows wait for something, and which one has for the longest time.
func (p *loopPage) waiting(rows []loopRow) span {
	n, worst := 0, loopRow{}
	for _, r := range rows {
		if r.waits > 0 {
			n++
		}
		if r.waits > worst.waits {
			worst = r
		}
	}
	if n == 0 {
		return span{}
	}
	s := plain("; " + count(n) + " at work or waiting, at most " + lapse(worst.waits) + ": " + worst.name)
	if worst.waits >= loopLong {
		s.style = &p.ink.warn
	}
	return s
}

func loopSum(widths []int) int {
	n := 0
	for _, w := range widths {
		n += w
	}
	return n
}
