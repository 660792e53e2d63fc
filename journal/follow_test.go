package journal

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o600) }

// at writes an unhealthy line n seconds later, with the age grown as much.
func at(n int) string {
	d := 183*time.Second + time.Duration(n)*time.Second
	s := strings.Replace(unhealthyLine, "3m3.949212651s", d.String(), 1)
	return strings.Replace(s, "00:52:12", time.Date(0, 1, 1, 0, 52, 12+n, 0, time.UTC).Format("15:04:05"), 1)
}

// A text file is followed over a rename and over being cut.
func TestFollowRotation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kubelet.log")
	put := func(text string, flag int) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put(at(0), os.O_APPEND)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	events := make(chan Event, 100)
	done := make(chan error, 1)
	var last *Report
	go func() {
		done <- Follow(ctx, Options{Inputs: []Input{{Path: name}}, Now: now, Local: time.UTC},
			func(r *Report, e Event) {
				last = r
				events <- e
			})
	}()
	wait := func(code string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Code == code {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no event %q came", code)
			}
		}
	}
	wait("") // the first report
	// The reader hands a record over once the next one has begun, so each write ends with a line of no interest.
	const next = "I1121 00:59:00.000000   30256 server.go:1] \"nothing\"\n"
	put(at(5)+next, os.O_APPEND)
	wait("PLEGNotHealthy")
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	put(at(10)+strings.Repeat(next, 5), os.O_APPEND) // longer than what replaces it, so that the cut shows whenever one looks
	wait("PLEGNotHealthy")
	put(at(15)+next, os.O_TRUNC)
	wait("PLEGNotHealthy")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("interrupting is no error: %v", err)
	}
	if last == nil || len(last.Episodes) != 1 {
		t.Errorf("the last report has not one episode")
	}
}

func TestFollowStream(t *testing.T) {
	in, out := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seen := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() {
		done <- Follow(ctx, Options{
			Inputs: []Input{{Kind: Stream, Path: "-", Reader: in}}, Now: now,
			Local: time.UTC,
		}, func(_ *Report, e Event) {
			if e.Code == "PLEGNotHealthy" {
				seen <- struct{}{}
			}
		})
	}()
	for n := range 3 {
		if _, err := io.WriteString(out, at(5*n)); err != nil {
			t.Fatal(err)
		}
	}
	<-seen
	_ = out.Close()
	if err := <-done; err != nil {
		t.Errorf("the end of a pipe is no error: %v", err)
	}
}
