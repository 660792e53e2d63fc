package journal

import (
	"context"
	"errors"
	"io"
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
	if err := Follow(ctx, Options{Inputs: []Input{{Path: put(t, "a.log", at(0))}}}, nil); !errors.Is(err, ErrText) {
		t.Errorf("a file: %v, want %v", err, ErrText)
	}
}
