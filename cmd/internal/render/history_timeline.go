package render

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// levels is how many heights a sparkline has.
const levels = 8

// levelLimits are the longest relists of the levels but the highest, in seconds.
func levelLimits() []float64 { return []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10} }

// historySigns are the signs of a history: a hung call hides a slow look, which hides a quicker one.
func historySigns() []sign {
	all := []sign{
		{"capture", '■', 'C', info, "capture", 0},
		{"gap", '·', '.', unknown, "no records", 1},
		{"hung", '×', 'X', bad, "call hangs", 0},
		{"critical", '█', '#', bad, "critical", 0},
		{"warned", '▓', '%', warn, "warning", 0},
		{"level7", '█', '@', info, "", levels},
	}
	for i := levels - 2; i >= 0; i-- {
		char, ascii := []rune("▁▂▃▄▅▆▇")[i], rune("_.:-=+*"[i])
		all = append(all, sign{"level" + units.Number(i), char, ascii, info, "", i + 1})
	}
	return all
}

// laneRelist is the lane of the sparkline; the others are those of causes.
const laneRelist = "relist"

// timeline returns the picture of a part of a history: how long relists took, and when each cause was there.
func (d *historyDoc) timeline(from, to time.Time) timeline {
	t := timeline{from: from, to: to, logFrom: &d.From, logTo: &d.To, lanes: []string{laneRelist}, marked: true}
	run, worst := mark{}, 0.0 // looks that found the same, and the longest relist of theirs
	for i, s := range d.Samples {
		name, v := "error", took(s)
		if v != nil {
			n, _ := slices.BinarySearch(levelLimits(), *v)
			name = "level" + units.Number(n)
		}
		if len(s.Hung) > 0 {
			name, v = "hung", nil
		}
		if name != run.sign.name {
			t.add(run)
			run, worst = mark{lane: laneRelist, sign: signOf(name), from: s.At, broad: true}, 0
			run.title = run.sign.text
		}
		if v != nil && *v >= worst {
			worst, run.title = *v, "relist "+units.Seconds(*v)
		}
		run.to = d.Samples[min(i+1, len(d.Samples)-1)].At
	}
	t.add(run)
	laneOf := func(cause string) string { return middle(d.prose(cause), mostName) }
	for _, s := range d.spells {
		lane, name := laneOf(s.Cause), "critical"
		if s.Severity != checks.Critical {
			name = "warned"
		}
		if !slices.Contains(t.lanes, lane) && (d.full || d.main != nil && s.Cause == d.main.Cause) {
			t.lanes = append(t.lanes, lane)
		}
		t.add(mark{lane: lane, sign: signOf(name), from: s.At, to: s.to, title: s.Summary, broad: true})
	}
	for _, c := range d.Captures {
		t.add(mark{lane: laneOf(c.Cause), sign: signOf("capture"), from: c.At, to: c.At, title: c.Path})
	}
	for _, g := range d.Gaps {
		t.add(mark{lane: laneRelist, sign: signOf("gap"), from: g.From, to: g.To, title: g.Why, broad: true})
		if g.Restarted {
			t.add(mark{lane: laneRelist, sign: signOf("restart"), from: g.To, to: g.To, title: g.Why})
		}
	}
	t.rank()
	return t
}
