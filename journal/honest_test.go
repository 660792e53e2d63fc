package journal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// hang writes skip lines each 5 s from 03:03:00 on, and then the same kubelet's other lines.
func hang(between string) string {
	var b strings.Builder
	begin := time.Date(0, 11, 20, 3, 3, 0, 0, time.UTC)
	for n := range 60 {
		fmt.Fprintf(&b, "E%s 1234 kubelet.go:2661] \"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg was last seen active %s ago; threshold is 3m0s\"\n",
			begin.Add(time.Duration(n)*5*time.Second).Format("0102 15:04:05.000000"),
			181*time.Second+time.Duration(n)*5*time.Second)
	}
	b.WriteString(between)
	for n := range 60 {
		fmt.Fprintf(&b, "I%s 1234 prober.go:107] \"Probe failed\" probeType=\"Readiness\"\n",
			begin.Add(5*time.Minute+time.Duration(n)*10*time.Second).Format("0102 15:04:05.000000"))
	}
	return b.String()
}

// What is not known must not be told as a recovery, nor as nothing found.
func TestHonestEnds(t *testing.T) {
	suppressed := "Nov 20 03:08:00 n1 systemd-journald[300]: Suppressed 1200 messages from kubelet.service\n"
	for _, tt := range []struct {
		name, text string
		until      time.Time
		recovered  bool
	}{
		{"the kubelet goes on with other things", hang(""), time.Time{}, true},
		{"the range ends inside", hang(""), time.Date(2026, 11, 20, 3, 5, 0, 0, time.UTC), false},
		{"journald left out records", hang(suppressed), time.Time{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Read(t.Context(), Options{
				Inputs: []Input{{Kind: Stream, Reader: strings.NewReader(tt.text)}}, Now: now, Local: time.UTC,
				Until: tt.until,
			})
			if err != nil || len(r.Episodes) != 1 || r.Episodes[0].Recovered != tt.recovered {
				t.Errorf("%v, %+v; want one episode, recovered %v", err, r.Episodes, tt.recovered)
			}
		})
	}
	_, err := Read(t.Context(), Options{
		Inputs: []Input{{Kind: Stream, Reader: strings.NewReader("hello\nworld\n")}},
		Now:    now,
	})
	if !errors.Is(err, ErrNotLog) && (err == nil || !strings.Contains(err.Error(), ErrNotLog.Error())) {
		t.Errorf("a text that is no log: %v, want %v", err, ErrNotLog)
	}
}
