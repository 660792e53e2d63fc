package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/journal"
)

// TestSpells holds how records become times in which something went on.
func TestSpells(t *testing.T) {
	type span struct{ from, to, n int64 } // seconds before the journal was read
	spans := func(f *facts.Input) []span {
		var out []span
		for _, s := range facts.Spells(facts.New(f), time.Minute, "A", "B") {
			out = append(out, span{
				int64(readAt().Sub(s.From).Seconds()), int64(readAt().Sub(s.To).Seconds()), s.Records,
			})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		log  []entry
		want []span
	}{
		{"none", nil, nil},
		{"another", []entry{signs("C", 3, time.Minute, 0, "")}, nil},
		{"dense without a timeline", []entry{signs("A", 11, 5*time.Minute, 0, "")}, []span{{300, 0, 11}}},
		{"thin without a timeline", []entry{signs("A", 3, 5*time.Minute, 0, "")}, []span{{0, 0, 1}}},
		{"one", []entry{signs("A", 1, time.Minute, time.Minute, "")}, []span{{60, 60, 1}}},
		{
			"a timeline with a gap",
			[]entry{signs("A", 30, 9*time.Minute, 0, ""), burst("A", 20, 9*time.Minute, 8*time.Minute, ""), burst("A", 10, time.Minute, 0, "")},
			[]span{{540, 480, 20}, {60, 0, 10}},
		},
		{
			"two codes make one",
			[]entry{signs("A", 1, 2*time.Minute, 2*time.Minute, ""), signs("B", 1, time.Minute, time.Minute, "")},
			[]span{{120, 60, 2}},
		},
		{
			"one within another",
			[]entry{signs("A", 9, 5*time.Minute, 0, ""), burst("A", 8, 5*time.Minute, 0, ""), burst("A", 1, 4*time.Minute, 3*time.Minute, "")},
			[]span{{300, 0, 9}},
		},
		{
			"a timeline that ends early",
			[]entry{signs("A", 30, 9*time.Minute, 0, ""), burst("A", 20, 9*time.Minute, 8*time.Minute, "")},
			[]span{{540, 480, 20}, {0, 0, 1}},
		},
		{"no times", []entry{func(r *journal.Report) { r.Signatures = []journal.Count{{Code: "A", Count: 3}} }}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, spans(node(said(tt.log...))), cmp.AllowUnexported(span{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHungCalls holds the arithmetic of worst ages.
func TestHungCalls(t *testing.T) {
	for worst, want := range map[time.Duration]int{
		0: 0, 2*time.Minute + time.Second: 0, 3*time.Minute + 4*time.Second: 0, 4*time.Minute +
			time.Second: 2, 4*time.Minute + 11*time.Second: 0,
		6*time.Minute + 2*time.Second: 3, 5 * time.Minute: 0,
	} {
		if got := causes.HungCalls(worst, 2*time.Minute, 3*time.Minute); got != want {
			t.Errorf("%v: %d, want %d", worst, got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 21: "21st"} {
		if got := causes.Ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
