package journal

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

// follower returns a Follower of a root, a pointer to its clock, and what fails the test unless a Report holds exactly
// what the files hold of a window that is not too wide.
func follower(t *testing.T, root string) (f *Follower, clock *time.Time, same func(step string) *Report) {
	clock = new(now())
	f = NewFollower(t.Context(), root, 3*time.Minute)
	f.now = func() time.Time { return *clock }
	return f, clock, func(step string) *Report {
		t.Helper()
		got, err := f.read(t.Context()) // Report without its deadline
		must(t, err)
		since := f.opts.Since
		if d := clock.Sub(since) - f.window - recentLead; d < 0 || d >= startOver {
			t.Errorf("%s: it covers %v more than the window", step, d)
		}
		want, err := Read(t.Context(), Options{Inputs: f.opts.Inputs, Since: since, Now: f.now, everySync: true})
		must(t, err)
		testkit.Equal(t, step, testkit.JSON(t, want, " "), testkit.JSON(t, got, " "))
		for i, e := range want.Episodes {
			if !reflect.DeepEqual(e.Context, got.Episodes[i].Context) {
				t.Errorf("%s: the surroundings of episode %d differ", step, i)
			}
		}
		return got
	}
}

// TestFollower follows a journal from before there is one, over rotation and vacuum, and over each time that the window
// is read again. TestSearchNext of package journalfile has one that grows.
func TestFollower(t *testing.T) {
	root := testkit.NewTree(t)
	f, clock, same := follower(t, root.Root)
	if r, err := f.read(t.Context()); !errors.Is(err, ErrNoJournal) || r == nil {
		t.Fatalf("without a journal: %v", err)
	}
	path := root.Path("var/log/journal/0123456789abcdef0123456789abcdef/system.journal")
	archive, text := strings.Replace(path, "system", "system@1", 1), []byte(testkit.Read(t, smallJournal(t)))
	must(t, os.WriteFile(path, text, 0o600))
	*clock = time.Date(2023, 7, 3, 12, 2, 0, 0, time.UTC)
	if r := same("the first report"); lines(r) != 16 {
		t.Errorf("%d unhealthy records, want 16", lines(r))
	}
	*clock = clock.Add(time.Minute)
	same("nothing new")
	must(t, os.Rename(path, archive))
	same("archived")
	text[24]++ // another file by its id
	must(t, os.WriteFile(path, text, 0o600))
	same("rotated")
	must(t, os.Remove(archive))
	same("vacuumed")
	*clock = clock.Add(-time.Hour)
	same("the clock was set back")
	*clock = clock.Add(24 * time.Hour)
	if r := same("a day later"); len(r.Signatures)+len(r.Episodes) > 0 {
		t.Errorf("a day later there is still %+v", r.Signatures)
	}
}

// TestFollowerText follows RKE2's log over rotation, and keeps a bounded number of its objects.
func TestFollowerText(t *testing.T) {
	path := put(t, ownLog, "")
	f, clock, same := follower(t, strings.TrimSuffix(path, ownLog))
	log := func(text string) {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = file.WriteString(text)
		must(t, errors.Join(err, file.Close(), os.Chtimes(path, *clock, *clock)))
	}
	for i := range 3 {
		*clock = time.Date(2026, 11, 21, 0, 52, 12+5*i, 0, time.UTC)
		log(at(5 * i))
		if r := same("appended"); lines(r) != int64(i+1) {
			t.Errorf("%d unhealthy records after %d", lines(r), i+1)
		}
	}
	same("nothing new")
	must(t, os.Rename(path, path+"-old"))
	log(at(15))
	same("rotated")

	var storm strings.Builder
	for i := range 3 * mostFollowed {
		fmt.Fprintf(&storm, "2026-11-21T00:52:30Z n1 kernel: Memory cgroup out of memory: Killed process %d (java)\n", i)
	}
	log(storm.String())
	r, err := f.read(t.Context())
	must(t, err)
	if n := len(f.sources[0].matches.bursts); n > mostFollowed || r.Signatures[1].Count != 3*mostFollowed {
		t.Errorf("%d bursts kept of %+v", n, r.Signatures)
	}
}

// TestFollowerHangs reads a disk that does not answer: the latest report comes in time, and nothing is read twice at
// the same time.
func TestFollowerHangs(t *testing.T) {
	root := strings.TrimSuffix(put(t, ownLog, unhealthyLine), ownLog)
	synctest.Test(t, func(t *testing.T) {
		f := NewFollower(t.Context(), root, time.Minute)
		first, err := f.Report()
		must(t, err)
		var readings atomic.Int32
		answer := make(chan bool)
		f.now = func() time.Time {
			readings.Add(1)
			<-answer
			return time.Now()
		}
		for range 3 {
			if r, err := f.Report(); err == nil || r != first {
				t.Errorf("%p, want %p of before; error %v", r, first, err)
			}
		}
		if d := time.Since(first.GeneratedAt); d != reportLimit || readings.Load() != 1 {
			t.Errorf("%v for %d readings, want %v for one", d, readings.Load(), reportLimit)
		}
		close(answer)
		synctest.Wait()
		if r, err := f.Report(); err != nil || r == first {
			t.Errorf("the disk answers again: %v", err)
		}
	})
}
