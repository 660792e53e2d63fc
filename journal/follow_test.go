package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at writes an unhealthy line n seconds later, with the age grown as much.
func at(n int) string {
	d := 183*time.Second + time.Duration(n)*time.Second
	s := strings.Replace(unhealthyLine, "3m3.949212651s", d.String(), 1)
	return strings.Replace(s, "00:52:12", time.Date(0, 1, 1, 0, 52, 12+n, 0, time.UTC).Format("15:04:05"), 1)
}

func TestFollowStream(t *testing.T) {
	n := 0
	opts := Options{
		Inputs: []Input{{Kind: Stream, Path: "-", Reader: strings.NewReader(at(0) + at(5) + at(10))}}, Now: now,
		Local: time.UTC,
	}
	err := Follow(t.Context(), opts, func(_ *Report, e Event) {
		if e.Code == "PLEGNotHealthy" {
			n++
		}
	})
	if err != nil || n != 3 {
		t.Errorf("%d events, want 3; the end of a pipe is no error: %v", n, err)
	}
}

// TestFollowFile follows a file that is empty at first, grows, and is replaced. Events bear the time of the log.
func TestFollowFile(t *testing.T) {
	name := put(t, "kubelet.log", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan Event, 10)
	done := make(chan error, 1)
	go func() {
		opts := Options{Inputs: []Input{{Path: name}}, Now: now, Local: time.UTC}
		done <- Follow(ctx, opts, func(_ *Report, e Event) {
			if e.Code == "PLEGNotHealthy" || e.Code == "" && ctx.Err() == nil {
				seen <- e
			}
		})
	}()
	<-seen // what was there is read
	for n := range 2 {
		must(t, os.WriteFile(name+".new", []byte(at(5*n)), 0o644))
		must(t, os.Rename(name+".new", name))
		if got, want := (<-seen).At.Format("15:04:05"), []string{"00:52:12", "00:52:17"}[n]; got != want {
			t.Errorf("event at %s, want %s", got, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFollowJournal follows what systemd writes, over rotation: each record once, in order, and none of before.
func TestFollowJournal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "system.journal")
	in, end := journalRemote(t, path)
	started := now()
	write := func(second int) {
		stamp := started.Add(time.Duration(second) * time.Second).UnixMicro()
		message := strings.ReplaceAll(unhealthyLine, "3m3.949212651s", fmt.Sprintf("3m%ds", second))
		_, err := fmt.Fprintf(in, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032x\nMESSAGE=%s\n\n",
			stamp, second, 1, strings.TrimSpace(message))
		must(t, err)
	}
	write(-30)
	end()
	in, end = journalRemote(t, path)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seen, done := make(chan string, 100), make(chan error, 1)
	go func() {
		opts := Options{Inputs: []Input{{Kind: Directory, Path: dir}}, Now: func() time.Time { return started }}
		done <- Follow(ctx, opts, func(_ *Report, e Event) {
			if e.Code == "PLEGNotHealthy" || e.Code == "" && ctx.Err() == nil {
				seen <- e.What
			}
		})
	}()
	expect := func(second int) {
		t.Helper()
		if got, want := <-seen, fmt.Sprintf("last seen active 3m%ds ago", second); !strings.Contains(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	<-seen // what was there is read
	for second := range 9 {
		write(second + 1)
		if second == 4 {
			must(t, os.Rename(path, filepath.Join(dir, "system@1.journal")))
			end()
			in, end = journalRemote(t, path)
		}
		expect(second + 1)
	}
	end()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
