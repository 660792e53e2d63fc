package journal

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

// at writes an unhealthy line n seconds later, with the age grown as much.
func at(n int) string {
	d := 183*time.Second + time.Duration(n)*time.Second
	s := strings.Replace(unhealthyLine, "3m3.949212651s", d.String(), 1)
	later := time.Date(2026, 11, 21, 0, 52, 12+n, 0, time.UTC).Format("0102 15:04:05")
	return strings.Replace(s, "1121 00:52:12", later, 1)
}

func TestFollowStream(t *testing.T) {
	n := 0
	in := []Input{{Kind: Stream, Path: "-", Reader: strings.NewReader(at(0) + at(5) + at(10))}}
	opts := Options{Inputs: in, Now: now, Local: time.UTC}
	err := Follow(t.Context(), opts, func(_ *Report, e Event) {
		if e.Code == "PLEGNotHealthy" {
			n++
		}
	})
	if err != nil || n != 3 {
		t.Errorf("%d events, want 3; the end of a pipe is no error: %v", n, err)
	}
}

// followed follows inputs until end is called, and sends on the unhealthy records that come once it has read what was
// there. end returns the last report.
func followed(t *testing.T, opts Options) (seen chan Event, end func() *Report) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan Event, 100), make(chan error, 1)
	var last *Report
	go func() {
		done <- Follow(ctx, opts, func(r *Report, e Event) {
			last = r
			if e.Code == "PLEGNotHealthy" || e.Code == "" && ctx.Err() == nil {
				seen <- e
			}
		})
	}()
	<-seen
	return seen, func() *Report {
		cancel()
		must(t, <-done)
		return last
	}
}

// TestFollowFile follows a file that is empty at first, then shorter than what it is known by, grows, and is replaced.
// Each record counts once, and events bear the time of the log.
func TestFollowFile(t *testing.T) {
	const short = "E1121 00:52:11.000000 1 a.go:1] Started kubelet\n"
	name := put(t, "kubelet.log", "")
	synctest.Test(t, func(t *testing.T) {
		seen, end := followed(t, Options{Inputs: []Input{{Path: name}}, Now: now, Local: time.UTC})
		must(t, os.WriteFile(name, []byte(short), 0o600))
		time.Sleep(2 * pollEvery)
		must(t, os.WriteFile(name, []byte(short+at(0)), 0o600))
		times := (<-seen).At.Format("15:04:05")
		must(t, os.WriteFile(name+".new", []byte(at(5)), 0o600))
		must(t, os.Rename(name+".new", name))
		if times += (<-seen).At.Format(" 15:04:05"); times != "00:52:12 00:52:17" {
			t.Errorf("events at %s", times)
		}
		if r := end(); len(r.Signatures) != 2 || r.Signatures[0].Count != 1 || lines(r) != 2 {
			t.Errorf("%+v, want one start and two unhealthy records", r.Signatures)
		}
	})
}

// TestFollowJournal follows a directory of journals over rotation: each record of the new file once, in order, and none
// of before.
func TestFollowJournal(t *testing.T) {
	path := smallJournal(t)
	text := []byte(testkit.Read(t, path))
	synctest.Test(t, func(t *testing.T) {
		seen, end := followed(t, Options{Inputs: []Input{{Path: filepath.Dir(path)}}, Now: now})
		text[24]++ // another file by its id
		must(t, os.WriteFile(path+".new", text, 0o600))
		synctest.Wait() // between two readings
		must(t, os.Rename(path, strings.Replace(path, "small", "small@1", 1)))
		must(t, os.Rename(path+".new", path))
		last := <-seen
		for range 15 {
			e := <-seen
			if e.At.Before(*last.At) {
				t.Errorf("%v after %v", e.At, last.At)
			}
			last = e
		}
		time.Sleep(10 * pollEvery)
		end()
		if len(seen) > 0 {
			t.Errorf("%d events more than the 16 of the new file", len(seen))
		}
	})
}
