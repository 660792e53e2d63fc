package target

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks/host"
)

// TestMarkLasting wants two looks to agree on process, state and place before a sleep counts as lasting.
func TestMarkLasting(t *testing.T) {
	start := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	d := host.Process{PID: 7, State: 'D', Wchan: "rpc_wait", Started: start}
	with := func(change func(*host.Process)) host.Process {
		p := d
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name         string
		first, again host.Process
		want         bool
	}{
		{"both", d, d, true},
		{"the boot time rounded otherwise", d, with(func(p *host.Process) { p.Started = start.Add(time.Second) }), true},
		{"only the second", with(func(p *host.Process) { p.State = 'S' }), d, false},
		{"only the first", d, with(func(p *host.Process) { p.State = 'S' }), false},
		{"elsewhere", d, with(func(p *host.Process) { p.Wchan = "io_schedule" }), false},
		{"another process", d, with(func(p *host.Process) { p.Started = start.Add(time.Minute) }), false},
		{"a start that is not known", d, with(func(p *host.Process) { p.Started = time.Time{} }), false},
		{"not there before", with(func(p *host.Process) { p.PID = 8 }), d, false},
		{"stopped", with(func(p *host.Process) { p.State = 'T' }), with(func(p *host.Process) { p.State = 'T' }), false},
	} {
		again := []host.Process{tt.again}
		markLasting([]host.Process{tt.first}, again)
		if again[0].Lasting != tt.want {
			t.Errorf("%s: lasting %v, want %v", tt.name, again[0].Lasting, tt.want)
		}
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	if got := shorten(long); utf8.RuneCountInString(got) != 128 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := shorten("containerd"); got != "containerd" {
		t.Errorf("got %q", got)
	}
}
