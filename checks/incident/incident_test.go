package incident

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/internal/testkit"
)

// at is a time of the day of the stories and the recorded cases; - is none.
func at(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2026-03-14 "+clock)
	if err != nil && clock != "-" {
		panic(err)
	}
	return t
}

// look parses one look of a story.
func look(line string) (*checks.Report, Dating) {
	fields := strings.Fields(line)
	r := &checks.Report{Header: checks.Header{GeneratedAt: at(fields[0]), Status: checks.Healthy}}
	dates := map[string]time.Time{}
	for _, f := range fields[1:] {
		code, more, _ := strings.Cut(f, ",")
		c := checks.Cause{Code: code, Confidence: checks.Strong, Severity: checks.Warning}
		for word := range strings.SplitSeq(more, ",") {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "certain":
				c.Confidence = checks.Certain
			case "critical":
				c.Severity = checks.Critical
			case "by":
				c.CausedBy = value
			case "began":
				dates[code] = at(value)
			case "on":
				c.Subject = &checks.Subject{Kind: "Container", ID: "1", Name: "app", Namespace: "shop", Pod: value}
			}
		}
		if r.Causes, r.Status = append(r.Causes, c), checks.Degraded; code == "unknown" {
			r.Causes, r.Status = nil, checks.Unknown
		}
	}
	return r, func(c *checks.Cause, _ time.Time) time.Time { return dates[c.Code] }
}

// words writes a transition as the stories have it.
func words(t checks.Transition) string {
	s := t.Cause + " " + t.From + ">" + t.To + " " + t.At.Format(time.TimeOnly)
	if t.NotBefore != nil {
		s += " after " + t.NotBefore.Format(time.TimeOnly)
	}
	if t.Subject != "" {
		s += " on " + t.Subject
	}
	return s + " of " + t.Incident.Format(time.TimeOnly)
}

func TestTracker(t *testing.T) {
	testkit.Archive(t, "testdata/stories.txtar", func(t *testing.T, story string) string {
		tracker := New()
		var all []checks.Transition
		var got strings.Builder
		for line := range strings.Lines(story) {
			if strings.HasPrefix(line, ">") {
				continue
			}
			got.WriteString(line)
			if line == "active\n" {
				for _, a := range tracker.Active() {
					fmt.Fprintf(&got, "> %s, %s, of %d kept\n", words(a), a.Severity, len(tracker.causes))
				}
				continue
			}
			if line == "restart\n" {
				before := tracker.Active()
				tracker = New()
				tracker.Resume(all)
				testkit.Equal(t, "active before and after the restart", before, tracker.Active())
				continue
			}
			r, began := look(line)
			for _, changed := range tracker.Update(r, began) {
				all = append(all, changed)
				got.WriteString("> " + words(changed) + "\n")
				if !changed.Noticed.Equal(r.GeneratedAt) {
					t.Errorf("%s was noticed at %v", words(changed), changed.Noticed)
				}
			}
		}
		return got.String()
	})
}

// TestBegan dates causes in the recorded cases of package causes, which were looked at at 03:09:26: of a case, a cause,
// the last look without it, and how long ago the last good relist was by the kubelet's metric, if that is changed.
func TestBegan(t *testing.T) {
	for line := range strings.Lines(`list_hang ListHang - - 03:09:24
		list_hang ListHang 03:09:00 - 03:09:24
		list_hang ListHang 03:09:25 - 03:09:24 that look took a moment
		inspect_hang InspectHang 03:09:00 - 03:09:25
		cni_hung CNIHung 03:09:00 - 03:09:24
		image_service_hung ImageServiceHung 03:09:00 - 03:09:24
		task_stuck RuntimeHung 03:09:00 - 03:09:24
		kernel_hung ListHang - - 03:01:24 by the journal
		kernel_hung ListHang 03:09:00 - 03:09:24 the list was answered then: only the call is right
		oom_killed RuntimeDown - - 03:05:24
		pleg_unhealthy PLEGUnhealthy 03:09:00 - 03:04:24 seen late
		kubelet_stalled KubeletStalled 03:09:00 - 02:58:24 seen late
		shim_stuck InspectHang 03:09:00 4m 03:05:26 not each look asks about each object
		shim_stuck InspectHang 03:09:00 20m 03:09:25 relists stopped for another reason
		task_stuck RuntimeHung - 4m 03:05:26
		shim_stuck ShimStuck - 4m - nothing dates it
		runtime_slow RuntimeSlow - - -`) {
		words := strings.Fields(line)
		var in facts.Input
		text := testkit.Read(t, "../causes/testdata/"+words[0]+"/facts.json")
		testkit.Must(t, json.Unmarshal([]byte(text), &in))
		if ago, err := time.ParseDuration(words[3]); err == nil {
			in.Node.Health.Value.Metrics.PLEGLastSeen = in.Now.Add(-ago)
		}
		got := Began(&in)(&checks.Cause{Code: words[1]}, at(words[2]))
		if want := at(words[4]); !got.Truncate(time.Second).Equal(want) {
			t.Errorf("%s: began %v, want %v", strings.TrimSpace(line), got, want)
		}
	}
}
